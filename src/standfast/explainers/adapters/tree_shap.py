"""TreeSHAP: Shapley values of trees, computed from the trees themselves by the package `shap`.

Lundberg, Erion, Chen et al., From local explanations to global understanding with explainable AI for trees, Nature
Machine Intelligence 2020. With a background the game is `v(S) = mean_b f(x_S, b_rest)` over reference rows b
(interventional); without one it follows the shares of training rows in the branches (path-dependent). The background
`"reference"` is that of the model, as for other explainers.

Of a pipeline that takes data frames, the trees see encoded columns. Their values are summed back to the user's columns,
since they are additive. A booster that takes frames itself is asked through LightGBM, XGBoost or CatBoost, which know
their splits by category.

Two departures from calling the package. It compares features with thresholds in single precision, which sends a row to
the wrong side where it lies on a threshold, as rows of the training data do. So features and thresholds are replaced by
their ranks, which are exact. And what is returned is checked: attributions add up to the model's own answer, and for
each model once also on rows mixed of the inputs, the background and values beside thresholds.

Cost: one call of the model for each chunk, and `rows x references x leaves` steps in shap's compiled code.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from standfast.errors import ArgumentError, ModelError, check
from standfast.explainers.adapters.base import get_class
from standfast.explainers.adapters.frame_functions import compute_contributions, find_encoding
from standfast.explainers.background import resolve_background
from standfast.explainers.base import Baseline, Explainer, Explanation
from standfast.explainers.completeness import record_gap
from standfast.frames import find_frame_function
from standfast.frames.model import find_final
from standfast.model import Model, Output, module_name
from standfast.records import Background
from standfast.tasks import Binary, Regression
from standfast.tensors import Array

#: how far the probabilities that attributions add up to may be from the model's; XGBoost has single precision
_TOLERANCE = 1e-3
#: rows on which trees are compared with the model, once
_TRIED = 128


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
    name: ClassVar[str] = "shap"
    needs: ClassVar[str] = "trees: a Model of a method of scikit-learn's, XGBoost's or LightGBM's estimator"

    @property
    def label(self) -> str:
        return f"shap.{get_class(self.method).__name__}"

    def attribute(self, model: Model, x: Tensor, targets: Tensor | None, *, create_graph: bool = False) -> Explanation:
        self._check_graph(create_graph)
        with torch.no_grad():
            logits = model.forward(x.detach())
        values = self._find_contributions(model, x)
        if values is None:
            trees = self._read_trees(model, x)
            values = trees.given.sum_back(trees.compute(trees.given.encode(x.detach())))
            sums = trees.add_up(values), trees.predict
        else:
            values, rest = values[:, :-1], values[:, -1]
            sums = values.sum(1) + rest, _make_probabilities
        _check_sums(self.label, *sums, logits, model)
        record_gap(self, model, 0.0)
        classes = model.task.answer(logits) if targets is None else targets
        found = torch.from_numpy(values).to(x.device)
        if found.shape[2] == 1 and not isinstance(model.task, Regression):  # of two classes, shap explains class 1
            maps = torch.where(classes[:, None] == 1, found[..., 0], -found[..., 0])
        else:
            maps = found.gather(2, model.task.describe(classes)[:, None, None].expand(-1, x.shape[1], 1))[..., 0]
        return maps.to(x.dtype), logits

    def _find_contributions(self, model: Model, x: Tensor) -> Array | None:
        """What a booster's own package computes for a data frame, of which shap cannot read categories; else None."""
        function = find_frame_function(model)
        if function is None or getattr(function.estimator, "steps", None) or self.background is not None:
            return None
        return compute_contributions(function, function.table.decode(x))

    def _read_trees(self, model: Model, x: Tensor) -> _Trees:
        """The trees of the model, read once for each of them and each reference."""
        known = _TREES.setdefault(model.module, {})
        key = (self, id(model.reference) if self.background == "reference" else 0)
        if key not in known:
            known[key] = self._build(model, x)
        return known[key]

    def _build(self, model: Model, x: Tensor) -> _Trees:
        given, name = self._find_given(model), module_name(model.module)
        check(model.preprocess is None, "model", f"no preprocessing for {self.label}", "one")
        check(x.ndim == 2, "inputs", f"rows (N, features) for {self.label}", f"shape {tuple(x.shape)}")
        references: Array | None = None
        if self.background is not None:
            background = None if self.background == "reference" else self.background
            references = given.encode(resolve_background(model, x, background))
        with _silence(), torch.no_grad():
            if isinstance(self.method, type):
                explainer = self._construct(given.estimator, name, references)
            else:
                explainer, references = self.method, self.method.data
            logits = None
            if references is not None:
                rows = torch.as_tensor(references, dtype=model.dtype, device=model.device)
                (logits,) = given.model.map_rows(lambda z: (given.model.forward(z),), rows)
            trees = _Trees(explainer, given, logits, self.output, rank=isinstance(self.method, type))
            if isinstance(self.method, type):
                self._check_splits(trees, given.model, x, references)
            return trees

    def _find_given(self, model: Model) -> _Given:
        """The estimator, and how rows reach it: for a model of data frames, through the steps before it."""
        function = find_frame_function(model)
        if function is not None:
            encoding = find_encoding(model, function, self.label)
            estimator = find_final(function.estimator)
            return _Given(estimator, encoding.make_model(model), encoding.encode, encoding.sum_back)
        estimator = None if model.black_box is None else model.black_box.estimator
        expected = "a Model of an estimator's own method, as Model.from_callable(fitted.predict_proba, ...)"
        name = module_name(model.module)
        check(estimator is not None, "model", f"{expected}, since {self.label} reads its trees", name)
        return _Given(estimator, model, lambda rows: rows.cpu().numpy(), lambda values: values)

    def _check_splits(self, trees: _Trees, model: Model, x: Tensor, references: Array | None) -> None:
        """Raise `ModelError` unless the trees give the model's answers on both sides of all kinds of splits.

        The sum of a row's attributions says nothing about rows mixed of it and the background. So rows are tried whose
        features are drawn from the inputs, the background, and between the thresholds.
        """
        seen = trees.given.encode(x.detach())
        rows = trees.mix_rows(seen if references is None else np.concatenate([seen, references]))
        given = torch.as_tensor(rows, dtype=x.dtype, device=x.device).clamp(*model.bounds)
        (logits,) = model.map_rows(lambda z: (model.forward(z),), given)
        sums = trees.add_up(trees.compute(given.cpu().numpy()))
        _check_sums(self.label, sums, trees.predict, logits, model)

    def _construct(self, estimator: object, name: str, references: Array | None) -> Any:
        from shap.maskers import Independent

        # by default shap draws 100 of the references
        masker = None if references is None else Independent(references, max_samples=len(references))
        construct = partial(self.method, estimator, masker)
        try:
            found = construct()
            if self.output == "probability" and found.model.tree_output != "probability":
                expected = f"'logit', or a background beside 'probability', for {self.label}"
                check(references is not None, "output", expected, "'probability' without a background")
                found = construct(model_output="probability")
            return found
        except ArgumentError:
            raise
        except Exception as error:  # shap has several kinds, among them a bare Exception
            expected = f"a model of trees that {self.label} can read"
            raise ArgumentError("model", expected, f"{name}: {type(error).__name__}: {error}") from error


