"""What `evaluate` makes of texts: rows of word codes, models and explainers of them, and metrics that remove words."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from standfast.errors import ArgumentError, check, warn_user
from standfast.explainers import Explainer, RandomisedExplainer
from standfast.explainers import get as get_explainer
from standfast.explainers.adapters.callables import CallableExplainer, name_function
from standfast.explainers.adapters.text_explainers import TextFunctionExplainer, fit_text_explainer
from standfast.frame_inputs import name_each
from standfast.frames import is_frame
from standfast.metrics import Metric
from standfast.metrics.base import Preset
from standfast.metrics.base import metrics as registry
from standfast.model import Model
from standfast.needs import Needs
from standfast.neighbourhoods import Compose, Neighbourhood, TextChange, Typos
from standfast.neighbourhoods.text import Word, count_too_long, has_candidates
from standfast.registry import build
from standfast.segments import FEWEST
from standfast.texts import TextModel, encode_texts
from standfast.texts.model import Removal

_CHANGES = "changes of texts, such as standfast.neighbourhoods.Typos(rate=0.1)"
_TEXTS = "a list of texts, a column of a data frame, or a data set of the package datasets with a column 'text'"


def find_text_model(models: Any) -> TextModel | None:
    """The first model of texts, of one model or a mapping from names."""
    several = list(models.values()) if isinstance(models, Mapping) else [models]
    return next((each for each in several if isinstance(each, TextModel)), None)


def list_texts(inputs: Any) -> list[str]:
    """The texts of a list, an array, a column of a frame, or a data set of the package datasets."""
    names = getattr(inputs, "column_names", None)
    if names is not None and "text" in names:
        inputs, names = inputs["text"], None
    named = isinstance(inputs, str | Mapping) or is_frame(inputs) or names is not None
    if named or not isinstance(inputs, Iterable):
        raise ArgumentError("inputs", _TEXTS, type(inputs).__name__ if not isinstance(inputs, str) else "one text")
    return [str(each) if isinstance(each, np.str_) else each for each in inputs]


@dataclass(frozen=True, eq=False)
class ReadTexts:
    """Texts as `evaluate` passes them on.

    Attributes:
        words: of each text.
        rows: their codes, float64 `(N, W)`.
        classes: their names, as the first model has them; empty where it has none.
    """

    words: Sequence[Sequence[Word]]
    rows: Tensor
    classes: tuple[str, ...] = ()

    @classmethod
    def read(cls, models: Any, inputs: Any) -> ReadTexts:
        """The texts as all models see them; metrics skip those of one or two words.

        Raises:
            ArgumentError: no texts, or none of three words; models that cut them in different ways.
        """
        several = list(models.values()) if isinstance(models, Mapping) else [models]
        wrong = [type(each).__name__ for each in several if not isinstance(each, TextModel)]
        check(not wrong, "model", "a TextModel beside another", ", ".join(wrong))
        texts = list_texts(inputs)
        found = [each.split(texts) for each in several]
        longest = max(map(len, found[0]))
        expected = f"a text of at least {FEWEST} words, which maps put in an order"
        check(longest >= FEWEST, "inputs", expected, f"texts of at most {longest}")
        same = all(each == found[0] for each in found[1:])
        expected = "models that read the same words of all texts (granularity, number of tokens)"
        check(same, "model", expected, "others")
        return cls(found[0], encode_texts(found[0]), several[0].classes)

    @property
    def lengths(self) -> tuple[int, ...]:
        """The number of words of each text."""
        return tuple(map(len, self.words))

    @property
    def tokens(self) -> tuple[tuple[str, ...], ...]:
        """The words for reports, with a blank before each that has one."""
        return tuple(tuple(" " * bool(word.gap) + word.text for word in words) for words in self.words)

    def name_models(self, models: Any) -> Any:
        """The models of rows of codes, by name or one alone."""
        if isinstance(models, Mapping):
            return {name: self.name_models(each) for name, each in models.items()}
        made: Model = models.make_model(self.rows)
        return made

    @staticmethod
    def fit_metrics(
        metrics: Any, model: TextModel, preset: Preset, removals: dict[str, str]
    ) -> dict[str, Metric | str]:
        """Metrics by label; those that remove words once for each way in which the model does.

        Args:
            metrics: as for `evaluate`.
            model: whose ways of removing words are used.
            preset: for metrics that are given by name.
            removals: gets the way of each metric that has one, by its label.

        Raises:
            ArgumentError: a metric needs numbers, which words are not.
        """
        one = isinstance(metrics, str | Metric | type)
        given = dict(metrics) if isinstance(metrics, Mapping) else dict.fromkeys([metrics] if one else list(metrics))
        found: dict[str, Metric | str] = {}
        for key, value in given.items():
            metric = key if value is None else value
            named = isinstance(metric, str) and _removes(metric)
            made = build(registry, metric, defaults={"preset": preset}) if named else metric
            label = key if value is not None else made.own_label if isinstance(made, Metric) else str(made)
            _check_metric(made)
            if not isinstance(made, Metric) or not _removes(made) or made.baseline is not None:  # type: ignore[attr-defined]
                found[label] = made
                continue
            for removal in model.removals:
                own = f"{label} ({removal})"
                removals[own], found[own] = removal, _set_removal(made, model, removal)
        return found


def _removes(metric: Metric | str) -> bool:
    """Whether a metric, or that of a name, puts something in the place of features."""
    kind = _find_class(metric)
    return isinstance(kind, type) and issubclass(kind, Metric) and "baseline" in kind.removal_options


def _find_class(metric: Metric | str) -> Any:
    """The class of a metric, or of that of a name; None for a name that is not known."""
    if not isinstance(metric, str):
        return type(metric)
    name = metric.partition(":")[0].strip()
    return registry[name] if name in registry else None  # noqa: SIM401


def _set_removal(metric: Any, model: TextModel, removal: Removal) -> Metric:
    """The metric with what the model puts in the place of a removed word."""
    options: dict[str, Any] = {}
    replaces = getattr(metric, "replacement", None)
    if removal == "retrieve":
        fits = model.removals == ("retrieve",) and replaces in (None, "uniform")
        expected = "'retrieve' alone, for explainers and metrics that take words of the texts (aopc)"
        check(fits, "removal", expected, f"{', '.join(model.removals)} for {metric.name}")
        return metric  # type: ignore[no-any-return]
    options["baseline"] = float(model.find_removed(removal))
    if replaces is not None:
        options["replacement"] = "constant"
    made: Metric = dataclasses.replace(metric, **options)
    return made


def _check_metric(metric: Metric | str) -> None:
    kind = _find_class(metric)
    name = getattr(kind, "name", "")
    needs = getattr(kind, "needs", Needs())
    numbers = needs.distances or needs.gradients
    expected = "those of predictions and maps (worst_case, misinterpretation_probability, aopc, ...)"
    check(not numbers, "metrics", f"{expected}, since words are no numbers", name)
    place = getattr(metric, "neighbourhood", None)
    if isinstance(place, Neighbourhood):
        check_change(place)


def check_change(neighbourhood: Neighbourhood, rows: Tensor | None = None) -> None:
    """Raise `ArgumentError` unless a neighbourhood makes texts, and can change any of the texts `(N, W)`."""
    parts = neighbourhood.parts if isinstance(neighbourhood, Compose) else (neighbourhood,)
    check(all(isinstance(part, TextChange) for part in parts), "neighbourhood", _CHANGES, repr(neighbourhood))
    changes = rows is None or any(isinstance(part, TextChange) and has_candidates(part, rows) for part in parts)
    check(changes, "neighbourhood", "changes of at least one word of the texts", f"{neighbourhood} without any")
    if rows is not None:
        _warn_of_long_words([part for part in parts if isinstance(part, TextChange)], rows)


def _warn_of_long_words(changes: Sequence[TextChange], rows: Tensor) -> None:
    """Say how many words of texts `(N, W)` a change leaves alone because they are too long."""
    for change in changes:
        count = count_too_long(change, rows)
        if count:
            name, words = type(change).__name__, "1 word" if count == 1 else f"{count} words"
            warn_user(f"neighbourhood: {name} leaves {words} of more than {change.longest} letters as they are")


def check_removal(model: TextModel, explainers: Iterable[Explainer]) -> None:
    """Raise `ArgumentError` for explainers that put one thing in the place of all words, where words are retrieved."""
    if model.removals[0] != "retrieve":
        return
    for given in explainers:  # those by embeddings start from padding
        each = given.explainer if isinstance(given, RandomisedExplainer) else given
        one = each.removal_options == ("baseline",) and each.baseline is None  # type: ignore[attr-defined]
        expected = "'mask', 'pad' or 'delete', or an explainer that takes several words (kernel_shap, shapley_sampling)"
        check(not one, "removal", f"{expected} instead of {each.label}", "'retrieve'")


def default_change() -> TextChange:
    """What may happen to texts where the user does not say: one word in ten is written wrongly."""
    return Typos(rate=0.1)


def fit_explainers(explainers: Any) -> Any:
    """The explainers of texts: one, several in a list, or a mapping from names."""
    if isinstance(explainers, Mapping):
        return {name: _fit(each) for name, each in explainers.items()}
    single = isinstance(explainers, str | Explainer) or callable(explainers)
    return name_each([explainers] if single else explainers, _fit)


def _fit(explainer: Any) -> Explainer:
    if isinstance(explainer, CallableExplainer):
        return TextFunctionExplainer(explainer.function, explainer.title)
    return fit_text_explainer(explainer, name_function, get_explainer)


def explain(
    model: TextModel, explainer: Any, texts: Sequence[str] | Any, targets: Tensor | int | None = None
) -> list[list[tuple[str, float]]]:
    """Explain texts: for each the words, and the number of each.

    Args:
        model: of texts.
        explainer: a name, an explainer, or a function of a predictor, strings and classes, as for `evaluate`.
        texts: a list of texts, or a column of a data frame.
        targets: classes `(N,)`, one class for all, or None for the predicted ones.

    Raises:
        ArgumentError: another model, no texts, or an explainer that is not known.
        ModelError: the model fails.

    >>> import standfast
    >>> model = TextModel(standfast.zoo.load("transformer-sentences"), standfast.data.word_vectors())
    >>> found = explain(model, "occlusion", ["a great film"])
    >>> [word for word, value in found[0]], max(found[0], key=lambda pair: pair[1])[0]
    (['a', 'great', 'film'], 'great')
    """
    expected = "a TextModel, since other inputs are explained by standfast.explainers.get(name)(model, inputs)"
    check(isinstance(model, TextModel), "model", expected, type(model).__name__)
    words, fitted = model.split(list_texts(texts)), _fit(explainer)
    check_removal(model, [fitted])
    rows = encode_texts(words)
    maps = fitted(model.make_model(rows), rows, targets)
    pairs = zip(words, maps.tolist(), strict=True)
    return [[(word.text, value) for word, value in zip(own, values, strict=False)] for own, values in pairs]
