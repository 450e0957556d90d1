"""Text classifiers whose inputs are token embeddings `(N, dim, T)`, treated as a series of `dim` channels.

Tokens are discrete. So balls around a text, and gradients by it, are defined where the model first becomes continuous:
at the embeddings of its tokens. The library then treats a text as a series, where a position is a token. Segments
(`"windows"` of tokens, or single tokens by `"pixels"`), corruption curves over `"pixel"`s and attribution maps are by
token. The sum of attributions over channels gives one number for each token.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from standfast.errors import ArgumentError, ModelError, as_number, check
from standfast.function_calls import run_eagerly
from standfast.model import Model

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
        self,
        model: nn.Module,
        embedding: nn.Embedding,
        rest: Rest,
        padding: int | None = None,
        radius: float = 0.0,
    ) -> None:
        super().__init__()
        weight = getattr(embedding, "weight", None)
        fine = isinstance(weight, Tensor) and weight.ndim == 2
        check(
            fine,
            "embedding",
            "an embedding layer with a weight (tokens, dim)",
            type(embedding).__name__,
        )
        assert isinstance(weight, Tensor)
        check(
            callable(rest),
            "rest",
            "a callable (model, embeddings, present) -> logits",
            type(rest).__name__,
        )
        most_padding = len(weight) - 1
        is_id = type(as_number(padding)) is int
        fine = padding is None or (is_id and 0 <= padding <= most_padding)
        check(fine, "padding", f"None or a token id from 0 to {most_padding}", repr(padding))
        self.model = model
        self.rest = rest
        self.padding = padding
        # in a list, since it is registered already, as a layer of the model
        self._embedding = [embedding]
        self.training = model.training
        self.radius = float(radius)
        largest = 0.0 if padding is None else self.separation
        fine = 0 <= self.radius <= largest
        if padding is None:
            most = "0 without padding"
        else:
            most = f"{self.separation:g}, half-way to the nearest token"
        check(fine, "radius", f"a number from 0 to {most}", radius)

    @property
    def embedding(self) -> nn.Embedding:
        """The layer that maps token ids to embeddings."""
        return self._embedding[0]

    @property
    def separation(self) -> float:
        """Half the distance (in the maximum norm) between the padding's embedding and the nearest other one."""
        distance = (self._embed_all() - self._embed_padding()).abs().amax(1)
        distance[self.padding] = float("inf")
        return float(distance.min()) / 2

    def embed(self, tokens: Tensor) -> Tensor:
        """Embeddings `(N, dim, T)`, detached, of token ids `(N, T)`: the inputs of this module.

        Raises:
            ArgumentError: ids that are not whole numbers, or out of range.
        """
        weight = self.embedding.weight
        fine = (
            tokens.ndim == 2 and tokens.dtype in (torch.int64, torch.int32) and tokens.numel() > 0
        )
        check(
            fine,
            "tokens",
            "token ids (N, T), whole numbers",
            f"{tokens.dtype} of shape {tuple(tokens.shape)}",
        )
        least = int(tokens.min())
        most = int(tokens.max())
        check(
            least >= 0 and most < len(weight),
            "tokens",
            f"ids from 0 to {len(weight) - 1}",
            f"{least} to {most}",
        )
        return self._look_up(tokens).transpose(1, 2).contiguous()

    def present(self, x: Tensor) -> Tensor:
        """Which tokens of embeddings `(N, dim, T)` are present, that is not padding: bool `(N, T)`."""
        if self.padding is None:
            count, _, tokens = x.shape
            return torch.ones(count, tokens, dtype=torch.bool, device=x.device)
        padding = self._embed_padding().to(x)
        distance = (x.detach() - padding[:, None]).abs()
        return (distance > self.radius).any(1)

    def _embed_padding(self) -> Tensor:
        assert self.padding is not None
        return self._look_up(torch.tensor([self.padding]))[0]

    def _embed_all(self) -> Tensor:
        """The embeddings of all tokens, `(V, dim)`."""
        return self._look_up(torch.arange(len(self.embedding.weight)))

    def _look_up(self, tokens: Tensor) -> Tensor:
        """What the layer returns for ids `(...)`; it may scale its weight."""
        with torch.no_grad():
            embeddings: Tensor = self.embedding(tokens.to(self.embedding.weight.device))
        return embeddings.detach()

    def baseline(self) -> tuple[float, ...]:
        """The embedding that stands for no token, a number for each channel: that of the padding, or zeros.

        For the option `baseline` of explainers and metrics that replace masked tokens.
        """
        dim = self.embedding.weight.shape[1]
        if self.padding is None:
            return (0.0,) * dim
        return tuple(self._embed_padding().tolist())

    def bounds(self, margin: float = 0.5) -> tuple[Tensor, Tensor]:
        """Lower and upper bounds `(dim, 1)`: the range of each channel over all tokens, plus `margin` times it.

        The margin is added on both sides. A neighbourhood within these bounds stays roughly where embeddings are. For a
        classifier without bounds use `(-inf, inf)`.
        """
        check(0 <= margin < float("inf"), "margin", "a finite number of at least 0", margin)
        lower, upper = self._embed_all().aminmax(dim=0)
        room = (margin * (upper - lower)).clamp(min=1e-6)
        return (lower - room)[:, None], (upper + room)[:, None]

    def forward(self, x: Tensor) -> Tensor:
        """Logits of embeddings `(N, dim, T)`.

        Raises:
            ModelError: the embeddings have another shape.
        """
        dim = self.embedding.weight.shape[1]
        if x.ndim != 3 or x.shape[1] != dim:
            raise ModelError(
                f"module: expected embeddings of shape (N, {dim}, tokens), got {tuple(x.shape)}"
            )
        present = self.present(x)
        if self.radius:  # perturbed padding is padding
            padding = self._embed_padding().to(x)
            x = torch.where(present[:, None], x, padding[:, None])
        logits: Tensor = self.rest(self.model, x.transpose(1, 2), present)
        return logits


