"""Texts: strings as rows of word codes, models of texts, explainers of words, and metrics that remove words."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from standfast.errors import ArgumentError, check, warn_user
from standfast.explainers import Explainer, RandomisedExplainer
from standfast.explainers import get as get_explainer
from standfast.explainers.adapters.callables import CallableExplainer, name_function
from standfast.explainers.adapters.text_explainers import TextFunctionExplainer, fit_text_explainer
from standfast.frames import is_frame
from standfast.metrics import Metric
from standfast.model import Model
from standfast.neighbourhoods import Compose, Neighbourhood, TextChange, Typos
from standfast.neighbourhoods.text import Word, count_too_long
from standfast.question.grid import LoadedModel, ModelSource, Reader, Samples
from standfast.question.inputs import Given, Inputs, kinds
from standfast.segments import FEWEST
from standfast.tasks import Task
from standfast.texts import AnswerModel, TextModel, encode_texts
from standfast.texts.model import Removal
from standfast.texts.network import CODE_BOUNDS

_CHANGES = "changes of texts, such as standfast.neighbourhoods.Typos(rate=0.1)"
_TEXTS = "a list of texts, a column of a data frame, or a data set of the package datasets with a column 'text'"


@dataclass(frozen=True, eq=False)
class GivenTexts:
    """Texts, before it is known which models read them, and what their words are.

    Attributes:
        texts: the strings.
        labels: int64 or floats `(N,)`; None where there are none.
        explains_labels: whether the labels are what is explained.
        about: as of `Samples`; `"classes"` are the names of the labels.
    """

    texts: tuple[str, ...]
    labels: Tensor | None = None
    explains_labels: bool = False
    about: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.explains_labels:
            return
        has_classes = self.labels is not None and not self.labels.is_floating_point()
        expected = "predicted, as there are no labels that are classes"
        check(has_classes, "targets", expected, "labels")

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True, eq=False)
class TextReader(Reader):
    """Reads rows of word codes as strings.

    Attributes:
        texts: the strings.
        words_of_texts: the words of each.
    """

    texts: tuple[str, ...]
    words_of_texts: tuple[Sequence[Word], ...] = field(repr=False)

    words = "a model of texts"
    expected = "transformers: FOLDER, or a function that returns a TextModel, for texts"

    @classmethod
    def takes(cls, model: object) -> bool:
        return isinstance(model, TextModel) and not isinstance(model, AnswerModel)

    def make_model(self, model: Any, task: Task | None, device: str) -> Model:
        check(isinstance(model, TextModel), "model", self.expected, type(model).__name__)
        return place_model(model, task, device).make_model(encode_rows(self.words_of_texts))


def place_model(model: TextModel, task: Task | None, device: str) -> TextModel:
    """A model of texts on a device, with another task where one is given."""
    if task is None:
        return replace(model, device=device)
    return replace(model, device=device, task=task)


def encode_rows(words_of_texts: Sequence[Sequence[Word]]) -> Tensor:
    """The rows of words; it also tells this process which words their codes stand for."""
    return encode_texts(words_of_texts)


@kinds.register("texts")
@dataclass(eq=False)
class Texts(Inputs):
    """Strings, and models of these.

    Attributes:
        readers: the models as the user has them, by name.
    """

    readers: dict[str, TextModel] = field(kw_only=True)
    _checked: list[Neighbourhood] = field(default_factory=list, repr=False)

    name = "texts"
    words = "texts"
    forms = "texts, where the model is a TextModel"
    given: ClassVar[type] = GivenTexts
    #: what makes models of rows, and the class of the user's models
    reader: ClassVar[type[Reader]] = TextReader
    model: ClassVar[type[TextModel]] = TextModel
    no_reference: ClassVar[str] = "None for texts; TextModel(removal=...) says how words go"

    @classmethod
    def takes(cls, inputs: object, models: Sequence[object]) -> bool:
        return any(map(TextReader.takes, models))

    @classmethod
    def title(cls, inputs: Any) -> str:
        return "texts"

    @classmethod
    def give(cls, inputs: Any) -> GivenTexts:
        return GivenTexts(tuple(list_texts(inputs)))

    @classmethod
    def read(cls, given: Given) -> Texts:
        """Samples that no model can read, or that cannot be read, are left out where errors have places."""
        check(given.reference is None, "reference", cls.no_reference, "rows")
        readers: dict[str, TextModel] = {}
        for name, model in given.models.items():
            with given.places.at("models", name):
                readers[name] = load_reader(model, cls.reader, cls.model)
        samples: dict[str, Samples] = {}
        for name, data in given.data.items():
            met = [readers[model] for model in given.list_models_of(name) if model in readers]
            if not met:
                continue
            with given.places.at("data", name):
                samples[name] = cls.read_samples(data, met)
        sources: dict[str, ModelSource] = {}
        for name, model in given.models.items():
            if isinstance(model, ModelSource):
                sources[name] = model
            elif name in readers:
                sources[name] = LoadedModel(cls.make_model(readers[name], given.data, samples))
        return cls(samples, sources, readers=readers)

    @classmethod
    def read_samples(cls, data: Any, models: Sequence[Any]) -> Samples:
        """The samples of data, as the models read them.

        Raises:
            ArgumentError: the data cannot be evaluated; the models cut them in different ways.
        """
        return _read_samples(data, models)

    @classmethod
    def make_model(
        cls, model: Any, data: Mapping[str, Any], samples: Mapping[str, Samples]
    ) -> Model:
        """The model of rows, from one of the user's, with all data that it may meet."""
        model_of_rows: Model = model.make_model(next(iter(samples.values())).inputs)
        return model_of_rows

    @property
    def holds_quantities(self) -> bool:
        return False

    def fit_explainer(self, explainer: Any) -> Explainer:
        """An explainer of embeddings, or of words."""
        return fit_explainer(explainer)

    def check_explainers(self, explainers: Iterable[Explainer]) -> None:
        listed = list(explainers)
        for reader in self.readers.values():
            check_removal(reader, listed)

    def fit_neighbourhood(self, neighbourhood: Neighbourhood) -> Neighbourhood:
        if not any(neighbourhood is checked for checked in self._checked):
            self._checked.append(neighbourhood)
            for samples in self.samples.values():
                check_change(neighbourhood, samples.inputs)
        return neighbourhood

    def fit_metric(self, label: str, metric: Metric) -> dict[str, Metric]:
        """A metric that removes words is there once for each way in which the first model does."""
        _check_metric(metric)
        neighbourhood = metric.neighbourhood_in_use
        if neighbourhood is not None:
            self.fit_neighbourhood(neighbourhood)
        if not _is_unset(metric) or not self.readers:
            return {label: metric}
        reader = next(iter(self.readers.values()))
        removals: dict[str, Removal] = self.about.setdefault("removal", {})
        fitted: dict[str, Metric] = {}
        for removal in reader.removals:
            own_label = f"{label} ({removal})"
            removals[own_label] = removal
            fitted[own_label] = _set_removal(metric, reader, removal)
        return fitted

    def choose_label(self, text: str, metric: Metric) -> str:
        return metric.own_label if _removes(metric) else text

    def default_neighbourhood(self) -> tuple[Neighbourhood, str]:
        usual = default_change()
        return usual, f"texts {usual.describe()}, because none was given"


