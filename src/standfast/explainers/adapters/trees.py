"""Trees of a fitted estimator: read once by the package `shap`, for any number of backgrounds.

What depends on the trees alone (their splits, ranks of thresholds) is kept for each model. What depends on the rows of
a background (their ranks, the mean answer) is made for each set of rows, which takes about a millisecond, and the last
few of these are kept. They are found by the values of their rows.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import warnings
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from standfast.frames.encoded import Encoding
from standfast.model import Model, Output
from standfast.tensors import Array

#: rows on which trees are compared with the model, once
_TRIED = 128
#: sets of background rows that are kept for each model
_MOST_GAMES = 4


@dataclass(frozen=True, eq=False)
class TreeSource:
    """What trees are read from. It does not hold the model that is explained, which would never be freed.

    Attributes:
        estimator: that has them.
        encoding: how rows of a data frame reach it; None where they do as they are.
        encoded_model: of the estimator alone, on encoded columns; None where that is the model that is explained.
        shift: what the model adds to the trees' sums, so that a classifier with a threshold of its own decides at 0.
        gives_numbers: whether it is a regressor.
    """

    estimator: object
    encoding: Encoding | None
    encoded_model: Model | None
    shift: float
    gives_numbers: bool

    def encode(self, rows: Tensor) -> Array:
        """Rows as the trees get them, `(N, E)`."""
        if self.encoding is None:
            return rows.cpu().numpy()
        return self.encoding.encode(rows)

    def find_model(self, model: Model) -> Model:
        """The model of the trees alone, for the model that is explained."""
        if self.encoded_model is None:
            return model
        return self.encoded_model

    def predict(self, model: Model, encoded: Array) -> Tensor:
        """Logits of the trees' own model at encoded rows, for the model that is explained; they count as no input."""
        rows = torch.as_tensor(encoded, dtype=model.dtype, device=model.device)
        own_model = self.find_model(model)
        with silence(), torch.no_grad():
            (logits,) = own_model.map_rows(
                lambda part: (own_model.forward(part),), rows, evaluations=0
            )
        return logits


class Trees:
    """A `shap.TreeExplainer`, with ranks in place of features and thresholds where its own compiled code runs.

    Args:
        explainer: of shap; it stays as it is.
        source: what the trees were read from.
        output: what is explained.
        rank: whether ranks may take the place of thresholds.
    """

    def __init__(self, explainer: Any, source: TreeSource, output: Output, rank: bool) -> None:
        self.source = source
        #: the ensemble as shap has read it
        self.ensemble = explainer.model
        self.of_probabilities = (
            output == "probability" or self.ensemble.tree_output == "probability"
        )
        # shap writes -1 for the children of a leaf
        inner = self.ensemble.children_left >= 0
        #: the thresholds of each feature
        self.cuts: dict[int, Array] = {}
        for feature in np.unique(self.ensemble.features[inner]).tolist():
            self.cuts[feature] = np.unique(
                self.ensemble.thresholds[inner & (self.ensemble.features == feature)]
            )
        compiled = (
            explainer.feature_perturbation == "interventional"
            or self.ensemble.model_type == "internal"
        )
        self.ranked = rank and compiled and not np.any(self.ensemble.threshold_types)
        self._explainer = explainer
        if self.ranked:
            self._explainer = copy.copy(explainer)
            self._explainer.model = copy.copy(self.ensemble)
            self._explainer.model.thresholds = self._rank_thresholds(inner)

    def _rank_thresholds(self, inner: Array) -> Array:
        """`x <= t` if and only if the number of thresholds below x is at most the number of those below t."""
        thresholds = self.ensemble.thresholds
        ranks: Array = np.zeros_like(thresholds)
        for feature, cuts in self.cuts.items():
            at = inner & (self.ensemble.features == feature)
            ranks[at] = np.searchsorted(cuts, thresholds[at])
        return ranks

    def rank(self, rows: Array) -> Array:
        """Encoded rows `(N, E)` as the compiled code gets them."""
        if not self.ranked:
            return rows
        # shap rounds rows to this type before it compares them with thresholds
        rows = rows.astype(self.ensemble.input_dtype)
        ranks = np.zeros_like(rows)
        for feature, cuts in self.cuts.items():
            values = rows[:, feature].astype(np.float64)
            ranks[:, feature] = np.searchsorted(cuts, values)
        # a missing value goes the way that the tree has for it
        is_missing = np.isnan(rows)
        return np.asarray(np.where(is_missing, rows, ranks))

    def with_own_background(self, logits: Tensor | None) -> TreeGame:
        """The game with what shap's explainer was made with: rows with these logits `(B, classes)`, or none."""
        return TreeGame(self, self._explainer, logits)

    def with_background(self, references: Array, logits: Tensor) -> TreeGame:
        """The game with these encoded rows `(B, E)`, at which the model has these logits `(B, classes)`."""
        explainer = copy.copy(self._explainer)
        explainer.data = self.rank(references)
        explainer.data_missing = np.isnan(references)
        explainer.expected_value = self._average(references)
        return TreeGame(self, explainer, logits)

    def _average(self, references: Array) -> Array:
        """The mean of what the trees answer for references, as shap has it: `(outputs,)`."""
        answers = self.ensemble.predict(references)
        expected = np.asarray(answers.mean(0)).reshape(-1)
        if self.ensemble.model_output == "probability_doubled":
            return np.concatenate([1 - expected, expected])
        return expected

    def mix_rows(self, known: Array) -> Array:
        """Rows `(N, features)`, each feature drawn from that of `known` rows or from between and beyond thresholds."""
        generator = np.random.default_rng(0)
        mixed = generator.choice(known, _TRIED)
        for feature in range(known.shape[1]):
            cuts = self.cuts.get(feature, np.zeros(0))
            cuts = cuts[np.isfinite(cuts)]
            middles = (cuts[1:] + cuts[:-1]) / 2
            below = cuts[:1] - 1
            above = cuts[-1:] + 1
            values = np.concatenate([below, middles, above, known[:, feature]])
            mixed[:, feature] = generator.choice(values, _TRIED)
        return mixed

    def predict(self, sums: Array) -> Array:
        """The probabilities `(N, classes)` that belong to what attributions add up to, `(N, outputs)`."""
        if not self.of_probabilities:
            return make_probabilities(sums)
        if sums.shape[1] == 1:
            return np.concatenate([1 - sums, sums], axis=1)
        return np.asarray(sums)


