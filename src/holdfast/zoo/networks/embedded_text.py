"""Text classifiers through their embeddings: inputs are token embeddings `(N, dim, T)`, a series of `dim` channels.

Tokens are discrete, so balls around a text and gradients by it are taken where the model first becomes continuous: at
the embeddings of its tokens. In that layout the library treats a text as a series: a position is a token, so segments
(`"windows"` of tokens, or each token by `"pixels"`), corruption curves over `"pixel"`s and maps of relevance are
by token, and attributions sum over channels to one number for each token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from holdfast.errors import ModelError, check
from holdfast.model import Bound, Classifier

#: the rest of a model: embeddings `(N, T, dim)` and which tokens are there, bool `(N, T)`, to logits
Rest = Callable[[nn.Module, Tensor, Tensor], Tensor]


class EmbeddedText(nn.Module):
    """A text classifier from the embeddings of its tokens on.

    A token whose embedding is that of `padding` is not there: it is masked out for the model. So the mask needs no
    input of its own and goes with each row, and an explainer that replaces a token by the padding's embedding removes
    it. A disturbance would bring padding into the text; with a `radius`, embeddings that near to the padding's are
    padding, too, so that a ball of at most that radius leaves padded places alone, and no real token becomes padding.
    (Along a path from the padding's embedding to a token's, the model then jumps where the token appears, which methods
    such as integrated gradients do not see.)

    Args:
        model: the user's; its layers keep their names, with `model.` before them.
        embedding: the layer that looks token ids up, one of the model's.
        rest: `(model, embeddings (N, T, dim), present bool (N, T)) -> logits (N, classes)`.
        padding: the token id that stands for no token; None if there is none.
        radius: the largest difference in any channel from the padding's embedding of what counts as padding, at most
            `separation`.

    Raises:
        ArgumentError: an embedding that is none, a padding id or a radius out of range.

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
        fine = padding is None or (type(padding) is int and 0 <= padding < len(weight))
        check(fine, "padding", f"None or a token id from 0 to {len(weight) - 1}", repr(padding))
        self.model = model
        self.rest = rest
        self.padding = padding
        self._embedding = [embedding]  # not a second child: it is one of the model's layers already
        self.training = model.training
        self.radius = float(radius)
        fine = 0 <= self.radius <= (0.0 if padding is None else self.separation)
        most = "0 without padding" if padding is None else f"{self.separation:g}, half-way to the nearest token"
        check(fine, "radius", f"a number from 0 to {most}", radius)

    @property
    def embedding(self) -> nn.Embedding:
        """The layer that looks token ids up."""
        return self._embedding[0]

    @property
    def separation(self) -> float:
        """Half the distance, in the largest of all channels, from the padding's embedding to the nearest other one."""
        distance = (self.embedding.weight.detach() - self._padding_row()).abs().amax(1)
        distance[self.padding] = float("inf")
        return float(distance.min()) / 2

    def embed(self, tokens: Tensor) -> Tensor:
        """Embeddings `(N, dim, T)`, detached, of token ids `(N, T)`: the inputs of this module.

        Raises:
            ArgumentError: ids that are no whole numbers, or out of range.
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
        """Which tokens of embeddings `(N, dim, T)` are there and no padding, bool `(N, T)`."""
        if self.padding is None:
            return torch.ones(x.shape[0], x.shape[2], dtype=torch.bool, device=x.device)
        nothing = self._padding_row().to(x)
        return ((x.detach() - nothing[:, None]).abs() > self.radius).any(1)

    def _padding_row(self) -> Tensor:
        assert self.padding is not None
        with torch.no_grad():
            row: Tensor = self.embedding(torch.tensor([self.padding], device=self.embedding.weight.device))[0]
        return row.detach()

    def baseline(self) -> tuple[float, ...]:
        """The embedding that stands for no token, a number for each channel: the padding's, or zeros.

        For options such as `baseline` of explainers that replace what they mask.
        """
        dim = self.embedding.weight.shape[1]
        return (0.0,) * dim if self.padding is None else tuple(self._padding_row().tolist())

    def bounds(self, margin: float = 0.5) -> tuple[Tensor, Tensor]:
        """The range of each channel over all tokens, `(dim, 1)` each, wider by `margin` times that range on each side.

        A neighbourhood within it stays where embeddings are, roughly. For no bounds: `(-inf, inf)`.
        """
        check(0 <= margin < float("inf"), "margin", "a finite number of at least 0", margin)
        lower, upper = self.embedding.weight.detach().aminmax(dim=0)
        room = (margin * (upper - lower)).clamp(min=1e-6)
        return (lower - room)[:, None], (upper + room)[:, None]

    def forward(self, x: Tensor) -> Tensor:
        """Logits of embeddings `(N, dim, T)`.

        Raises:
            ModelError: they are of another shape.
        """
        dim = self.embedding.weight.shape[1]
        if x.ndim != 3 or x.shape[1] != dim:
            raise ModelError(f"module: expected embeddings of shape (N, {dim}, tokens), got {tuple(x.shape)}")
        present = self.present(x)
        if self.radius:  # disturbed padding is padding
            x = torch.where(present[:, None], x, self._padding_row().to(x)[:, None])
        logits: Tensor = self.rest(self.model, x.transpose(1, 2), present)
        return logits


def from_text_transformers(model: nn.Module, padding: int | None = None, radius: float = 0.0) -> EmbeddedText:
    """A sequence classifier of Hugging Face's transformers, from the embeddings of its tokens on.

    Its word embeddings are the inputs; positions and token types are added by the model, which is called with
    `inputs_embeds` and the attention mask that goes with the padding.

    Args:
        model: such as `AutoModelForSequenceClassification.from_pretrained` gives.
        padding: the padding token's id; by default `model.config.pad_token_id`.
        radius: as of `EmbeddedText`.

    Raises:
        ArgumentError: a model without word embeddings of its own.
    """
    lookup = getattr(model, "get_input_embeddings", None)
    check(callable(lookup), "model", "a sequence classifier of transformers", type(model).__name__)
    assert lookup is not None
    if padding is None:
        padding = getattr(getattr(model, "config", None), "pad_token_id", None)
    return EmbeddedText(model, lookup(), _with_mask, padding, radius)


def _with_mask(model: nn.Module, embedded: Tensor, present: Tensor) -> Tensor:
    logits: Tensor = model(inputs_embeds=embedded, attention_mask=present.long()).logits
    return logits


def text_classifier(text: EmbeddedText, bounds: tuple[Bound, Bound] | None = None, **options: Any) -> Classifier:
    """A classifier over embeddings `(N, dim, T)`, with `text.bounds()` unless others are given.

    Args:
        text: the module.
        bounds: as of `Classifier`.
        options: of `Classifier`: `device`, `batch_size`.
    """
    return Classifier(text, text.bounds() if bounds is None else bounds, **options)


def token_relevance(maps: Tensor) -> Tensor:
    """One number for each token, `(N, T)`: the sum over channels of attributions `(N, dim, T)`.

    Methods that give all channels of a token the same value (LIME, KernelSHAP) repeat it; divide by `dim` to have it
    back.

    >>> token_relevance(torch.ones(1, 4, 3))
    tensor([[4., 4., 4.]])
    """
    return maps.sum(1)


def padded_batch(texts: Sequence[Sequence[int]], padding: int) -> Tensor:
    """Token ids `(N, T)` of texts of different lengths, filled up with `padding` at their ends.

    >>> padded_batch([[3, 4, 5], [6]], padding=0)
    tensor([[3, 4, 5],
            [6, 0, 0]])
    """
    fine = len(texts) > 0 and all(len(text) > 0 for text in texts)
    check(fine, "texts", "texts of at least one token", "an empty one")
    longest = max(len(text) for text in texts)
    return torch.tensor([[*text, *[padding] * (longest - len(text))] for text in texts])
