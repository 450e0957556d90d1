"""`TextModel` and `CausalModel`: networks that read texts, with their tokenizers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from standfast.errors import ArgumentError, ModelError, check, warn_user
from standfast.model import Model, describe_no_module, resolve_device
from standfast.neighbourhoods.text import GONE, Word, encode_word, find_present
from standfast.tasks import Task
from standfast.tasks import get as get_task
from standfast.texts.network import TextBox, TokenNetwork, TokenReader, make_text_model
from standfast.texts.tokenizers import TOKENIZERS, Tokenizer, read_tokenizer
from standfast.texts.words import encode_texts, mark_sentences, split_words, write_text
from standfast.texts.wrapped import find_attribute

#: what maps have a number for
Granularity = Literal["token", "word", "sentence"]
#: what stands in the place of a word that is removed
Removal = Literal["mask", "pad", "delete", "retrieve"]
#: how many words are drawn in the place of one, and how many texts are compared at most
_DRAWN = 32
_COMPARED = 8
#: the length of a text: a book has fewer characters; one that has more is a file that was taken for a text
_MOST_CHARACTERS = 10**6
#: where pairs of sentences are taken
_PAIRS = "TransformersText(model).embed(ids, token_types=...) takes them: see docs/how-to/text.md"


def _is_text(value: object) -> bool:
    """Whether it is a string with something to see, that can be written as UTF-8."""
    if not isinstance(value, str) or not value.strip():
        return False
    return not any(0xD800 <= ord(letter) < 0xE000 for letter in value)


def _check_texts(texts: Any) -> list[str]:
    """Texts as a list of strings.

    Raises:
        ArgumentError: something else, such as pairs of sentences; none; one without a word, or a very long one.
    """
    if not isinstance(texts, str):
        got = type(texts).__name__
    else:
        got = "one text"
    check(
        not isinstance(texts, str | Mapping) and isinstance(texts, Iterable),
        "inputs",
        "a list of texts",
        got,
    )
    strings = [str(text) if isinstance(text, np.str_) else text for text in texts]
    check(len(strings) > 0, "inputs", "a list of texts", "none")
    pair = next((number for number, text in enumerate(strings) if _is_pair(text)), None)
    got = ""
    if pair is not None:
        got = f"the pair {strings[pair]!r} at place {pair}"
    check(pair is None, "inputs", f"texts, and no pairs of sentences ({_PAIRS})", got)
    wrong = next((number for number, text in enumerate(strings) if not _is_text(text)), None)
    got = ""
    if wrong is not None:
        got = f"{strings[wrong]!r} at place {wrong}"
    check(wrong is None, "inputs", "texts of at least one word", got)
    long = next(
        (number for number, text in enumerate(strings) if len(text) > _MOST_CHARACTERS), None
    )
    got = ""
    if long is not None:
        got = f"{len(strings[long]):,} at place {long}"
    check(long is None, "inputs", f"texts of at most {_MOST_CHARACTERS:,} characters", got)
    return strings


def _is_pair(value: object) -> bool:
    """Whether it is several strings, as tokenizers take sentence pairs: a tuple, a list, or a mapping by column."""
    parts = value
    if isinstance(value, Mapping):
        parts = list(value.values())
    return (
        isinstance(parts, tuple | list)
        and len(parts) > 1
        and all(isinstance(part, str) for part in parts)
    )


def explain_padding_fault(model: nn.Module) -> str:
    """Why padding may change the answer of a model."""
    dynamic = [
        name
        for name, part in model.named_modules()
        if ".quantized.dynamic." in f"{type(part).__module__}."
    ]
    if dynamic:
        return (
            f"Its layers with dynamic quantization ({', '.join(dynamic[:3])}) choose one scale for all tokens and rows"
            " of a batch, so that other texts change it, too. Give the model that it was made from"
        )
    return (
        "It must not look at tokens that its mask leaves out; config.pad_token_id is what it pads with. Dynamic"
        " quantization, where all tokens of a batch share a scale, does so, too"
    )


@dataclass(frozen=True, eq=False, repr=False)
class TextModel:
    """A classifier of texts with its tokenizer: strings go in, and explanations have a number for each word.

    Special tokens and padding are the tokenizer's: they are never perturbed, never explained and never counted. Texts
    with more tokens than the model takes are cut on the tokenizer's side, with a warning; the words of which the model
    sees a part are kept.

    Args:
        model: a `...ForSequenceClassification` or `...ForTokenClassification` of transformers, or any module of token
            ids and a mask, `(ids (N, T), present (N, T)) -> logits`; it may have its mask as `attention_mask`.
        tokenizer: a fast tokenizer of transformers, a `Tokenizer` of tokenizers, or `standfast.data.word_vectors()`.
        task: what the model answers, as for `standfast.Model`.
        granularity: explain every `"word"`; every `"token"` of the original text, of which only whole words are
            perturbed; or the words of a `"sentence"` together: all have the sum of their sentence.
        removal: what stands in the place of words that explainers and faithfulness metrics remove: the `"mask"` token,
            the `"pad"` token, `"delete"` for nothing, so that the words after it move up, or `"retrieve"` for words of
            the texts, drawn at random. Explainers take the first one; faithfulness is measured with each. By default
            mask and delete, or delete alone for a tokenizer without a mask; with `word`, mask, or retrieve without one.
        word: of a model that answers for each token, the number of the word, from 0, whose answer is explained: that of
            its first token. None for one answer.
        embedding: the layer of token embeddings, for explainers that need gradients; by default it is found.
        device: as for `standfast.Model`.

    Raises:
        ArgumentError: an argument does not fit.

    >>> import standfast
    >>> model = TextModel(standfast.zoo.load("transformer-sentences"), standfast.data.word_vectors())
    >>> model.predict(["a great film", "a dull film"])
    tensor([1, 0])
    """

    model: nn.Module
    tokenizer: Any = None
    _: KW_ONLY
    task: str | Task = "classification"
    granularity: Granularity = "word"
    removal: Removal | Sequence[Removal] | None = None
    word: int | None = None
    embedding: nn.Embedding | None = None
    device: str | torch.device = "auto"
    _tried: bool = field(default=False, init=False, repr=False)

    granularities: ClassVar[tuple[str, ...]] = get_args(Granularity)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({type(self.model).__name__}, {type(self.tokenizer).__name__})"
        )

    def __post_init__(self) -> None:
        check(
            isinstance(self.model, nn.Module),
            "model",
            "a torch.nn.Module",
            describe_no_module(self.model),
        )
        check(
            self.tokenizer is not None,
            "tokenizer",
            f"{TOKENIZERS}: TextModel(model, tokenizer)",
            "none",
        )
        check(
            self.granularity in self.granularities,
            "granularity",
            str(self.granularities),
            self.granularity,
        )
        fits = self.word is None or (type(self.word) is int and self.word >= 0)
        check(fits, "word", "the number of a word, from 0, or None", repr(self.word))
        fits = self.word is None or self.granularity != "token"
        check(fits, "granularity", "'word' or 'sentence' for the answer of one word", "'token'")
        check(
            len(self.removals) > 0,
            "removal",
            f"one or several of {get_args(Removal)}",
            repr(self.removal),
        )
        fits = self.word is None or "delete" not in self.removals
        check(
            fits,
            "removal",
            "'mask', 'pad' or 'retrieve', so that the word of the answer is there",
            "'delete'",
        )
        for operator in self.removals:
            got = f"{operator!r}; the tokenizer has no such token"
            check(
                operator in get_args(Removal),
                "removal",
                f"one or several of {get_args(Removal)}",
                repr(operator),
            )
            check(
                operator != "mask" or self.asked.mask is not None,
                "removal",
                "'delete', 'pad' or 'retrieve'",
                got,
            )
            check(
                operator != "pad" or self.asked.blank is not None,
                "removal",
                "'delete', 'mask' or 'retrieve'",
                got,
            )

    @cached_property
    def asked(self) -> Tokenizer:
        """The tokenizer, asked in one way for all packages."""
        return read_tokenizer(self.tokenizer)

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, where the model's configuration has some; else empty."""
        named = getattr(find_attribute(self.model, "config"), "id2label", None) or {}
        names = tuple(str(named[number]) for number in sorted(named))
        if all(name == f"LABEL_{number}" for number, name in enumerate(names)):
            return ()
        return names

    @property
    def removals(self) -> tuple[Removal, ...]:
        """What stands in the place of removed words, the one that explainers use first."""
        if self.removal is None and self.word is not None:
            if self.asked.mask is not None:
                return ("mask",)
            return ("retrieve",)
        if self.removal is None:
            if self.asked.mask is not None:
                return ("mask", "delete")
            return ("delete",)
        if isinstance(self.removal, str):
            return (self.removal,)
        return tuple(self.removal)

    @cached_property
    def _box(self) -> TextBox:
        padding = self.asked.padding
        assert padding is not None
        own_padding = getattr(find_attribute(self.model, "config"), "pad_token_id", None)
        if self.asked.own_padding and self.asked.blank is not None:
            unseen = padding
        else:
            unseen = None
        if isinstance(own_padding, int) and own_padding >= 0:
            fill = own_padding
        else:
            fill = padding
        network = TokenNetwork(
            self.model, fill, unseen, self._find_labels(), self.word, self.embedding
        )
        return TextBox(
            network,
            TokenReader(self.asked, *self._frame, self._most),
            self.granularity == "sentence",
        )

    @property
    def _frame(self) -> tuple[str, str]:
        """What stands before and after a text."""
        return "", ""

    def _find_labels(self) -> tuple[int, ...] | None:
        return None

    @property
    def _most(self) -> int | None:
        positions = getattr(find_attribute(self.model, "config"), "max_position_embeddings", None)
        layers = (
            layer
            for name, layer in self.model.named_modules()
            if name.endswith("position_embeddings")
        )
        unused = [
            limit.padding_idx + 1
            for limit in layers
            if getattr(limit, "padding_idx", None) is not None
        ]
        # RoBERTa counts from 2
        if isinstance(positions, int):
            positions = positions - max(unused, default=0)
        else:
            positions = None
        limits = [
            limit for limit in (self.asked.most, positions) if isinstance(limit, int) and limit > 0
        ]
        return min(limits, default=None)

    def split(self, texts: Sequence[str]) -> list[list[Word]]:
        """The words, or the tokens, of texts; those that the model does not see are left out.

        Raises:
            ArgumentError: something else than strings, one without a word, or one of more than a million characters.
        """
        visible = list[list[Word]]()
        shortened = 0
        for text in _check_texts(texts):
            words = split_words(text)
            if self.granularity == "token":
                words = self._split_tokens(words)
            visible.append(self._cut(words))
            shortened += len(visible[-1]) < len(words)
        if shortened:
            count = f"{shortened} of {len(visible)} texts"
            warn_user(f"{count} have more than {self._most} tokens; the rest is not looked at")
        if self.word is not None:
            visible = self._fix_word(visible, self.word)
        if self.granularity == "sentence":
            visible = [mark_sentences(words) for words in visible]
        return visible

    @staticmethod
    def _fix_word(texts: list[list[Word]], number: int) -> list[list[Word]]:
        """The words, of which that of the answer does not change."""
        lacking = next((row for row, words in enumerate(texts) if len(words) <= number), None)
        got = ""
        if lacking is not None:
            got = f"{len(texts[lacking])} at place {lacking}"
        check(
            lacking is None,
            "word",
            f"a word that all texts have, of which there are more than {number}",
            got,
        )
        return [
            [word._replace(fixed=k == number) for k, word in enumerate(words)] for words in texts
        ]

    def _split_tokens(self, words: Sequence[Word]) -> list[Word]:
        """The tokens of words, as pieces of them."""
        pieces: list[Word] = []
        spans = self.asked.read(["".join(w.gap + w.text for w in words)])[0]
        written = write_text([encode_word(word) for word in words])
        ends = sorted(
            {
                end
                for (start, end), special in zip(spans.spans, spans.special, strict=True)
                if end > start and not special
            }
        )
        for word, start, end in zip(
            words, written.starts.tolist(), written.ends.tolist(), strict=True
        ):
            cuts = [start, *(cut for cut in ends if start < cut < end), end]
            parts = [written.text[a:b] for a, b in pairwise(cuts)]
            fixed = len(parts) > 1  # only whole words change
            for number, part in enumerate(parts):
                gap = word.gap if number == 0 else ""
                pieces.append(Word(part, gap, fixed=fixed))
        return pieces

    def _cut(self, words: list[Word]) -> list[Word]:
        """The words of which the model sees at least one token."""
        if self._most is None:
            return words
        reading = self._box.reader.read(encode_texts([words]).numpy())[0]
        if len(reading.owners) == 0:
            text = "".join(word.gap + word.text for word in words)[:40]
            got = f"{text!r} with {len(reading.ids)} tokens around it, and none of it"
            raise ArgumentError(
                "inputs", f"texts of which a token is among the first {self._most}", got
            )
        first = int(reading.owners[:, 0].min())
        last = int(reading.owners[:, 1].max())
        return words[first : last + 1]

    def encode(self, texts: Sequence[str]) -> Tensor:
        """The codes of the words of texts, float64 `(N, W)`: what explainers get, and metrics of equally long texts."""
        return encode_texts(self.split(texts))

    def make_model(self, rows: Tensor, removal: Removal | None = None) -> Model:
        """The model of rows of codes `(N, W)`, which removes words in one way, by default the first.

        Raises:
            ArgumentError: the model answers for each token.
            ModelError: the model fails on the first texts, or padding beside a text changes its answer.
        """
        device = resolve_device(self.device, next(self.model.parameters(), None))
        fill = self.make_fill(rows, removal or self.removals[0])
        self._box.remember(rows)
        for operator in self.removals:
            self._box.remember(self.make_fill(rows, operator))
        task = get_task(self.task).name_classes(self.classes)
        model = make_text_model(self._box, task, device, fill)
        if not self._tried:
            self._try(model, rows)
        return model

    def _try(self, made: Model, rows: Tensor) -> None:
        """Run the first texts, one of them without padding, and a text without words."""
        with made.session(), torch.no_grad():
            outputs = self._box(rows[:1].to(made.device))
        many = made.task.classes and outputs.ndim != 2
        expected = (
            "one answer for each text: CausalModel(...) for a language model,"
            " TextModel(word=K) for that of a word"
        )
        check(
            not many,
            "model",
            expected,
            f"outputs of shape (N, {', '.join(map(str, outputs.shape[1:]))})",
        )
        with made.naming(rows):
            made.logits(rows[:_COMPARED])
        with made.session(), torch.no_grad():
            fault = self._box.find_padding_fault(rows[:1].to(made.device))
            empty = self._box(
                torch.full((1, rows.shape[1]), float(GONE), dtype=torch.float64, device=made.device)
            )
        if fault:
            raise ModelError(
                "model: expected the same answer for a text with padding beside it, got differences of up to"
                f" {fault:.2g}. {explain_padding_fault(self.model)}"
            )
        if "delete" in self.removals and not bool(torch.isfinite(empty).all()):
            warn_user(
                "model: it gives NaN or infinity for a text without words, which removal='delete' ends with. A mean"
                " over tokens needs .clamp(min=1) below"
            )
        self.__dict__["_tried"] = True

    def make_fill(self, rows: Tensor, removal: Removal) -> Tensor:
        """What stands in the place of removed words of texts with W words at most: codes `(B, W)`."""
        width = rows.shape[1]
        if removal == "retrieve":
            words = torch.tensor(
                sorted(set(rows[find_present(rows)].tolist())), dtype=torch.float64
            )
            generator = torch.Generator().manual_seed(0)
            return words[torch.randint(len(words), (_DRAWN, width), generator=generator)]
        removed = float(self.find_removed(removal))
        return torch.full((1, width), removed, dtype=torch.float64)

    def find_removed(self, removal: Removal) -> int:
        """The code of what stands in the place of every removed word."""
        texts = {"mask": self.asked.mask, "pad": self.asked.blank, "delete": ""}
        text = texts[removal]
        assert text is not None
        if text:
            return encode_word(Word(text, " "))
        return GONE

    def logits(self, texts: Sequence[str]) -> Tensor:
        """The logits of texts, `(N, classes)`, or what the task reads."""
        rows = self.encode(texts)
        return self.make_model(rows).logits(rows)

    def predict(self, texts: Sequence[str]) -> Tensor:
        """The predicted classes of texts, `(N,)`."""
        rows = self.encode(texts)
        return self.make_model(rows).predict(rows)


