"""Text classifiers whose inputs are token embeddings `(N, dim, T)`, treated as a series of `dim` channels.

Tokens are discrete. So balls around a text, and gradients by it, are defined where the model first becomes continuous:
at the embeddings of its tokens. The library then treats a text as a series, where a position is a token. Segments
(`"windows"` of tokens, or single tokens by `"pixels"`), corruption curves over `"pixel"`s and attribution maps are by
token. The sum of attributions over channels gives one number for each token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from holdfast.errors import ModelError, as_number, check
from holdfast.model import Bound, Classifier

#: the rest of a model: from embeddings `(N, T, dim)` and which tokens are present, bool `(N, T)`, to logits
Rest = Callable[[nn.Module, Tensor, Tensor], Tensor]


class EmbeddedText(nn.Module):
    """A text classifier without its embedding layer: its inputs are the embeddings of tokens.

    A token with the embedding of `padding` is absent: the model masks it out. So the mask needs no input of its own,
    and an explainer that replaces a token by the padding's embedding removes the token.

    A perturbation would turn padding into tokens. To prevent that, choose a `radius`: embeddings within this distance
    of the padding's embedding also count as padding. So a ball of at most this radius does not change padded positions,
    and no real token becomes padding. The model is then discontinuous on a path from the padding's embedding to a
    token's: it jumps where the token appears. Methods such as integrated gradients do not see that jump.

    Args:
        model: the user's model; its layers keep their names, with `model.` before them.
        embedding: the layer of the model that maps token ids to embeddings.
        rest: `(model, embeddings (N, T, dim), present bool (N, T)) -> logits (N, classes)`.
        padding: the token id that stands for no token; None if there is none.
        radius: the largest difference, in any channel, from the padding's embedding at which an embedding counts as
            padding; at most `separation`.

    Raises:
        ArgumentError: no embedding layer, or a padding id or a radius out of range.

    >>> _ = torch.manual_seed(0)
    >>> model = nn.ModuleDict({"words": nn.Embedding(9, 4, padding_idx=0), "head": nn.Linear(4, 2)})
    >>> def rest(model, embedded, present):
    ...     return model["head"]((embedded * present[..., None]).sum(1) / present.sum(1, keepdim=True).clamp(min=1))
    >>> text = EmbeddedText(model, model["words"], rest, padding=0)
    >>> x = text.embed(torch.tensor([[3, 5, 0]]))
    >>> x.shape, text.present(x).tolist()
    (torch.Size([1, 4, 3]), [[True, True, False]])
    >>> short = text.embed(torch.tensor([[3, 5]]))
    >>> bool(torch.allclose(text(x), text(short)))
    True
    """

    def __init__(
        self, model: nn.Module, embedding: nn.Embedding, rest: Rest, padding: int | None = None, radius: float = 0.0
    ) -> None:
        super().__init__()
        weight = getattr(embedding, "weight", None)
        fine = isinstance(weight, Tensor) and weight.ndim == 2
        check(fine, "embedding", "an embedding layer with a weight (tokens, dim)", type(embedding).__name__)
        assert isinstance(weight, Tensor)
        check(callable(rest), "rest", "a callable (model, embeddings, present) -> logits", type(rest).__name__)
        fine = padding is None or (type(as_number(padding)) is int and 0 <= padding < len(weight))
        check(fine, "padding", f"None or a token id from 0 to {len(weight) - 1}", repr(padding))
        self.model = model
        self.rest = rest
        self.padding = padding
        self._embedding = [embedding]  # in a list, since it is registered already, as a layer of the model
        self.training = model.training
        self.radius = float(radius)
        fine = 0 <= self.radius <= (0.0 if padding is None else self.separation)
        most = "0 without padding" if padding is None else f"{self.separation:g}, half-way to the nearest token"
        check(fine, "radius", f"a number from 0 to {most}", radius)

    @property
    def embedding(self) -> nn.Embedding:
        """The layer that maps token ids to embeddings."""
        return self._embedding[0]

    @property
    def separation(self) -> float:
        """Half the distance (in the maximum norm) between the padding's embedding and the nearest other one."""
        distance = (self.embedding.weight.detach() - self._embed_padding()).abs().amax(1)
        distance[self.padding] = float("inf")
        return float(distance.min()) / 2

    def embed(self, tokens: Tensor) -> Tensor:
        """Embeddings `(N, dim, T)`, detached, of token ids `(N, T)`: the inputs of this module.

        Raises:
            ArgumentError: ids that are not whole numbers, or out of range.
        """
        weight = self.embedding.weight
        fine = tokens.ndim == 2 and tokens.dtype in (torch.int64, torch.int32) and tokens.numel() > 0
        check(fine, "tokens", "token ids (N, T), whole numbers", f"{tokens.dtype} of shape {tuple(tokens.shape)}")
        least, most = int(tokens.min()), int(tokens.max())
        check(least >= 0 and most < len(weight), "tokens", f"ids from 0 to {len(weight) - 1}", f"{least} to {most}")
        with torch.no_grad():
            found: Tensor = self.embedding(tokens.to(weight.device))
        return found.detach().transpose(1, 2).contiguous()

    def present(self, x: Tensor) -> Tensor:
        """Which tokens of embeddings `(N, dim, T)` are present, that is not padding: bool `(N, T)`."""
        if self.padding is None:
            return torch.ones(x.shape[0], x.shape[2], dtype=torch.bool, device=x.device)
        padding = self._embed_padding().to(x)
        return ((x.detach() - padding[:, None]).abs() > self.radius).any(1)

    def _embed_padding(self) -> Tensor:
        assert self.padding is not None
        with torch.no_grad():
            row: Tensor = self.embedding(torch.tensor([self.padding], device=self.embedding.weight.device))[0]
        return row.detach()

    def baseline(self) -> tuple[float, ...]:
        """The embedding that stands for no token, a number for each channel: that of the padding, or zeros.

        For the option `baseline` of explainers and metrics that replace masked tokens.
        """
        dim = self.embedding.weight.shape[1]
        return (0.0,) * dim if self.padding is None else tuple(self._embed_padding().tolist())

    def bounds(self, margin: float = 0.5) -> tuple[Tensor, Tensor]:
        """Lower and upper bounds `(dim, 1)`: the range of each channel over all tokens, plus `margin` times it.

        The margin is added on both sides. A neighbourhood within these bounds stays roughly where embeddings are. For a
        classifier without bounds use `(-inf, inf)`.
        """
        check(0 <= margin < float("inf"), "margin", "a finite number of at least 0", margin)
        lower, upper = self.embedding.weight.detach().aminmax(dim=0)
        room = (margin * (upper - lower)).clamp(min=1e-6)
        return (lower - room)[:, None], (upper + room)[:, None]

    def forward(self, x: Tensor) -> Tensor:
        """Logits of embeddings `(N, dim, T)`.

        Raises:
            ModelError: the embeddings have another shape.
        """
        dim = self.embedding.weight.shape[1]
        if x.ndim != 3 or x.shape[1] != dim:
            raise ModelError(f"module: expected embeddings of shape (N, {dim}, tokens), got {tuple(x.shape)}")
        present = self.present(x)
        if self.radius:  # perturbed padding is padding
            x = torch.where(present[:, None], x, self._embed_padding().to(x)[:, None])
        logits: Tensor = self.rest(self.model, x.transpose(1, 2), present)
        return logits


