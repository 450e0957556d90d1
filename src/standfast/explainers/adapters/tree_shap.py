"""TreeSHAP: Shapley values of trees, computed from the trees themselves by the package `shap`.

Lundberg, Erion, Chen et al., From local explanations to global understanding with explainable AI for trees, Nature
Machine Intelligence 2020. With a background the game is `v(S) = mean_b f(x_S, b_rest)` over reference rows b
(interventional); without one it follows the shares of training rows in the branches (path-dependent). The background
`"reference"` is that of the model, as for other explainers.

Of a pipeline that takes data frames, the trees see encoded columns. Their values are summed back to the user's columns,
since they are additive. The sums are those of a game whose players are the encoded columns: some codes of a category
may come from the row, and others from the reference. They need not be the Shapley values of the user's columns, which
`kernel_shap` computes, and differ from them by a few percent of the largest value where trees use several codes of one
column. A booster that takes frames itself is asked through LightGBM, XGBoost or CatBoost, which know their splits by
category.

Two departures from calling the package. It compares features with thresholds in single precision, which sends a row to
the wrong side where it lies on a threshold, as rows of the training data do. So features and thresholds are replaced by
their ranks, which are exact. And what is returned is checked: attributions add up to the model's own answer, and for
each model once also on rows mixed of the inputs, the background and values beside thresholds.

Trees are read, and mixed rows are tried, once for each model, with its first background (`trees`).

Cost: one call of the model for each chunk, and `rows x references x leaves` steps in shap's compiled code, where equal
rows count once. Rows that are explained again and again with other backgrounds are encoded together (`preparing`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from standfast.errors import ArgumentError, ModelError, check
from standfast.explainers.adapters.base import get_class, turn_maps
from standfast.explainers.adapters.frame_functions import compute_contributions, find_encoding
from standfast.explainers.adapters.trees import (
    TreeGame,
    TreeReading,
    Trees,
    TreeSource,
    make_probabilities,
    silence,
)
from standfast.explainers.background import resolve_background
from standfast.explainers.base import Baseline, Explainer, Explanation, ValueScale
from standfast.explainers.completeness import record_gap
from standfast.frames import find_frame_function
from standfast.frames.wrappers import describe_wrapping, unwrap
from standfast.model import Model, Output, module_name
from standfast.needs import Needs
from standfast.records import Background
from standfast.tasks import Binary, Regression
from standfast.tasks.decision import point_at
from standfast.tasks.estimators import Reading
from standfast.tensors import Array

#: how far what attributions add up to may be from the model's answers: a share of the spread of these, and for XGBoost,
#: which has single precision, of the sizes of what is added
_TOLERANCE = 1e-3
_SINGLE = 2e-6
#: rows that say how far answers of a model differ
_COMPARED = 128


@dataclass(frozen=True)
class TreeSHAPExplainer(Explainer):
    """An explainer that calls `shap.TreeExplainer`; made by `from_shap`.

    Attributions of class c add up to the difference of its score from that of the background. With `output="logit"` the
    score is what the trees add up to: the log-odds of a boosted model of two classes (for class 0 with the other sign),
    the margin of each class for more of them, and of a forest, whose trees average probabilities, the probability.

    Raises:
        ArgumentError: in the call, the model is no estimator's own method (`Model.from_callable`), it has a
            preprocessing, or shap cannot read its trees.
        ModelError: attributions do not add up to the answers of the model.
    """

    method: Any
    background: Baseline | Background | Literal["reference"] | None = None
    output: Output = "logit"
    name = "shap"
    has_signs = True
    measures = "contribution"
    # encoded columns of data frames: no product passes, no attribution is dropped
    version = 3
    reads_inside = True
    removal_options = ("background",)
    needs = Needs(
        other="trees: a Model of a method of scikit-learn's, XGBoost's or LightGBM's estimator"
    )

    @property
    def label(self) -> str:
        return f"shap.{get_class(self.method).__name__}"

    @property
    def scale_of_values(self) -> ValueScale:
        return "trees" if self.output == "logit" else "probability"

    def attribute(
        self, model: Model, x: Tensor, targets: Tensor | None, *, create_graph: bool = False
    ) -> Explanation:
        self._check_graph(create_graph)
        if model.task.below is not model.task:
            return self._explain_decision(model, x, targets)
        logits = self._predict(model, x)
        contributions = self._find_contributions(model, x)
        if contributions is None:
            values = self._explain_trees(model, x, logits)
        else:
            values = contributions[:, :-1]
            rest = contributions[:, -1]
            spread = _measure_spread(model, x)
            _check_sums(self.label, values, rest, make_probabilities, logits, model, spread)
        record_gap(self, model, 0.0)
        classes = model.task.answer(logits) if targets is None else targets
        return _choose_outputs(values, classes, model, x).to(x.dtype), logits

    def _explain_decision(self, model: Model, x: Tensor, targets: Tensor | None) -> Explanation:
        """Maps of what trees say of a class: the one that speaks for the side, or the one of the rule, with a sign."""
        logits = self._predict(model, x)
        sides = model.task.answer(logits) if targets is None else targets
        numbers, signs = point_at(model.task, sides, model.width)
        maps, _ = self.attribute(model.undecided, x, numbers)
        record_gap(self, model, 0.0)
        return turn_maps(maps, signs), logits

    def _predict(self, model: Model, x: Tensor) -> Tensor:
        """The model's logits, `(N, ...)`, which may be prepared."""
        reading = _READINGS.get(model.module, {}).get(self._kind)
        outputs = None if reading is None else reading.find_outputs(x)
        if outputs is not None:
            return model.decide(outputs)
        with torch.no_grad():
            return model.forward(x.detach())

    def _explain_trees(self, model: Model, x: Tensor, logits: Tensor) -> Array:
        """Attributions `(N, features, outputs)` that shap computes, and that add up to the model's logits."""
        reading = self._find_reading(model, x)
        game = reading.find_game(model, self._find_references(model, x))
        values = game.compute(reading.encode(x.detach()))
        encoding = reading.trees.source.encoding
        if encoding is not None:
            values = encoding.sum_back(values)
        _check_sums(
            self.label,
            values,
            game.base,
            game.trees.predict,
            logits,
            model,
            _measure_spread(model, x),
        )
        return values

    @contextlib.contextmanager
    def preparing(
        self, model: Model, x: Tensor, variants: Sequence[tuple[Explainer, Model]]
    ) -> Iterator[None]:
        references = [
            variant._find_references(varied_model, x)
            for variant, varied_model in variants
            if isinstance(variant, TreeSHAPExplainer)
        ]
        known_references = [rows for rows in references if rows is not None]
        if not known_references:
            yield
            return
        with self._find_reading(model, x).preparing(model, x, torch.cat(known_references)):
            yield

    def _find_contributions(self, model: Model, x: Tensor) -> Array | None:
        """What a booster's own package computes for a data frame, of which shap cannot read categories; else None."""
        function = find_frame_function(model)
        if (
            function is None
            or unwrap(function.estimator).transformers
            or self.background is not None
        ):
            return None
        return compute_contributions(function, function.table.decode(x))

    @property
    def _kind(self) -> _Kind:
        """What the trees that are read depend on, beside the model: not the rows of a background."""
        return self.method, self.output, self.background is not None

    def _find_references(self, model: Model, x: Tensor) -> Tensor | None:
        """The rows of the background `(B, F)`; None without one, and for an explainer of shap that was made before."""
        if self.background is None or not isinstance(self.method, type):
            return None
        background = None if self.background == "reference" else self.background
        return resolve_background(model, x, background)

    def _find_reading(self, model: Model, x: Tensor) -> TreeReading:
        """The trees of the model, read once."""
        readings = _READINGS.setdefault(model.module, {})
        if self._kind not in readings:
            readings[self._kind] = self._read_trees(model, x)
        return readings[self._kind]

    def _read_trees(self, model: Model, x: Tensor) -> TreeReading:
        source = self._find_source(model)
        name = module_name(model.module)
        keeps_scores = source.shift == 0.0 or self.output == "logit"
        expected = (
            f"'logit' for a classifier that decides at a threshold of its scores, and {self.label}"
        )
        check(
            keeps_scores,
            "output",
            expected,
            f"{self.output!r}, which shap computes without the threshold",
        )
        check(model.preprocess is None, "model", f"no preprocessing for {self.label}", "one")
        check(
            x.ndim == 2, "inputs", f"rows (N, features) for {self.label}", f"shape {tuple(x.shape)}"
        )
        if not isinstance(self.method, type):
            rows = self.method.data
            own_logits = None if rows is None else source.predict(model, rows)
            return TreeReading(Trees(self.method, source, self.output, rank=False), own_logits)
        references = self._find_references(model, x)
        encoded_references: Array | None = None
        if references is not None:
            encoded_references = source.encode(references)
            _check_readable(source.estimator, self.label)
        with silence(), torch.no_grad():
            explainer = self._construct(source.estimator, name, encoded_references)
            reading = TreeReading(Trees(explainer, source, self.output, rank=True), None)
            game = reading.find_game(model, references)
            self._check_splits(
                game, source.find_model(model), source.encode(x.detach()), encoded_references
            )
        return reading

    def _find_source(self, model: Model) -> TreeSource:
        """The estimator, and how rows reach it: for a model of data frames, through the steps before it."""
        gives_numbers = isinstance(model.task, Regression)
        function = find_frame_function(model)
        if function is not None:
            unwrapped = unwrap(function.estimator)
            self._check_decides(unwrapped.final)
            encoding = find_encoding(model, function, self.label)
            encoded_model = encoding.make_model(model)
            return TreeSource(
                unwrapped.final, encoding, encoded_model, _read_shift(encoded_model), gives_numbers
            )
        estimator = None if model.black_box is None else model.black_box.estimator
        expected = "a Model of an estimator's own method, as Model.from_callable(fitted.predict_proba, ...)"
        name = module_name(model.module)
        check(
            estimator is not None, "model", f"{expected}, since {self.label} reads its trees", name
        )
        unwrapped = unwrap(estimator)
        self._check_decides(unwrapped.final)
        if not unwrapped.transformers:
            estimator = unwrapped.final
        return TreeSource(estimator, None, None, _read_shift(model), gives_numbers)

    def _check_splits(
        self, game: TreeGame, model: Model, encoded: Array, references: Array | None
    ) -> None:
        """Raise `ModelError` unless the trees give the model's answers on both sides of all kinds of splits.

        The sum of a row's attributions says nothing about rows mixed of it and the background. So rows are tried whose
        features are drawn from the inputs, the background, and between the thresholds.

        Args:
            game: the trees with a background.
            model: of the trees alone.
            encoded: inputs as the trees get them, `(N, E)`.
            references: the rows of the background, `(B, E)`; None without one.
        """
        known_rows = encoded
        if references is not None:
            known_rows = np.concatenate([encoded, references])
        rows = game.trees.mix_rows(known_rows)
        tried = torch.as_tensor(rows, dtype=model.dtype, device=model.device)
        tried = tried.clamp(*model.bounds)
        (logits,) = model.map_rows(lambda z: (model.forward(z),), tried)
        values = game.compute(tried.cpu().numpy())
        spread = _measure_answers(logits, model)
        _check_sums(self.label, values, game.base, game.trees.predict, logits, model, spread)

    def _construct(self, estimator: object, name: str, references: Array | None) -> Any:
        from shap.maskers import Independent

        # by default shap draws 100 of the references
        masker = (
            None if references is None else Independent(references, max_samples=len(references))
        )
        construct = partial(self.method, estimator, masker)
        try:
            explainer = construct()
            if self.output == "probability" and explainer.model.tree_output != "probability":
                expected = f"'logit', or a background beside 'probability', for {self.label}"
                check(
                    references is not None, "output", expected, "'probability' without a background"
                )
                explainer = construct(model_output="probability")
            return explainer
        except ArgumentError:
            raise
        except Exception as error:  # shap has several kinds, among them a bare Exception
            problem = f"{name}: {type(error).__name__}: {error}"
            raise ArgumentError("model", self._expected_trees, problem) from error

    @property
    def _expected_trees(self) -> str:
        return f"a model of trees that {self.label} can read (kernel_shap needs predictions alone)"

    def _check_decides(self, estimator: object) -> None:
        """Raise `ArgumentError` for an estimator that changes or joins the answers of others."""
        wrapping = describe_wrapping(estimator)
        check(not wrapping, "model", self._expected_trees, wrapping)