def load_reader(model: Any, reader: type[Reader], kind: type[TextModel]) -> TextModel:
    """A model as the user has it, of a source or as it is.

    Raises:
        ArgumentError: it is none of this class.
    """
    if isinstance(model, ModelSource):
        loaded = model.load(reader)
    else:
        loaded = model
    article = "an" if kind.__name__[0] in "AEIOU" else "a"
    expected = f"{article} {kind.__name__} beside another"
    check(isinstance(loaded, kind), "model", expected, type(loaded).__name__)
    user_model: TextModel = loaded
    return user_model


def _read_samples(data: GivenTexts, models: Sequence[TextModel]) -> Samples:
    """The texts as the models read them; labels that are names get the numbers that the models have for these.

    Raises:
        ArgumentError: no text has three words; the models cut the texts in different ways, or number classes so.
    """
    words = _split(data.texts, models)
    classes, labels = _number_labels(data, models)
    about = {**data.about, "texts": True}
    if classes:
        about["classes"] = list(classes)
    extras: dict[str, Tensor] = {}
    if labels is not None:
        extras["labels"] = labels
    return Samples(
        encode_texts(words),
        labels if data.explains_labels else None,
        CODE_BOUNDS,
        about,
        extras,
        tokens=tuple(map(write_tokens, words)),
        lengths=tuple(map(len, words)),
        reader=TextReader(data.texts, tuple(words)),
    )