@dataclass(frozen=True)
class _Given:
    """What trees are read from: the estimator and a model of it alone, and how a table's rows reach them and back."""

    estimator: object
    model: Model
    encode: Callable[[Tensor], Array]
    sum_back: Callable[[Array], Array]


class _Trees:
    """A `shap.TreeExplainer`, with ranks in place of features and thresholds where its own compiled code runs.

    Args:
        explainer: of shap.
        given: what the trees were read from.
        logits: of the model at the references `(B, classes)`; None without references.
        output: what is explained.
        rank: whether `explainer` is ours to change.
    """

    def __init__(self, explainer: Any, given: _Given, logits: Tensor | None, output: Output, rank: bool) -> None:
        self.explainer, self.model, self.given, self.logits = explainer, explainer.model, given, logits
        self.of_probabilities = output == "probability" or self.model.tree_output == "probability"
        inner = self.model.children_left >= 0
        #: the thresholds of each feature
        self.cuts: dict[int, Array] = {}
        for feature in np.unique(self.model.features[inner]).tolist():
            self.cuts[feature] = np.unique(self.model.thresholds[inner & (self.model.features == feature)])
        compiled = explainer.feature_perturbation == "interventional" or self.model.model_type == "internal"
        self.ranked = rank and compiled and not np.any(self.model.threshold_types)
        if self.ranked:
            self._rank_thresholds(inner)

    def _rank_thresholds(self, inner: Array) -> None:
        """`x <= t` if and only if the number of thresholds below x is at most the number of those below t."""
        ranks = np.zeros_like(self.model.thresholds)
        for feature, cuts in self.cuts.items():
            at = inner & (self.model.features == feature)
            ranks[at] = np.searchsorted(cuts, self.model.thresholds[at])
        self.model.thresholds = ranks
        if self.explainer.data is not None:
            self.explainer.data = self._rank(self.explainer.data)

    def _rank(self, rows: Array) -> Array:
        rows = rows.astype(self.model.input_dtype)
        ranks = np.zeros_like(rows)
        for feature, cuts in self.cuts.items():
            ranks[:, feature] = np.searchsorted(cuts, rows[:, feature].astype(np.float64))
        return np.where(np.isnan(rows), rows, ranks)  # a missing value goes the way that the tree has for it

    def mix_rows(self, known: Array) -> Array:
        """Rows `(N, features)`, each feature drawn from that of `known` rows or from between and beyond thresholds."""
        generator = np.random.default_rng(0)
        mixed = generator.choice(known, _TRIED)
        for feature in range(known.shape[1]):
            cuts = self.cuts.get(feature, np.zeros(0))
            cuts = cuts[np.isfinite(cuts)]
            between = [cuts[:1] - 1, (cuts[1:] + cuts[:-1]) / 2, cuts[-1:] + 1]
            mixed[:, feature] = generator.choice(np.concatenate([*between, known[:, feature]]), _TRIED)
        return mixed

    def compute(self, rows: Array) -> Array:
        """Attributions `(N, features, outputs)`, float64."""
        with _silence():
            found = self.explainer.shap_values(self._rank(rows) if self.ranked else rows, check_additivity=False)
        values = np.asarray(found, dtype=np.float64)
        return values[..., None] if values.ndim == 2 else values

    def add_up(self, values: Array) -> Array:
        """What attributions `(N, features, outputs)` add up to, `(N, outputs)`."""
        sums = values.sum(1)
        if self.logits is not None and sums.shape[1] > 1 and not self.of_probabilities:
            # shap's own base is wrong for XGBoost with several classes; a constant for all classes cancels
            base = self.logits.double().log_softmax(1).mean(0).cpu().numpy()
        else:
            base = np.asarray(self.explainer.expected_value, dtype=np.float64).reshape(-1)
        return np.asarray(sums + base)

    def predict(self, sums: Array) -> Array:
        """The probabilities `(N, classes)` that belong to what attributions add up to, `(N, outputs)`."""
        if not self.of_probabilities:
            return _make_probabilities(sums)
        return np.concatenate([1 - sums, sums], axis=1) if sums.shape[1] == 1 else np.asarray(sums)