def _check_readable(estimator: Any, label: str) -> None:
    """Raise `ArgumentError` for trees that shap reads with a background so that the process ends."""
    if type(estimator).__module__.partition(".")[0] != "catboost":
        return
    loss = str(estimator.get_all_params().get("loss_function", ""))
    expected = f"None for CatBoost with several outputs ({loss}) and {label}, which cannot read them with a background"
    check(not loss.startswith("Multi"), "background", expected, "one")


def _read_shift(model: Model) -> float:
    """What a model adds to the trees' sums, so that a classifier with a threshold of its own decides at 0."""
    function = None if model.black_box is None else model.black_box.function
    if isinstance(function, Reading):
        return function.source.shift
    return 0.0


#: an explainer of shap, what is explained, and whether there is a background
_Kind = tuple[Any, Output, bool]
#: the trees of each model
_READINGS: WeakKeyDictionary[nn.Module, dict[_Kind, TreeReading]] = WeakKeyDictionary()


#: how much the answers of each model differ between rows of its reference
_SPREADS: WeakKeyDictionary[nn.Module, float] = WeakKeyDictionary()


def _measure_spread(model: Model, x: Tensor) -> float:
    """The standard deviation of the model's answers for rows of its reference, or else for these rows."""
    if model.module not in _SPREADS or model.reference is None:
        if model.reference is None:
            rows = x.detach()
        else:
            rows = model.reference.rows[:_COMPARED].to(x)
        with torch.no_grad():
            (logits,) = model.map_rows(lambda part: (model.forward(part),), rows)
        _SPREADS[model.module] = _measure_answers(logits, model)
    return _SPREADS[model.module]