class TransformersText(EmbeddedText):
    """A sequence classifier of Hugging Face's transformers whose inputs are the embeddings of tokens.

    The inputs are its word embeddings; the model adds those of positions and token types. Encoders and decoders are
    taken. Models of an encoder and a decoder (T5, BART) are refused, since both read the tokens.

    Its logits are those of `model(input_ids, attention_mask)`, wherever the padding is. This is compared when it is
    made, on four short texts of the vocabulary, and in `embed` on the user's own.

    The model is called with `inputs_embeds` if that gives the same logits. Some models have to see which tokens are
    padding: a decoder reads the last other token, and positions may be counted without padding. They get token ids, of
    which only padding is true, and the embeddings in place of what their embedding layer returns.

    Args:
        model: for example from `AutoModelForSequenceClassification.from_pretrained`.
        padding: the padding token's id; by default `model.config.pad_token_id`.
        radius: as for `EmbeddedText`.

    Raises:
        ArgumentError: a model without word embeddings.
        ModelError: the model gives other logits from embeddings than from token ids.

    >>> from types import SimpleNamespace
    >>> class LastToken(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.words, self.config = nn.Embedding(9, 3, padding_idx=0), SimpleNamespace(pad_token_id=0)
    ...     def get_input_embeddings(self):
    ...         return self.words
    ...     def forward(self, input_ids, attention_mask):
    ...         last = (input_ids.ne(0) * torch.arange(input_ids.shape[1])).argmax(1)
    ...         return SimpleNamespace(logits=self.words(input_ids)[torch.arange(len(last)), last])
    >>> model = LastToken()
    >>> text = TransformersText(model)
    >>> torch.equal(text(text.embed(torch.tensor([[3, 5, 0]]))), model.words(torch.tensor([5])))
    True
    """

    def __init__(self, model: nn.Module, padding: int | None = None, radius: float = 0.0) -> None:
        try:
            embedding = model.get_input_embeddings()  # type: ignore[operator]
        except (AttributeError, NotImplementedError) as error:
            raise ArgumentError(
                "model", "a sequence classifier of transformers", type(model).__name__
            ) from error
        own_padding = getattr(getattr(model, "config", None), "pad_token_id", None)
        if padding is None:
            padding = own_padding
        super().__init__(model, embedding, _forward_embeddings, padding, radius)
        #: the id of absent tokens, or one that no token has; and the one by which the model knows them
        if self.padding is None:
            self._absent = -1
        else:
            self._absent = self.padding
        self._unread = self._absent if own_padding is None else own_padding
        #: kinds of batches that were compared: (with padding, with token types)
        self._compared: set[tuple[bool, bool]] = set()
        words = torch.arange(len(embedding.weight), device=embedding.weight.device)
        words = words[words != self._absent]
        # special tokens, which a model may treat in its own way, are at the beginning and the end of a vocabulary
        middle = torch.linspace(len(words) // 4, 3 * len(words) // 4, 24)
        texts = words[middle.long()].reshape(4, 6)
        # at the end, at the beginning, and in the middle as where a token is left out
        if self.padding is not None:
            texts[1, 4:] = self.padding
            texts[2, :2] = self.padding
            texts[3, 2] = self.padding
        if self._find_difference(super().embed(texts), texts):
            word = int(texts[0, 0])
            self.rest = partial(_forward_ids, word=word, padding=self._unread)
            self._compare(super().embed(texts), texts)

    def embed(self, tokens: Tensor, token_types: Tensor | None = None) -> Tensor:
        """Embeddings `(N, dim, T)`, detached, of token ids `(N, T)`: the inputs of this module.

        The first batch, the first one with padding and the first one with token types are compared with the model's own
        logits.

        Args:
            tokens: token ids.
            token_types: for pairs of sentences, `(N, T)`: 0 for the tokens of the first one and 1 for those of the
                second, as a tokenizer's `token_type_ids`. The embeddings of the types are then part of the inputs. None
                for single sentences, where the model uses type 0.

        Raises:
            ArgumentError: ids or types that are not whole numbers, or out of range; types for a model that does not
                add their embeddings to those of the tokens.
            ModelError: the model gives other logits from embeddings than from token ids.
        """
        x = super().embed(tokens)
        tokens = tokens.to(x.device)
        if token_types is not None:
            check(
                isinstance(token_types, Tensor),
                "token_types",
                "a tensor (N, T)",
                type(token_types).__name__,
            )
            parts = self.model.named_parameters()
            table = next(
                (w for name, w in parts if name.endswith("token_type_embeddings.weight")), x[:0, 0]
            ).detach()
            expected = f"None for {type(self.model).__name__}, which does not add them to embeddings of tokens"
            check(
                table.shape[1:] == x.shape[1:2] and len(table) > 0,
                "token_types",
                expected,
                "a tensor",
            )
            token_types = token_types.to(x.device)
            fine = token_types.shape == tokens.shape and token_types.dtype in (
                torch.int64,
                torch.int32,
            )
            is_type = (token_types >= 0) & (token_types < len(table))
            fine = fine and bool(is_type.all())
            expected = f"whole numbers from 0 to {len(table) - 1} of shape {tuple(tokens.shape)}"
            shape = tuple(token_types.shape)
            got = f"{token_types.dtype} of shape {shape}, up to {token_types.max()}"
            check(fine, "token_types", expected, got)
            shift = table[token_types] - table[0]
            shift = shift * self.present(x)[..., None]
            x = x + shift.transpose(1, 2)
        lengths = self.present(x).sum(1)
        has_padding = int(lengths.min()) < x.shape[2]
        kind = (has_padding, token_types is not None)
        if kind not in self._compared:
            # from short texts to long ones; always eight, since a model may take one row and not several
            spaced = torch.linspace(0, len(x) - 1, 8, device=x.device).long()
            rows = lengths.argsort()[spaced]
            types_of_rows = None
            if token_types is not None:
                types_of_rows = token_types[rows]
            self._compare(x[rows], tokens[rows], types_of_rows)
            self._compared.add(kind)
        return x

    def _compare(self, x: Tensor, tokens: Tensor, token_types: Tensor | None = None) -> None:
        """Raise `ModelError` unless the logits of embeddings `x` are those of the tokens."""
        if difference := self._find_difference(x, tokens, token_types):
            raise ModelError(
                f"module: expected {type(self.model).__name__} to give the same logits for embeddings as for input_ids"
                f" with padding {self.padding}, got {difference}. Models that pool the last token need"
                " config.pad_token_id, the id that the tokenizer pads with. For other models say how they are run on"
                " embeddings: EmbeddedText(model, embedding, rest, padding)"
            )

    def _find_difference(self, x: Tensor, tokens: Tensor, token_types: Tensor | None = None) -> str:
        """How the logits of embeddings `x` differ from those of the tokens `(N, T)`; empty if they do not."""
        types = {} if token_types is None else {"token_type_ids": token_types}
        disabled = logging.root.manager.disable
        logging.disable(logging.WARNING)  # a decoder says that it finds no padding in embeddings
        try:
            with Model(self, (-torch.inf, torch.inf), device=x.device).session(), torch.no_grad():
                ids = tokens.masked_fill(tokens == self._absent, self._unread)
                mask = (tokens != self._absent).long()
                logits_of_tokens = self.model(input_ids=ids, attention_mask=mask, **types).logits
                logits_of_embeddings = self(x)
        except Exception as error:  # whatever the model raises
            message = str(error).rstrip(".")
            return f"{type(error).__name__}: {message}"
        finally:
            logging.disable(disabled)
        # with token types the sum of embeddings is rounded in another order
        allowed = torch.finfo(logits_of_tokens.dtype).eps ** (2 / 3) * float(
            logits_of_tokens.abs().max()
        )
        same = torch.allclose(
            logits_of_embeddings, logits_of_tokens, rtol=0.0, atol=allowed, equal_nan=True
        )
        if same:
            return ""
        difference = (logits_of_embeddings - logits_of_tokens).abs()
        return f"logits that differ by {float(difference.max()):.2g}"


def _forward_embeddings(model: nn.Module, embedded: Tensor, present: Tensor) -> Tensor:
    """The logits of a model of transformers for embeddings `(N, T, dim)`, of which `present` `(N, T)` are there."""
    logits: Tensor = model(inputs_embeds=embedded, attention_mask=present.long()).logits
    return logits


def _forward_ids(
    model: nn.Module, embedded: Tensor, present: Tensor, word: int, padding: int
) -> Tensor:
    """The same for a model that has to see ids: `padding` where a token is absent, and `word` for all others."""
    length = embedded.shape[1]

    def replace(_layer: nn.Module, _args: Any, out: Tensor) -> Tensor:
        # some models pad to a multiple of their window
        return torch.cat([embedded, out[:, length:]], 1)

    hook = model.get_input_embeddings().register_forward_hook(replace, prepend=True)  # type: ignore[operator]
    try:
        with run_eagerly():  # compiled code may not call the hook
            ids = torch.where(present, word, padding)
            mask = present.long()
            logits: Tensor = model(input_ids=ids, attention_mask=mask).logits
    finally:
        hook.remove()
    return logits


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
    rows = []
    for text in texts:
        missing = longest - len(text)
        rows.append([*text, *[padding] * missing])
    return torch.tensor(rows)
