"""A user's network of token ids, asked with texts or with the embeddings of their tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from standfast.errors import ModelError, StandfastError, check
from standfast.function_calls import run_eagerly
from standfast.input_types import find_input_types
from standfast.model import BlackBox, Composition, Model, count_padding, pad_rows
from standfast.neighbourhoods.text import (
    CODES,
    NO_WORD,
    Word,
    decode_word,
    encode_word,
    find_present,
)
from standfast.segments import FEWEST
from standfast.tasks import Task, find_output
from standfast.tasks.labels import compute_probabilities
from standfast.tensors import Array, content_keys, hashed_uniform, widen_half
from standfast.texts.embedded import EmbeddedText
from standfast.texts.remembered import read_version
from standfast.texts.tokenizers import TokenizedText, Tokenizer, Tokens, assign_tokens
from standfast.texts.words import Written, encode_texts, split_words, sum_sentences, write_text
from standfast.texts.wrapped import find_attribute, find_mask_argument

#: lengths of batches are multiples of this, so that a text is read alike whatever the others are
_STEP = 8
#: tokens of one batch on a processor and on a card
_TOKENS, _TOKENS_ON_CARD = 1 << 13, 1 << 17
#: the lowest and the highest code of a word
CODE_BOUNDS = (0.0, float(CODES + 8))
#: texts whose tokens are remembered, and the words of all of them, so that long texts fill no memory
_REMEMBERED, _REMEMBERED_WORDS = 1 << 13, 1 << 22


@dataclass(frozen=True, eq=False)
class TokenReader:
    """Rows of word codes as tokens; it remembers those that it has read.

    Attributes:
        tokenizer: the user's.
        before, after: what stands before and after each text, such as the parts of a prompt.
        most: the largest number of tokens; None for any.
        special: whether the tokenizer adds its special tokens.
        answer: the tokens of an answer, which follow behind all of it.
    """

    tokenizer: Tokenizer
    before: str = ""
    after: str = ""
    most: int | None = None
    special: bool = True
    answer: tuple[int, ...] = ()
    _known: dict[bytes, TokenizedText] = field(default_factory=dict, repr=False)

    def __reduce__(self) -> tuple[type[TokenReader], tuple[Any, ...]]:
        return type(self), (
            self.tokenizer,
            self.before,
            self.after,
            self.most,
            self.special,
            self.answer,
        )

    def read(self, rows: Array) -> list[TokenizedText]:
        """The tokens of rows of codes `(M, W)`."""
        keys = [row.tobytes() for row in rows]
        new: dict[bytes, Array] = {}
        for key, row in zip(keys, rows, strict=True):
            if key not in self._known:
                new[key] = row
        most_remembered = min(_REMEMBERED, _REMEMBERED_WORDS // rows.shape[1])
        if len(self._known) + len(new) > most_remembered:
            self._known.clear()
            new = dict(zip(keys, rows, strict=True))
        if new:
            written = [write_text(row.tolist()) for row in new.values()]
            prompts = [f"{self.before}{string.text}{self.after}" for string in written]
            tokens_of_prompts = self.tokenizer.read(prompts, self.special)
            for key, tokens, string in zip(new, tokens_of_prompts, written, strict=True):
                self._known[key] = self._assign(tokens, string)
        return [self._known[key] for key in keys]

    def forget(self) -> None:
        """Forget what it has read."""
        self._known.clear()

    def _assign(self, tokens: Tokens, written: Written) -> TokenizedText:
        """Which words the tokens belong to; those of the answer belong to none."""
        most = None
        if self.most is not None:
            most = self.most - len(self.answer)
        before = len(self.before)
        reading = assign_tokens(tokens, written, before, most, self.tokenizer.keeps_end)
        if not self.answer:
            return reading
        answer = np.array(self.answer, dtype=np.int64)
        return replace(reading, ids=np.concatenate([reading.ids, answer]))


@dataclass(frozen=True, eq=False)
class TokenNetwork:
    """A module of token ids, and what is read of what it returns.

    Attributes:
        module: the user's.
        padding: the id that stands for no token, as the model knows it.
        unseen: the tokenizer's own token for none, which is not looked at where it stands in a text; None without one.
        labels: of a causal model, the ids of the label words, of which the logits after the last token are read.
        word: of a model that answers for each token, the place of the word whose answer is read.
        embedding: the layer of token embeddings; None: found.
    """

    module: nn.Module
    padding: int
    unseen: int | None = None
    labels: tuple[int, ...] | None = None
    word: int | None = None
    embedding: nn.Embedding | None = None

    def ask(self, ids: Tensor, present: Tensor, place: int | None = None) -> Tensor:
        """The outputs for ids `(N, T)`, of which `present` `(N, T)` are there; of the token at `place`, if given."""
        module = self.module
        if isinstance(module, EmbeddedText):
            return self._select(module(module.embed(ids)), present, place)
        return self._select(self.call(ids, present), present, place)

    def call(self, ids: Tensor, present: Tensor, **options: Any) -> Tensor:
        """What the module returns for ids and a mask, `(N, T)` each."""
        module = self.module
        mask = find_mask_argument(module)
        if mask == "name":
            returned = module(ids, attention_mask=present.long(), **options)
        elif mask == "position":
            returned = module(ids, present, **options)
        else:
            returned = module(ids, **options)
        output: Tensor = find_output(returned, rows=len(ids))
        return output

    def _select(self, out: Tensor, present: Tensor, place: int | None) -> Tensor:
        if place is not None:
            fits = out.ndim == 3 and out.shape[1] >= present.shape[1]
            check(
                fits,
                "word",
                "None for a model that answers once for each text",
                f"outputs {tuple(out.shape)}",
            )
            return out[:, place]
        if self.labels is not None:
            positions = torch.arange(present.shape[1], device=present.device)
            last = (present * positions).argmax(1)
            rows = torch.arange(len(out), device=out.device)
            return out[rows, last][:, list(self.labels)]
        return out

    def start_at_logits(self) -> TokenNetwork:
        """The network for relevance that starts at a logit; itself, where scores are logits."""
        return self

    @property
    def masks(self) -> bool:
        """Whether it is told which tokens are there; if not, no text is filled up."""
        if isinstance(self.module, EmbeddedText):
            return True
        return find_mask_argument(self.module) != "none"

    def find_embedding(self) -> nn.Embedding:
        """The layer of token embeddings.

        Raises:
            ArgumentError: it is not known.
        """
        if self.embedding is not None:
            return self.embedding
        if isinstance(self.module, EmbeddedText):
            return self.module.embedding
        get_embeddings = find_attribute(self.module, "get_input_embeddings")
        if callable(get_embeddings):
            layer = get_embeddings()
        else:
            layers = [part for part in self.module.modules() if isinstance(part, nn.Embedding)]
            expected = "the layer of token embeddings (embedding=...)"
            check(len(layers) == 1, "embedding", expected, f"{len(layers)} layers of embeddings")
            layer = layers[0]
        assert isinstance(layer, nn.Embedding)
        return layer

    def make_engine(
        self, before: tuple[int, ...], after: tuple[int, ...], place: int | None
    ) -> EmbeddedText:
        """The network on the embeddings of the tokens between those that stand before and after each text."""
        rest = partial(_read_embeddings, network=self, before=before, after=after, place=place)
        return EmbeddedText(self.module, self.find_embedding(), rest, padding=self.padding)

    def ask_embedded(self, embedded: Tensor, present: Tensor, place: int | None) -> Tensor:
        """The outputs for embeddings `(N, T, dim)`, of which `present` `(N, T)` are there."""
        module, layer = self.module, self.find_embedding()
        if isinstance(module, EmbeddedText):
            # an absent token, as a module of embeddings represents it
            no_token = module.embed(torch.full((1, 1), self.padding))
            gone = no_token[0, :, 0].to(embedded)
            filled = torch.where(present[..., None], embedded, gone)
            out = module(filled.transpose(1, 2))
            return self._select(out, present, place)
        count = embedded.shape[1]
        # any word, as its embedding is replaced
        words = range(len(layer.weight))
        word = next(number for number in words if number != self.padding)

        def replace(_layer: nn.Module, _args: Any, out: Tensor) -> Tensor:
            # some models pad to their window
            of_window = out[:, count:]
            return torch.cat([embedded.to(out.dtype), of_window], 1)

        hook = layer.register_forward_hook(replace, prepend=True)
        try:
            ids = torch.where(present, word, self.padding)
            with run_eagerly():  # compiled code may not call the hook
                return self.ask(ids, present, place)
        finally:
            hook.remove()


def _read_embeddings(
    module: nn.Module,
    embedded: Tensor,
    present: Tensor,
    network: TokenNetwork,
    before: tuple[int, ...],
    after: tuple[int, ...],
    place: int | None,
) -> Tensor:
    """The outputs for embeddings `(N, T, dim)`, of which `present` `(N, T)` are there, between other tokens."""
    if not before and not after:
        return network.ask_embedded(embedded, present, place)
    count = len(embedded)
    device = embedded.device
    ids = torch.tensor([[*before, *after]], device=device)
    with torch.no_grad():
        around = network.find_embedding()(ids).detach().to(embedded).expand(count, -1, -1)
    head = around[:, : len(before)]
    tail = around[:, len(before) :]
    every = torch.cat([head, embedded, tail], 1)
    head_present = present.new_ones(count, len(before))
    tail_present = present.new_ones(count, len(after))
    there = torch.cat([head_present, present, tail_present], 1)
    # what stands after the text comes directly after its last token, and padding after that
    numbers = torch.arange(1, present.shape[1] + 1, device=device)
    length = (present * numbers).amax(1, keepdim=True)
    positions = torch.arange(every.shape[1], device=device).expand(count, -1)
    start = len(before) + length
    size = len(after)
    first_of_tail = len(before) + embedded.shape[1]
    moved = torch.where(positions < start, positions, positions - start + first_of_tail)
    order = torch.where(positions < start + size, moved, positions - size)
    ordered = every.gather(1, order[..., None].expand_as(every))
    return network.ask_embedded(ordered, there.gather(1, order), place)


class TokenBatch:
    """Texts with the same number of tokens, about, and the same tokens around the text.

    Attributes:
        rows: their numbers.
        readings: of each.
        length: how many tokens each is filled up to, of all or, without those around, of the text.
        place: of the token whose answer is read; None where the network answers for the whole text.
    """

    def __init__(
        self, rows: Sequence[int], readings: Sequence[TokenizedText], length: int, place: int | None
    ) -> None:
        self.rows = rows
        self.readings = readings
        self.length = length
        self.place = place

    def make_ids(self, padding: int, device: torch.device, inner: bool = False) -> Tensor:
        """Token ids `(n, length)`, of all tokens or of those of the text."""
        shape = (len(self.rows), self.length)
        ids = np.full(shape, padding, dtype=np.int64)
        for numbers, reading in zip(ids, self.readings, strict=True):
            if inner:
                tokens = reading.ids[reading.first : reading.last]
            else:
                tokens = reading.ids
            numbers[: len(tokens)] = tokens
        return torch.from_numpy(ids).to(device)

    def find_present(self, ids: Tensor, unseen: int | None) -> Tensor:
        """Which of all tokens `ids` `(n, length)` are there, bool `(n, length)`, without those that are `unseen`."""
        counts = torch.tensor([len(reading.ids) for reading in self.readings])
        positions = torch.arange(self.length)
        there = (positions < counts[:, None]).to(ids.device)
        if unseen is None:
            return there
        return there & (ids != unseen)

    def sum_tokens(self, values: Tensor, first: bool, written: Array, width: int) -> Tensor:
        """Numbers of tokens `(n, length)` summed to numbers of words, `(n, W)`; a token of several is shared.

        Args:
            values: of all tokens, or of those of the text.
            first: whether they are of all tokens.
            written: which words are there, bool `(n, W)`: others get 0.
            width: W.
        """
        owners = np.concatenate([reading.owners for reading in self.readings])
        counts = [len(reading.owners) for reading in self.readings]
        rows = np.repeat(np.arange(len(counts)), counts)
        tokens_of_rows = []
        for reading in self.readings:
            numbers = np.arange(len(reading.owners))
            tokens_of_rows.append(numbers + first * reading.first)
        tokens = np.concatenate(tokens_of_rows)
        spans = owners[:, 1] - owners[:, 0] + 1
        # a pair for each token and each of its words
        pair = np.repeat(np.arange(len(owners)), spans)
        first_pair_of_token = np.repeat(spans.cumsum() - spans, spans)
        words = owners[pair, 0] + np.arange(len(pair)) - first_pair_of_token
        kept = written[rows[pair], words] | (spans[pair] == 1)
        pair, words = pair[kept], words[kept]
        token_counts = np.bincount(pair)
        share = torch.from_numpy(1 / token_counts[pair]).to(values)
        indices = np.stack([rows[pair], tokens[pair], words])
        row, token, word = torch.from_numpy(indices).to(values.device)
        sums = torch.zeros(len(values), width, dtype=values.dtype, device=values.device)
        sums.index_put_((row, word), values[row, token] * share, accumulate=True)
        return sums


class TextBox(BlackBox):
    """A network that reads texts, as a module of rows of word codes `(N, W)`; made by `TextModel`.

    Args:
        network: of token ids.
        reader: makes them.
        sentences: whether maps are summed over sentences.
    """

    def __init__(self, network: TokenNetwork, reader: TokenReader, sentences: bool = False) -> None:
        super().__init__(network.module, output="logit", dtype=torch.float64)
        self.network = network
        self.reader = reader
        self.sentences = sentences
        self._engines: dict[tuple[Any, ...], tuple[EmbeddedText, Model]] = {}
        self._words: dict[float, Word] = {}

    def remember(self, rows: Tensor) -> None:
        """Take the words of rows of codes along, to processes that have not read the texts."""
        codes = set(rows.flatten().tolist())
        self._words |= {code: decode_word(code) for code in codes}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_engines": {}, "_words": list(self._words.values())}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(
            {  # type: ignore[no-untyped-call]
                **state,
                "_words": {float(encode_word(word)): word for word in state["_words"]},
            }
        )

    def forward(self, x: Tensor) -> Tensor:
        """The network's outputs for rows of codes `(N, W)`.

        Raises:
            NoGradientsError: the codes require gradients; gradients are those by embeddings.
        """
        self.refuse_gradients(x)
        device = next(self.network.module.parameters(), x).device
        pieces: list[tuple[Sequence[int], Tensor]] = []
        for batch in self.cut(x):
            ids = batch.make_ids(self.network.padding, device)
            present = batch.find_present(ids, self.network.unseen)
            most = self._count_rows(batch.length, device)
            for start in range(0, len(ids), most):
                part = slice(start, start + most)
                part_ids = ids[part]
                padding = self._count_padding(len(part_ids), most, device)
                padded_ids = pad_rows(part_ids, padding)
                padded_present = pad_rows(present[part], padding)
                out = self._ask(padded_ids, padded_present, batch.place)
                of_part = widen_half(out)[: len(part_ids)]
                pieces.append((batch.rows[part], of_part))
        _, first = pieces[0]
        outputs = first.new_zeros(len(x), *first.shape[1:])
        for rows, out in pieces:
            outputs[list(rows)] = out
        return outputs.to(x.device)

    def _ask(self, ids: Tensor, present: Tensor, place: int | None) -> Tensor:
        try:
            return self.network.ask(ids, present, place)
        except (StandfastError, torch.OutOfMemoryError, Warning):
            raise
        except Exception as error:  # whatever the user's module raises
            if "allocate memory" in str(error):
                raise
            raise ModelError(
                f"model: expected outputs for token ids (N, T) up to {int(ids.max())} and a mask, got from {self.title}"
                f" {type(error).__name__}: {error}"
            ) from error

    @property
    def title(self) -> str:
        """The name of the network's class."""
        module = self.network.module
        if isinstance(module, EmbeddedText):
            module = module.model
        return type(module).__name__

    def find_padding_fault(self, x: Tensor) -> float:
        """By how much the outputs of the first text `(1, W)` change with padding beside it; 0 if by rounding only."""
        device = next(self.network.module.parameters(), x).device
        first_row = np.ascontiguousarray(x[:1].cpu().numpy())
        (reading,) = self.reader.read(first_row)
        token = None
        if self.network.word is not None:
            token = reading.find_token(self.network.word)
        if not self.network.masks:
            return 0.0
        answers = []
        count = len(reading.ids)
        if self.reader.most is None:
            filled = count + _STEP
        else:
            filled = max(count, min(count + _STEP, self.reader.most))
        for length in (count, filled):
            batch = TokenBatch([0], [reading], length, token)
            ids = batch.make_ids(self.network.padding, device)
            present = batch.find_present(ids, self.network.unseen)
            answer = self._ask(ids, present, token)
            answers.append(widen_half(answer).double().cpu())
        alone, padded = answers
        precision = find_input_types(self.network.module)[0]
        difference = float((alone - padded).abs().max())
        largest = float(alone.abs().max())
        if difference > torch.finfo(precision).eps ** (2 / 3) * largest:
            return difference
        return 0.0

    @property
    def composition(self) -> Composition:
        """The module, and all that determines its tokens and what is read of its outputs."""
        network, reader = self.network, self.reader
        layers = [
            name for name, part in network.module.named_modules() if part is network.embedding
        ]
        content = {
            "tokenizer": reader.tokenizer.describe(),
            "around": [reader.before, reader.after, reader.most],
            "network": [network.padding, network.unseen, network.labels, network.word, layers],
            "sentences": self.sentences,
        }
        return Composition(parts=(network.module,), content=content)

    def find_widths(self, x: Tensor) -> Tensor | None:
        there = x != NO_WORD
        if bool(there[:, -1].all()):
            return None
        numbers = torch.arange(1, x.shape[1] + 1, device=x.device)
        return (there * numbers).amax(1)

    def find_short(self, x: Tensor) -> Tensor | None:
        """Texts of one or two words: two numbers are always correlated by 1 or -1."""
        short = (x != NO_WORD).sum(1) < FEWEST
        if bool(short.any()):
            return short
        return None

    def replace_share(self, x: Tensor, others: Tensor, share: float) -> Tensor:
        """At least one word of each text is another's, at places that depend on the text alone."""
        present = find_present(x)
        possible = present & find_present(others) & (x != others)
        order = (
            hashed_uniform(content_keys(x, seed=0), x.shape[1])
            .masked_fill(~possible, 2.0)
            .argsort(1)
            .argsort(1)
        )
        count = (share * present.sum(1)).round().clamp(min=1)
        is_replaced = possible & (order < count[:, None])
        return torch.where(is_replaced, others, x)

    def join_maps(self, maps: Tensor, x: Tensor) -> Tensor:
        if self.sentences:
            return sum_sentences(maps, x)
        return maps

    def predict_texts(self, texts: Sequence[str], task: Task) -> Array:
        """The probabilities of texts, `(N, classes)`, or what another task reads, for functions of strings."""
        words = []
        for text in map(str, texts):
            # an empty text has one empty word
            words.append(split_words(text) or [Word("")])
        rows = encode_texts(words)
        with torch.no_grad():
            outputs = task.read(self(rows), len(rows)).double()
        if task.classes:
            outputs = outputs.softmax(1)
        elif task.scales:
            outputs = compute_probabilities(outputs)
        outputs_of_texts: Array = outputs.cpu().numpy()
        return outputs_of_texts

    def _count_rows(self, length: int, device: torch.device) -> int:
        """How many texts of so many tokens are run together."""
        most_tokens = _TOKENS if device.type == "cpu" else _TOKENS_ON_CARD
        # a multiple of 8 rows
        return max(16, most_tokens // length // 8 * 8)

    def _count_padding(self, count: int, most: int, device: torch.device) -> int:
        """How many rows a batch of `count` rows gets in addition."""
        return count_padding(count, max(most, count), device)

    def cut(self, x: Tensor, around: bool = True, exact: bool = False) -> Iterator[TokenBatch]:
        """The rows of codes `(N, W)` in batches of about the same number of tokens.

        Args:
            x: rows of codes.
            around: count all tokens; else those of the text.
            exact: without padding, which would become tokens where an explainer adds noise or goes to a baseline.
        """
        cells = np.ascontiguousarray(x.detach().cpu().numpy())
        readings = self.reader.read(cells)
        groups: dict[tuple[Any, ...], list[int]] = {}
        for row, reading in enumerate(readings):
            frame: tuple[Any, ...] = ()
            if around:
                count = len(reading.ids)
            else:
                count = reading.last - reading.first
                before = tuple(reading.ids[: reading.first])
                after = tuple(reading.ids[reading.last :])
                frame = (before, after)
            length = max(1, count)
            if not exact and self.network.masks:
                length = max(_STEP, -(-count // _STEP) * _STEP)
                if self.reader.most is not None:
                    # of all tokens, those around the text included
                    beside = len(reading.ids) - count
                    length = min(length, max(count, self.reader.most - beside))
            token = None
            if self.network.word is not None:
                token = reading.find_token(self.network.word)
            groups.setdefault((length, token, frame), []).append(row)
        for (length, token, _), rows in groups.items():
            readings_of_batch = [readings[row] for row in rows]
            yield TokenBatch(rows, readings_of_batch, length, token)

    def find_engine(
        self, batch: TokenBatch, around: bool, task: Task, at_logits: bool = False
    ) -> tuple[EmbeddedText, Model]:
        """The network on the embeddings of a batch, and its model.

        Args:
            batch: of texts.
            around: of all tokens, else of those of the text.
            task: of the model.
            at_logits: relevance starts at logits, where scores are made of several.
        """
        first = batch.readings[0]
        if around:
            frame = ((), ())
        else:
            before = tuple(first.ids[: first.first].tolist())
            after = tuple(first.ids[first.last :].tolist())
            frame = (before, after)
        device = next(self.network.module.parameters(), torch.zeros(0)).device
        # with other weights, as of a control, there are other bounds
        weight = self.network.find_embedding().weight
        of_weight = (device, weight.data_ptr(), read_version(weight))
        key = (*frame, batch.place, repr(task), at_logits, *of_weight)
        if key not in self._engines:
            if len(self._engines) >= 64:
                self._engines.clear()
            network = self.network.start_at_logits() if at_logits else self.network
            module = network.make_engine(*frame, batch.place)
            low, high = module.bounds()
            bounds = widen_half(low), widen_half(high)
            model = self._make_engine_model(module, bounds, device, task)
            self._engines[key] = module, model
        return self._engines[key]

    def _make_engine_model(
        self, module: EmbeddedText, bounds: tuple[Tensor, Tensor], device: torch.device, task: Task
    ) -> Model:
        return Model(module, bounds, device=device, task=task)


def find_text_box(model: Model) -> TextBox | None:
    """The box of a model that `TextModel` has made; None for another model."""
    if isinstance(model.black_box, TextBox):
        return model.black_box
    return None


def make_text_model(
    box: TextBox, task: str | Task, device: torch.device | str, rows: Tensor
) -> Model:
    """The model of a box, with the rows of words `(B, W)` that stand in the place of removed ones."""
    model = Model(box, CODE_BOUNDS, device=device, task=task)
    return model.with_rows(rows)