def _measure_answers(logits: Tensor, model: Model) -> float:
    """The standard deviation of numbers, or the largest of those of the classes' probabilities."""
    answers = _read_answers(logits, model)
    return float(answers.std(0).max())


def _read_answers(logits: Tensor, model: Model) -> Array:
    """The numbers of a regressor `(N, outputs)`, or the probabilities of classes `(N, classes)`."""
    if isinstance(model.task, Regression):
        return np.asarray(logits.double().cpu().numpy())
    if isinstance(model.task, Binary):
        both = torch.cat([-logits / 2, logits / 2], 1)
    else:
        both = logits
    return np.asarray(both.double().softmax(1).cpu().numpy())


def _choose_outputs(values: Array, classes: Tensor, model: Model, x: Tensor) -> Tensor:
    """Of attributions `(N, features, outputs)`, those of each row's class."""
    outputs = torch.from_numpy(np.ascontiguousarray(values)).to(x.device)
    # of two classes, shap explains class 1
    if outputs.shape[2] == 1 and not isinstance(model.task, Regression):
        of_second = outputs[..., 0]
        is_second = classes[:, None] == 1
        return torch.where(is_second, of_second, -of_second)
    numbers = model.task.describe(classes)[:, None, None]
    chosen = numbers.expand(-1, x.shape[1], 1)
    return outputs.gather(2, chosen)[..., 0]