def _make_probabilities(sums: Array) -> Array:
    """Probabilities `(N, classes)` from log-odds `(N, 1)` or margins `(N, classes)`."""
    if sums.shape[1] == 1:
        sums = np.concatenate([-sums / 2, sums / 2], axis=1)
    shares = np.exp(sums - sums.max(1, keepdims=True))
    return np.asarray(shares / shares.sum(1, keepdims=True))


#: the trees of each model, read by each explainer
_TREES: WeakKeyDictionary[nn.Module, dict[tuple[TreeSHAPExplainer, int], _Trees]] = WeakKeyDictionary()


def _check_sums(label: str, sums: Array, predict: Callable[[Array], Array], logits: Tensor, model: Model) -> None:
    """Raise `ModelError` unless attributions add up to the numbers of the model, or to the logits of its classes.

    Args:
        label: of the explainer.
        sums: of the attributions, `(N, outputs)`.
        predict: the probabilities that belong to these.
        logits: of the model.
        model: which one.
    """
    name, task = module_name(model.module), model.task
    known = task.classes or isinstance(task, Regression | Binary)
    check(known, "model", f"classes, a binary task or a regression for {label}", f"the task {task.name}")
    if isinstance(task, Regression):
        own, found = logits.double().cpu().numpy(), sums
        own, found = own / (1 + np.abs(own)), found / (1 + np.abs(own))
    else:
        both = torch.cat([-logits / 2, logits / 2], 1) if isinstance(task, Binary) else logits
        own, found = both.double().softmax(1).cpu().numpy(), predict(sums)
    if found.shape != own.shape:
        raise ModelError(f"{label}: expected {own.shape[1]} classes, got {found.shape[1]} from the trees of {name}")
    difference = float(np.nan_to_num(np.abs(found - own)).max())
    if difference > _TOLERANCE:
        raise ModelError(
            f"{label}: expected attributions that add up to the answers of {name}, got probabilities that differ by up"
            f" to {difference:.3g}. Was it fitted again, or does it have splits or a loss that shap cannot read?"
        )


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Hide warnings of shap, and of estimators that shap calls."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