def write_tokens(words: Sequence[Word]) -> tuple[str, ...]:
    """The words for reports, with a blank before each that has one."""
    return tuple(f" {word.text}" if word.gap else word.text for word in words)


def _number_labels(
    data: GivenTexts, models: Sequence[TextModel]
) -> tuple[Sequence[str], Tensor | None]:
    """The names of the classes, and the labels with the numbers that the models have for them."""
    classes: Sequence[str] = data.about.get("classes", ())
    named_models = [model for model in models if model.classes]
    if not named_models:
        return classes, data.labels
    model_classes = named_models[0].classes
    if not classes or data.labels is None:
        return classes or model_classes, data.labels
    order = _find_order(classes, named_models)
    if order is None:
        return classes, data.labels
    return model_classes, torch.tensor(order)[data.labels]


def _split(texts: Sequence[str], models: Sequence[TextModel]) -> Sequence[Sequence[Word]]:
    """The words of each text, as all models see them; metrics skip texts of one or two words."""
    words = models[0].split(texts)
    longest = max(map(len, words))
    expected = f"a text of at least {FEWEST} words, which maps put in an order"
    check(longest >= FEWEST, "inputs", expected, f"texts of at most {longest}")
    expected = "models that read the same words of all texts (granularity, number of tokens)"
    for model in models[1:]:
        check(model.split(texts) == words, "model", expected, "others")
    return words


def _find_order(classes: Sequence[str], models: Sequence[TextModel]) -> tuple[int, ...] | None:
    """The number that each class of the labels has in the models; None, with a warning, where these have other names.

    Raises:
        ArgumentError: the models have different numbers for them.
    """
    orders = {_match_names(classes, model.classes) for model in models}
    check(len(orders) == 1, "models", "the same numbers of the classes for all", "others")
    (order,) = orders
    if order is None:
        model_names = ", ".join(models[0].classes)
        label_names = ", ".join(classes)
        warn_user(
            f"the labels ({label_names}) are numbered in this order, as the model's classes have other names"
            f" ({model_names})"
        )
    return order


def _match_names(classes: Sequence[str], names: Sequence[str]) -> tuple[int, ...] | None:
    """The number that each of the classes has among names, in any case; None if one of them is not there."""
    folded_names = [name.casefold() for name in names]
    order: list[int] = []
    for class_name in classes:
        folded_class = class_name.casefold()
        if folded_class not in folded_names:
            return None
        order.append(folded_names.index(folded_class))
    return tuple(order)


def list_texts(inputs: Any) -> list[str]:
    """The texts of a list, an array, a column of a frame, or a data set of the package datasets."""
    names = getattr(inputs, "column_names", None)
    if names is not None and "text" in names:
        inputs, names = inputs["text"], None
    if isinstance(inputs, str):
        raise ArgumentError("inputs", _TEXTS, "one text")
    has_columns = isinstance(inputs, Mapping) or is_frame(inputs) or names is not None
    if has_columns or not isinstance(inputs, Iterable):
        raise ArgumentError("inputs", _TEXTS, type(inputs).__name__)
    return [str(text) if isinstance(text, np.str_) else text for text in inputs]


def _removes(metric: Metric) -> bool:
    """Whether a metric puts something in the place of features."""
    return "baseline" in metric.removal_options


def _is_unset(metric: Any) -> bool:
    """Whether a metric puts something in the place of features, and the user does not say what."""
    return _removes(metric) and metric.baseline is None


def _set_removal(metric: Any, model: TextModel, removal: Removal) -> Metric:
    """The metric with what the model puts in the place of a removed word."""
    options: dict[str, Any] = {}
    replaces = metric.replacement if "replacement" in metric.removal_options else None
    if removal == "retrieve":
        takes_several = replaces in (None, "uniform")
        expected = (
            "'retrieve' alone, for explainers and metrics that take words of the texts (aopc)"
        )
        got = f"{', '.join(model.removals)} for {metric.name}"
        check(takes_several and model.removals == ("retrieve",), "removal", expected, got)
        return metric  # type: ignore[no-any-return]
    options["baseline"] = float(model.find_removed(removal))
    if replaces is not None:
        options["replacement"] = "constant"
    changed: Metric = dataclasses.replace(metric, **options)
    return changed