def _check_sums(
    label: str,
    values: Array,
    base: Array,
    predict: Callable[[Array], Array],
    logits: Tensor,
    model: Model,
    spread: float,
) -> None:
    """Raise `ModelError` unless attributions add up to the numbers of the model, or to the logits of its classes.

    Args:
        label: of the explainer.
        values: attributions, `(N, features, outputs)`.
        base: what they are added to, `(N, outputs)` or `(outputs,)`.
        predict: the probabilities that belong to what they add up to.
        logits: of the model.
        model: which one.
        spread: how much its answers differ between rows.
    """
    name = module_name(model.module)
    task = model.task
    is_readable = task.classes or isinstance(task, Regression | Binary)
    check(
        is_readable,
        "model",
        f"classes, a binary task or a regression for {label}",
        f"the task {task.name}",
    )
    sums = values.sum(1) + base
    answers = _read_answers(logits, model)
    # what single precision loses is a share of the largest term
    sizes = np.abs(values).sum(1) + np.abs(base)
    if not isinstance(task, Regression):
        sums = predict(sums)
        sizes = np.maximum(sizes.max(axis=1, keepdims=True), 1.0)
    if sums.shape != answers.shape:
        raise ModelError(
            f"{label}: expected {answers.shape[1]} classes, got {sums.shape[1]} from the trees of {name}"
        )
    differences = np.nan_to_num(np.abs(sums - answers))
    if (differences > _TOLERANCE * spread + _SINGLE * sizes).any():
        kind = "numbers" if isinstance(task, Regression) else "probabilities"
        raise ModelError(
            f"{label}: expected attributions that add up to the answers of {name}, got {kind} that differ by up to"
            f" {differences.max():.3g}. Was it fitted again, or does it have splits or a loss that shap cannot read?"
            " kernel_shap needs predictions alone"
        )
