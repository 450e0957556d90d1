"""Explainers of models that read texts: by the embeddings of tokens, and functions of the user's."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from standfast.errors import ArgumentError, ModelError, StandfastError
from standfast.explainers.adapters.callables import check_parameters
from standfast.explainers.base import Explainer, Explanation, Measure, ValueScale
from standfast.input_types import find_input_types
from standfast.model import Model
from standfast.neighbourhoods.text import GONE, find_present
from standfast.tensors import widen_half
from standfast.texts import EmbeddedText, TextBox, TokenBatch, find_text_box, write_text
from standfast.texts.tokenizers import Tokens, assign_tokens

_EXPECTED = "expected the same logits from the embeddings of tokens as from their ids"
_HINT = (
    "Is there another layer of token embeddings (embedding=... of the model)? Explainers that need predictions alone do"
    " not need it"
)
#: how many texts are compared, by embeddings and by ids
_COMPARED = 8
#: the networks that gave the same logits from embeddings: of all tokens (True), or of those of the text (False)
_SAME: WeakKeyDictionary[TextBox, set[bool]] = WeakKeyDictionary()


@dataclass(frozen=True)
class TextExplainer(Explainer):
    """An explainer that needs gradients or layers, of a model that reads texts.

    It explains the embeddings of the tokens. A token's number is the sum over its embedding, or of plain gradients the
    norm; a word's is the sum over its tokens. What stands around a text, such as special tokens, is not explained and
    stays as it is. Where an option asks for a baseline, it is the embedding of what stands in the place of removed
    words.

    Args:
        explainer: of embeddings, `(N, dim, T)`.
    """

    explainer: Explainer
    name = "text"

    @property
    def rows_per_input(self) -> int:
        return self.explainer.rows_per_input

    @property
    def label(self) -> str:
        return self.explainer.label

    @property
    def has_signs(self) -> bool | None:  # type: ignore[override]
        """Norms of gradients have none."""
        if self.explainer.plain_gradient:
            return False
        return self.explainer.has_signs

    @property
    def measures(self) -> Measure:  # type: ignore[override]
        """A norm of gradients, or a sum of slopes, has no unit: embeddings have no meaning alone."""
        if self.explainer.plain_gradient or self.explainer.measures != "contribution":
            return "relevance"
        return "contribution"

    @property
    def scale_of_values(self) -> ValueScale:
        return self.explainer.scale_of_values

    def attribute(
        self, model: Model, x: Tensor, targets: Tensor | None, *, create_graph: bool = False
    ) -> Explanation:
        self._check_graph(create_graph)
        box, logits, classes = _predict(self.label, model, x, targets)
        rows, first, inverse = _find_different(x, classes)
        maps = torch.zeros(rows.shape, dtype=torch.float64, device=x.device)
        # the tokens around a text have attention, too
        around = self.explainer.follows_attention
        # texts may be filled up if the network runs at the text itself alone
        exact = not around and not self.explainer.at_inputs_alone
        for batch in box.cut(rows, around, exact=exact):
            embedded, engine = box.find_engine(
                batch, around, model.task, self.explainer.starts_at_logits
            )
            ids = batch.make_ids(box.network.padding, engine.device, inner=not around)
            embeddings = widen_half(embedded.embed(ids))
            firsts_of_batch = first[list(batch.rows)]
            explainer = self._set_baseline(box, embedded, model)
            try:
                with engine.session(), torch.enable_grad():
                    explained, at = explainer.attribute_all(
                        engine, embeddings, classes[firsts_of_batch].to(engine.device)
                    )
            except (StandfastError, torch.OutOfMemoryError, Warning):
                raise
            except Exception as error:  # whatever the user's module raises
                raise ModelError(
                    f"{self.label}: {_EXPECTED}, got {type(error).__name__}: {error}. {_HINT}"
                ) from error
            self._compare(box, around, at, logits[firsts_of_batch].to(at))
            # gradients sum to 0 over an embedding behind a layer normalisation
            if self.explainer.plain_gradient:
                values = explained.norm(dim=1).to(maps)
            else:
                values = _sum_channels(explained).to(maps)
            numbers = list(batch.rows)
            present = find_present(rows[numbers]).cpu().numpy()
            maps[numbers] = batch.sum_tokens(values, around, present, rows.shape[1])
        return maps[inverse].to(x.dtype), logits

    def _set_baseline(self, box: TextBox, embedded: EmbeddedText, model: Model) -> Explainer:
        """The explainer with the embedding of what stands in the place of removed words."""
        unset = []
        for option in self.explainer.removal_options:
            if getattr(self.explainer, option) is None:
                unset.append(option)
        if not unset or model.reference is None:
            return self.explainer
        code = float(model.reference.baseline[0])
        # words of the texts: no one of them stands for all
        if len(model.reference.rows) > 1:
            code = float(GONE)
        reading = box.reader.read(np.array([[code]]))[0]
        ids = reading.ids[reading.first : reading.last]
        number = box.network.padding
        if len(ids) == 1:
            number = int(ids[0])
        embeddings = embedded.embed(torch.tensor([[number]]))
        vector = embeddings[0, :, 0]
        return dataclasses.replace(self.explainer, **{unset[0]: tuple(vector.tolist())})  # type: ignore[type-var]

    def _compare(self, box: TextBox, around: bool, found: Tensor, expected: Tensor) -> None:
        """Raise `ModelError` unless embeddings give the logits that ids give, once for each network and way."""
        compared = _SAME.setdefault(box, set())
        if around in compared:
            return
        first = found[:_COMPARED].double()
        expected_logits = expected[:_COMPARED].double()
        precision = find_input_types(box.network.module)[0]
        largest = float(expected_logits.abs().max())
        allowed = torch.finfo(precision).eps ** (2 / 3) * largest
        if not torch.allclose(first, expected_logits, rtol=0, atol=allowed, equal_nan=True):
            difference = float((first - expected_logits).abs().max())
            got = f"differences of up to {difference:.2g}"
            raise ModelError(f"{self.label}: {_EXPECTED}, got {got}. {_HINT}")
        compared.add(around)


@dataclass(frozen=True)
class TextFunctionExplainer(Explainer):
    """An explainer that calls the user's function with strings.

    Args:
        function: of a function from a list of strings to probabilities `(n, classes)`, the texts, n strings, and the
            classes `(n,)`. It returns for each text a number for each of its words; or what `shap.Explainer` returns,
            with the pieces of the text as `data`.
        title: for tables and messages.

    Raises:
        ModelError: the function returns something else.
    """

    function: Callable[[Any, Any, Any], Any]
    title: str = "function"
    name = "text_function"

    def __post_init__(self) -> None:
        check_parameters(self.function, ("predict", "texts", "targets"))

    @property
    def label(self) -> str:
        return self.title

    def attribute(
        self, model: Model, x: Tensor, targets: Tensor | None, *, create_graph: bool = False
    ) -> Explanation:
        self._check_graph(create_graph)
        box, logits, classes = _predict(self.label, model, x, targets)
        rows, first, inverse = _find_different(x, classes)
        written = [write_text(row) for row in rows.tolist()]
        classes_of_batch = classes[first].cpu().numpy()
        texts = [words.text for words in written]
        explained = self.function(
            partial(box.predict_texts, task=model.task), texts, classes_of_batch
        )
        values = getattr(explained, "values", explained)
        pieces = getattr(explained, "data", None)
        if not hasattr(values, "__len__") or len(values) != len(texts):
            got = type(values).__name__
            if hasattr(values, "__len__"):
                got = str(len(values))
            expected = f"numbers for each of {len(texts)} texts"
            raise ModelError(f"{self.label}: expected {expected}, got {got}")
        maps = torch.zeros(rows.shape, dtype=torch.float64)
        for row, (map_, words) in enumerate(zip(values, written, strict=True)):
            numbers = torch.as_tensor(np.asarray(map_, dtype=np.float64))
            if numbers.ndim == 2:  # of all classes
                numbers = numbers[:, int(classes_of_batch[row])]
            there = words.ends > words.starts
            if pieces is not None:
                spans = []
                end = 0
                for piece in pieces[row]:
                    start = end
                    end = start + len(piece)
                    spans.append((start, end))
                count = len(spans)
                tokens = Tokens(range(count), spans, [False] * count)
                reading = assign_tokens(tokens, words, 0, None)
                batch = TokenBatch([row], [reading], count, None)
                sums = batch.sum_tokens(numbers[None], True, there[None], len(there))
                maps[row] = sums[0]
            elif len(numbers) == there.sum():
                maps[row, torch.from_numpy(there)] = numbers
            else:
                count_of_words = int(there.sum())
                got = f"{len(numbers)} for the {count_of_words} of {words.text!r}"
                hint = "standfast.texts.split_words gives them; punctuation marks are words, too"
                raise ModelError(
                    f"{self.label}: expected a number for each word of a text, got {got} ({hint})"
                )
        return maps[inverse.cpu()].to(x), logits


def _predict(
    label: str, model: Model, x: Tensor, targets: Tensor | None
) -> tuple[TextBox, Tensor, Tensor]:
    """The box of a model of texts, its logits, and what is explained."""
    box = find_text_box(model)
    if box is None:
        raise ArgumentError(
            "model", f"one that reads texts (TextModel), for {label}", "another one"
        )
    with torch.no_grad():
        logits = model.forward(x.detach())
    if targets is None:
        targets = model.task.answer(logits)
    return box, logits, targets


def _find_different(x: Tensor, classes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The different texts, given what is explained; the place of one row of each, and of each row's text among them."""
    answers = classes.reshape(len(classes), -1).to(x)
    asked_of_rows = torch.cat([x, answers], 1).cpu().numpy()
    _, firsts, inverse = np.unique(asked_of_rows, axis=0, return_index=True, return_inverse=True)
    first = torch.from_numpy(firsts.reshape(-1)).to(x.device)
    back = torch.from_numpy(inverse.reshape(-1)).to(x.device)
    return x[first], first, back