def _check_metric(metric: Metric) -> None:
    expected = "an option 'baseline' among removal_options, which gets what stands in the place of removed words"
    fits = not metric.removal_options or _removes(metric)
    check(
        fits,
        f"{type(metric).__qualname__}.removal_options",
        expected,
        ", ".join(metric.removal_options),
    )
    needs_numbers = metric.needs.distances or metric.needs.gradients
    expected = (
        "those of predictions and maps (worst_case, misinterpretation_probability, aopc, ...)"
    )
    check(not needs_numbers, "metrics", f"{expected}, since words are no numbers", metric.name)


def check_change(neighbourhood: Neighbourhood, rows: Tensor) -> None:
    """Raise `ArgumentError` unless a neighbourhood makes texts, and can change any of the texts `(N, W)`."""
    parts: Sequence[Neighbourhood] = (neighbourhood,)
    if isinstance(neighbourhood, Compose):
        parts = neighbourhood.parts
    changes = [part for part in parts if isinstance(part, TextChange)]
    check(len(changes) == len(parts), "neighbourhood", _CHANGES, repr(neighbourhood))
    acts = any(bool(change.find_movable(rows).any()) for change in changes)
    check(
        acts,
        "neighbourhood",
        "changes of at least one word of the texts",
        f"{neighbourhood} without any",
    )
    _warn_of_long_words(changes, rows)


def _warn_of_long_words(changes: Sequence[TextChange], rows: Tensor) -> None:
    """Say how many words of texts `(N, W)` a change leaves alone because they are too long."""
    for change in changes:
        count = count_too_long(change, rows)
        if not count:
            continue
        name = type(change).__name__
        words = "1 word" if count == 1 else f"{count} words"
        warn_user(
            f"neighbourhood: {name} leaves {words} of more than {change.longest} letters as they are"
        )


def check_removal(model: TextModel, explainers: Iterable[Explainer]) -> None:
    """Raise `ArgumentError` for explainers that put one thing in the place of all words, where words are retrieved."""
    if model.removals[0] != "retrieve":
        return
    expected = "'mask', 'pad' or 'delete', or an explainer that takes several words (kernel_shap, shapley_sampling)"
    for explainer in explainers:
        inner = explainer
        if isinstance(explainer, RandomisedExplainer):
            inner = explainer.explainer
        # those by embeddings start from padding
        takes_one = inner.removal_options == ("baseline",) and inner.baseline is None  # type: ignore[attr-defined]
        check(not takes_one, "removal", f"{expected} instead of {inner.label}", "'retrieve'")


def default_change() -> TextChange:
    """What may happen to texts where the user does not say: one word in ten is written wrongly."""
    return Typos(rate=0.1)


def fit_explainer(explainer: Any) -> Explainer:
    """An explainer of texts: of embeddings where it needs gradients, else of words."""
    if isinstance(explainer, CallableExplainer):
        return TextFunctionExplainer(explainer.function, explainer.title)
    return fit_text_explainer(explainer, name_function, get_explainer)


def explain_texts(
    model: TextModel, explainer: Any, texts: Any, targets: Tensor | int | None, *, progress: bool
) -> list[list[tuple[str, float]]]:
    """For each text the words, and the number of each; see `standfast.explain`."""
    words_of_texts = model.split(list_texts(texts))
    fitted = fit_explainer(explainer)
    check_removal(model, [fitted])
    rows = encode_texts(words_of_texts)
    maps = fitted(model.make_model(rows), rows, targets, progress=progress).tolist()
    return list(map(_pair_words, words_of_texts, maps))


def _pair_words(words: Sequence[Word], values: Sequence[float]) -> list[tuple[str, float]]:
    """Each word with its number; the numbers behind the end of the text belong to none."""
    return [(word.text, value) for word, value in zip(words, values, strict=False)]
