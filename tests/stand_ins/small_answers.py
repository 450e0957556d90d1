"""Language models whose answers are understood, and tiny random ones, with tokenizers of words."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from small_texts import make_network, transformers
from torch import Tensor, nn

import standfast

#: the words of contexts and answers; each is one token
WORDS = (
    *(
        "<pad>",
        "<end>",
        "?",
        ".",
        ":",
        "Context",
        "Query",
        "Answer",
        "Who",
        "built",
        "the",
        "bridge",
        "was",
        "by",
    ),
    *(
        "Ann",
        "Bob",
        "Eva",
        "in",
        "May",
        "it",
        "is",
        "old",
        "long",
        "and",
        "red",
        "green",
        "blue",
        "near",
        "river",
    ),
    *(
        "town",
        "ten",
        "years",
        "ago",
        "said",
        "that",
        "not",
        "stone",
        "wood",
        "one",
        "two",
        "three",
        "four",
        "five",
    ),
)
CHAT = (
    "{% for message in messages %}{{ message['role'] }} : {{ message['content'] }} ? {% endfor %}"
    "{% if add_generation_prompt %}Answer : {% endif %}"
)
SENTENCES = (
    "it is old.",
    "the bridge was built by Ann.",
    "the town is near the river.",
    "it is long and red.",
    "Bob said that it is not stone.",
)


@cache
def make_tokenizer(chat: bool = True) -> Any:
    """A tokenizer of transformers whose tokens are words, with a chat template."""
    tk = pytest.importorskip("tokenizers", reason="needs tokenizers")
    names = list(dict.fromkeys([*WORDS, "system", "user", "<unk>"]))
    tokenizer = tk.Tokenizer(
        tk.models.WordLevel({name: number for number, name in enumerate(names)}, "<unk>")
    )
    tokenizer.pre_tokenizer = tk.pre_tokenizers.Sequence(
        [tk.pre_tokenizers.WhitespaceSplit(), tk.pre_tokenizers.Punctuation("isolated")]
    )
    tokenizer.add_special_tokens(["<pad>", "<end>"])
    wrapped = transformers().PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="<end>",
        unk_token="<unk>",
        model_max_length=512,
    )
    if chat:
        wrapped.chat_template = CHAT
    return wrapped


def number(word: str) -> int:
    """The id of a word."""
    return int(make_tokenizer().convert_tokens_to_ids(word))


class BagOfWords(nn.Module):
    """Each next token has logits that are sums over the tokens before it: an additive model without order.

    The logits of all tokens but two are fixed, and so is the sum of the two; so the log-odds of the first against the
    second are the sum of the weights of the words.
    """

    def __init__(self, weights: dict[str, float], answer: str = "Ann", other: str = "Bob") -> None:
        super().__init__()
        self.words = nn.Embedding(len(make_tokenizer()), 1)
        self.answer, self.other = number(answer), number(other)
        with torch.no_grad():
            self.words.weight.zero_()
            for word, weight in weights.items():
                self.words.weight[number(word), 0] = weight

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        sums = (self.words(input_ids)[..., 0] * attention_mask).cumsum(1)
        logits = torch.full((*input_ids.shape, len(self.words.weight)), -1e4)
        logits[..., self.other] = 0.0
        logits = logits.to(sums)
        return torch.cat(
            [logits[..., : self.answer], sums[..., None], logits[..., self.answer + 1 :]], 2
        )


class CopyingModel(nn.Module):
    """It answers with the word that follows "by": a model that copies from a known place of its prompt."""

    def __init__(self, sharpness: float = 6.0) -> None:
        super().__init__()
        self.sharpness = nn.Parameter(torch.tensor(sharpness))
        self.words = nn.Embedding.from_pretrained(torch.eye(len(make_tokenizer())), freeze=False)
        self.config = SimpleNamespace(pad_token_id=0, max_position_embeddings=512)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        vectors = self.words(input_ids) * attention_mask[..., None]
        follows_by = torch.zeros_like(vectors[..., :1])
        follows_by[:, 1:] = vectors[:, :-1, number("by"), None]
        copied = (vectors * follows_by).cumsum(1)
        logits: Tensor = self.sharpness * copied
        return logits


def make_llama(**options: Any) -> Any:
    """A tiny random Llama for the tokenizer of words."""
    settings = {
        "vocab_size": len(make_tokenizer()),
        "max_position_embeddings": 512,
        "eos_token_id": 1,
    }
    return make_network("LlamaForCausalLM", "bytes", **settings | options)


def make_prompt(
    sentences: Sequence[str] = SENTENCES, answer: str | None = "Ann", **options: Any
) -> standfast.Prompt:
    """A question about sentences."""
    return standfast.Prompt("Who built the bridge", [" ".join(sentences)], answer=answer, **options)