class TreeGame:
    """The game whose Shapley values are computed: trees, and what stands for the features outside of a coalition.

    Args:
        trees: of the model.
        explainer: of shap, with its background.
        logits: of the model at the background rows `(B, classes)`; None without any.
    """

    def __init__(self, trees: Trees, explainer: Any, logits: Tensor | None) -> None:
        self.trees = trees
        self._explainer = explainer
        self._logits = logits

    def compute(self, rows: Array) -> Array:
        """Attributions `(N, features, outputs)` of encoded rows, float64. Equal rows are computed once."""
        different = number_rows(rows)
        firsts = [numbers[0] for numbers in different.values()]
        ranked = self.trees.rank(rows[firsts])
        with silence():
            values_of_rows = self._explainer.shap_values(ranked, check_additivity=False)
        computed = np.asarray(values_of_rows, dtype=np.float64)
        values = np.empty((len(rows), *computed.shape[1:]))
        for number, numbers in enumerate(different.values()):
            values[numbers] = computed[number]
        # shap leaves the axis of a single output out
        if values.ndim == 2:
            return values[..., None]
        return values

    @property
    def base(self) -> Array:
        """What attributions are added to, `(outputs,)`: the mean over the references, or over the training rows.

        A threshold of scores shifts it, and no attribution.
        """
        source = self.trees.source
        expected = np.asarray(self._explainer.expected_value, dtype=np.float64)
        outputs = expected.reshape(-1) + source.shift
        if self._logits is None or self.trees.of_probabilities:
            return outputs
        logits = self._logits.double()
        if source.gives_numbers:  # shap's own base is wrong for CatBoost
            return np.asarray(logits.mean(0).cpu().numpy())
        if len(outputs) > 1:
            # shap's own base is wrong for XGBoost with several classes; a constant for all classes cancels
            return np.asarray(logits.log_softmax(1).mean(0).cpu().numpy())
        return outputs