def from_text_transformers(model: nn.Module, padding: int | None = None, radius: float = 0.0) -> EmbeddedText:
    """A sequence classifier of Hugging Face's transformers whose inputs are the embeddings of tokens.

    The inputs are its word embeddings; the model adds those of positions and token types. It is called with
    `inputs_embeds`, and with an attention mask that masks padding.

    Args:
        model: for example from `AutoModelForSequenceClassification.from_pretrained`.
        padding: the padding token's id; by default `model.config.pad_token_id`.
        radius: as for `EmbeddedText`.

    Raises:
        ArgumentError: a model without word embeddings.
    """
    lookup = getattr(model, "get_input_embeddings", None)
    check(callable(lookup), "model", "a sequence classifier of transformers", type(model).__name__)
    assert lookup is not None
    if padding is None:
        padding = getattr(getattr(model, "config", None), "pad_token_id", None)
    return EmbeddedText(model, lookup(), _forward_with_mask, padding, radius)


def _forward_with_mask(model: nn.Module, embedded: Tensor, present: Tensor) -> Tensor:
    logits: Tensor = model(inputs_embeds=embedded, attention_mask=present.long()).logits
    return logits


def text_classifier(text: EmbeddedText, bounds: tuple[Bound, Bound] | None = None, **options: Any) -> Classifier:
    """A classifier of embeddings `(N, dim, T)`.

    Args:
        text: the module.
        bounds: as for `Classifier`; by default `text.bounds()`.
        options: of `Classifier`: `device`, `batch_size`.
    """
    return Classifier(text, text.bounds() if bounds is None else bounds, **options)


def token_relevance(maps: Tensor) -> Tensor:
    """One number for each token, `(N, T)`: the sum over channels of attributions `(N, dim, T)`.

    LIME, KernelSHAP and others give all channels of a token the same value. The sum is then `dim` times that value;
    divide by `dim`.

    >>> token_relevance(torch.ones(1, 4, 3))
    tensor([[4., 4., 4.]])
    """
    return maps.sum(1)


def padded_batch(texts: Sequence[Sequence[int]], padding: int) -> Tensor:
    """Token ids `(N, T)` of texts with different lengths, with `padding` at their ends.

    >>> padded_batch([[3, 4, 5], [6]], padding=0)
    tensor([[3, 4, 5],
            [6, 0, 0]])
    """
    fine = len(texts) > 0 and all(len(text) > 0 for text in texts)
    check(fine, "texts", "texts of at least one token", "an empty text")
    longest = max(len(text) for text in texts)
    return torch.tensor([[*text, *[padding] * (longest - len(text))] for text in texts])