def _describe_long_label(label: str) -> str:
    """What is compared of a label that has several tokens; and what explains whole answers."""
    first = f"labels: {label!r} has several tokens, of which the first one counts"
    if len(label.split()) < 2:
        return first
    return (
        f"{first}: the beginnings of answers are compared, and not the answers. A whole answer is explained by"
        " standfast.AnswerModel(model, tokenizer) with standfast.Prompt(question, documents, answer=...)"
    )


@dataclass(frozen=True, eq=False, repr=False)
class CausalModel(TextModel):
    """A language model as a classifier of texts: which of some words comes next, after a prompt.

    The logits of the first tokens of the labels are those of the classes. Only the text is perturbed and explained; the
    rest of the prompt stays. Whole answers are explained by `standfast.AnswerModel`.

    Args:
        model: a `...ForCausalLM` of transformers, or a module `(ids (N, T), present (N, T)) -> logits (N, T, V)`.
        tokenizer: as for `TextModel`; padding is what ends texts, where there is no token for it.
        labels: the words that stand for the classes.
        template: the prompt, with `{text}` where the text stands.

    Raises:
        ArgumentError: a template without `{text}`; labels that begin with the same token, or fewer than two.
    """

    labels: tuple[str, ...] = ("yes", "no")
    template: str = "{text}"

    def __post_init__(self) -> None:
        check(
            self.template.count("{text}") == 1,
            "template",
            "a text with {text} once",
            repr(self.template),
        )
        check(
            self.word is None,
            "word",
            "None for a language model, which is read at its end",
            self.word,
        )
        super().__post_init__()
        self._find_labels()

    @property
    def classes(self) -> tuple[str, ...]:
        """The labels."""
        return tuple(self.labels)

    @property
    def _frame(self) -> tuple[str, str]:
        before, _, after = self.template.partition("{text}")
        return before, after

    def _find_labels(self) -> tuple[int, ...]:
        """The ids of the tokens with which the labels begin, after the prompt."""
        many = isinstance(self.labels, list | tuple) and len(self.labels) > 1
        check(many, "labels", "at least two words", repr(self.labels))
        prompt = "x".join(self._frame)
        start = self.asked.read([prompt])[0]
        check(
            not start.special[-1],
            "tokenizer",
            "one that adds no token at the end of a text",
            "one that does",
        )
        gap = "" if prompt[-1].isspace() else " "
        label_tokens: list[int] = []
        for label in self.labels:
            ids = self.asked.read([f"{prompt}{gap}{label.lstrip()}"])[0].ids
            begins_alike = list(ids[: len(start.ids)]) == list(start.ids)
            same = len(ids) > len(start.ids) and begins_alike
            expected = "a text that ends so that a label begins a token of its own"
            check(same, "template", expected, f"{prompt[-12:]!r} before {label!r}")
            if len(ids) > len(start.ids) + 1:
                warn_user(_describe_long_label(label))
            label_tokens.append(ids[len(start.ids)])
        got = ", ".join(self.labels)
        check(
            len(set(label_tokens)) == len(label_tokens),
            "labels",
            "words that begin with different tokens",
            got,
        )
        return tuple(label_tokens)