class TreeReading:
    """The trees of one model, the games with the last few backgrounds, and rows that were prepared.

    Args:
        trees: of the model.
        own_logits: of the model at the rows that shap's explainer was made with by the user; None without any.
    """

    def __init__(self, trees: Trees, own_logits: Tensor | None) -> None:
        self.trees = trees
        self._own_logits = own_logits
        self._games: OrderedDict[bytes, TreeGame] = OrderedDict()
        self._inputs: KnownRows | None = None
        self._references: KnownRows | None = None

    def find_game(self, model: Model, references: Tensor | None) -> TreeGame:
        """The game of a model of these trees with background rows `(B, F)`; None for what shap's explainer has."""
        key = b"" if references is None else _digest(references)
        game = self._games.get(key)
        if game is None:
            game = self._make_game(model, references)
        self._games[key] = game
        self._games.move_to_end(key)
        while len(self._games) > _MOST_GAMES:
            self._games.popitem(last=False)
        return game

    def _make_game(self, model: Model, references: Tensor | None) -> TreeGame:
        if references is None:
            return self.trees.with_own_background(self._own_logits)
        prepared = None
        if self._references is not None:
            prepared = self._references.find(references)
        if prepared is None:
            encoded = self.trees.source.encode(references)
            logits = self.trees.source.predict(model, encoded)
        else:
            encoded_rows, logits = prepared
            encoded = encoded_rows.numpy()
        return self.trees.with_background(encoded, logits)

    def encode(self, x: Tensor) -> Array:
        """Inputs `(N, F)` as the trees get them, `(N, E)`.

        Raises:
            ArgumentError: an encoded column depends on two of the user's.
        """
        prepared = None if self._inputs is None else self._inputs.find(x)
        if prepared is not None:
            return np.asarray(prepared[0].numpy())
        source = self.trees.source
        encoded = source.encode(x)
        if source.encoding is not None:
            source.encoding.check_rows(x, encoded)
        return encoded

    def find_outputs(self, x: Tensor) -> Tensor | None:
        """What the module answers to inputs `(N, F)`, `(N, ...)`; None where it was not asked before."""
        if self._inputs is None:
            return None
        prepared = self._inputs.find(x)
        if prepared is None:
            return None
        _, outputs = prepared
        return outputs

    @contextlib.contextmanager
    def preparing(self, model: Model, x: Tensor, references: Tensor) -> Iterator[None]:
        """Inside, inputs `(N, F)` and background rows `(B, F)` are known, each encoded and predicted with the others.

        They are forgotten afterwards, since the estimator may be fitted again.
        """
        before = self._inputs, self._references
        reader = model.undecided
        source = self.trees.source
        different_inputs = x[_find_firsts(x)]
        different_rows = references[_find_firsts(references)]

        def run(rows: Tensor) -> tuple[Tensor, Tensor]:
            return torch.as_tensor(self.encode(rows)), reader.forward(rows)

        with torch.no_grad():
            columns = reader.map_rows(run, different_inputs, evaluations=0)
        encoded = source.encode(different_rows)
        self._inputs = KnownRows(different_inputs, columns)
        logits = source.predict(model, encoded)
        self._references = KnownRows(different_rows, (torch.as_tensor(encoded), logits))
        try:
            yield
        finally:
            self._inputs, self._references = before


class KnownRows:
    """Rows `(N, F)` of which something is known: tensors `(N, ...)`."""

    def __init__(self, rows: Tensor, columns: tuple[Tensor, ...]) -> None:
        self._numbers: dict[bytes, int] = {}
        for row, numbers in number_rows(rows.cpu().numpy()).items():
            self._numbers[row] = numbers[0]
        self._columns = columns

    def find(self, rows: Tensor) -> tuple[Tensor, ...] | None:
        """What is known of rows `(M, F)`, tensors `(M, ...)`; None unless all are known.

        >>> known = KnownRows(torch.eye(2), (torch.tensor([5, 7]),))
        >>> known.find(torch.tensor([[0.0, 1.0], [0.0, 1.0]])), known.find(torch.zeros(1, 2))
        ((tensor([7, 7]),), None)
        """
        numbers: list[int] = []
        for row in np.ascontiguousarray(rows.detach().cpu().numpy()):
            number = self._numbers.get(row.tobytes())
            if number is None:
                return None
            numbers.append(number)
        return tuple(column[numbers] for column in self._columns)


def number_rows(rows: Array) -> dict[bytes, list[int]]:
    """The places of each of the different rows `(N, F)`, by its bytes, in the order in which they come.

    >>> list(number_rows(np.array([[1.0], [2.0], [1.0]])).values())
    [[0, 2], [1]]
    """
    numbers: dict[bytes, list[int]] = {}
    for number, row in enumerate(np.ascontiguousarray(rows)):
        numbers.setdefault(row.tobytes(), []).append(number)
    return numbers


def _find_firsts(rows: Tensor) -> list[int]:
    """The first place of each of the different rows `(N, F)`."""
    numbers_of_rows = number_rows(rows.cpu().numpy())
    return [numbers[0] for numbers in numbers_of_rows.values()]


def _digest(rows: Tensor) -> bytes:
    """Of the values of rows `(B, F)`, their type and their shape."""
    header = f"{rows.dtype} {tuple(rows.shape)} ".encode()
    values = rows.detach().cpu().contiguous().numpy()
    return hashlib.sha256(header + values.tobytes()).digest()


def make_probabilities(sums: Array) -> Array:
    """Probabilities `(N, classes)` from log-odds `(N, 1)` or margins `(N, classes)`."""
    if sums.shape[1] == 1:
        sums = np.concatenate([-sums / 2, sums / 2], axis=1)
    largest = sums.max(1, keepdims=True)
    shares = np.exp(sums - largest)
    total = shares.sum(1, keepdims=True)
    return np.asarray(shares / total)


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Hide warnings of shap, and of estimators that shap calls."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