def _sum_channels(maps: Tensor) -> Tensor:
    """A number for each token of maps `(n, dim, T)`: the sum over channels, or what all of them have in common."""
    first = maps[:, 0]
    is_same = (maps == first[:, None]).all(1)
    return torch.where(is_same, first, maps.sum(1))


def fit_text_explainer(
    explainer: Any, title: Callable[[Any], str], get: Callable[[Any], Explainer]
) -> Explainer:
    """An explainer of texts: of embeddings where it needs gradients, else of words.

    Args:
        explainer: a name, an explainer or a function of the user's.
        title: the name of such a function.
        get: from names to explainers.
    """
    if not isinstance(explainer, str | Explainer | type) and callable(explainer):
        return TextFunctionExplainer(explainer, title(explainer))
    if isinstance(explainer, type):
        explainer = explainer()
    fitted = get(explainer)
    inner = getattr(fitted, "explainer", None)
    if isinstance(inner, Explainer):  # such as the control with random weights
        return dataclasses.replace(fitted, explainer=fit_text_explainer(inner, title, get))  # type: ignore[type-var]
    if fitted.needs.module:
        return TextExplainer(fitted)
    if getattr(fitted, "segments", None) == "auto":
        return dataclasses.replace(fitted, segments="pixels")  # type: ignore[type-var]
    return fitted
