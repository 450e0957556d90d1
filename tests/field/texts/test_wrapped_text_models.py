"""Text classifiers that are compiled, or stand in a wrapper that hides what their `forward` takes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import standfast
from standfast.texts.wrapped import find_attribute, find_mask_argument

WORDS = 5161  # of `standfast.data.word_vectors`
TEXTS = ["a great film with a story", "the plot is dull and long", "good"]


class Decoder(nn.Module):
    """As GPT-2, it takes something else than the mask as its second argument; its configuration has class names."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, 8)
        # a second layer of embeddings, so that the first one must be told
        self.positions = nn.Embedding(8, 8)
        self.head = nn.Linear(8, 2)
        self.config = SimpleNamespace(id2label={0: "dull", 1: "great"}, max_position_embeddings=64)

    def get_input_embeddings(self) -> nn.Embedding:
        return self.words

    def forward(
        self, input_ids: Tensor, past_key_values: Any = None, attention_mask: Tensor | None = None
    ) -> SimpleNamespace:
        assert past_key_values is None
        assert attention_mask is not None
        present = attention_mask[..., None].float()
        pooled = (self.words(input_ids).tanh() * present).sum(1)
        return SimpleNamespace(logits=self.head(pooled))


class Adapter(nn.Module):
    """As PEFT's models without a task type: any arguments, handed on."""

    def __init__(self, model: nn.Module, name: str = "model") -> None:
        super().__init__()
        self.scale = nn.Linear(1, 1)
        self.add_module(name, model)
        self.name = name

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.get_submodule(self.name)(*args, **kwargs)


def make_decoder() -> Decoder:
    torch.manual_seed(0)
    return Decoder().eval()


WRAPPERS = {
    "compiled": lambda network: torch.compile(network, backend="eager"),
    "adapter": Adapter,
    "adapters of PEFT": lambda network: Adapter(Adapter(network), "base_model"),
    "data parallel": nn.DataParallel,
    "compiled adapter": lambda network: torch.compile(Adapter(network), backend="eager"),
}


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_a_wrapper_changes_no_logits(wrap: Any) -> None:
    network = make_decoder()
    vocabulary = standfast.data.word_vectors()
    alone = standfast.TextModel(network, vocabulary, device="cpu")
    wrapped = standfast.TextModel(wrap(network), vocabulary, device="cpu")
    ids = [torch.tensor([vocabulary.find_words(text)[0]]) for text in TEXTS]
    with torch.no_grad():
        expected = torch.cat(
            [network(row, attention_mask=torch.ones_like(row)).logits for row in ids]
        )
    assert torch.allclose(wrapped.logits(TEXTS), expected, atol=1e-5)
    assert wrapped.classes == alone.classes == ("dull", "great")
    (map_of_wrapped,) = standfast.explain(wrapped, "saliency", TEXTS[:1], 1)
    (map_of_network,) = standfast.explain(alone, "saliency", TEXTS[:1], 1)
    assert [word for word, _ in map_of_wrapped] == TEXTS[0].split()
    assert [value for _, value in map_of_wrapped] == pytest.approx(
        [value for _, value in map_of_network], abs=1e-6
    )


def test_how_the_mask_is_given() -> None:
    class Positions(nn.Module):
        def forward(self, ids: Tensor, present: Tensor, **options: Any) -> Tensor:
            return ids

    class Alone(nn.Module):
        def forward(self, ids: Tensor, *, scale: float = 1.0) -> Tensor:
            return ids

    class Named(nn.Module):
        def forward(self, ids: Tensor, **inputs: Any) -> Tensor:
            return ids

    class Own(Positions):
        """Its own arguments count, and not those of the network that it uses."""

        def __init__(self) -> None:
            super().__init__()
            self.model = make_decoder()

    assert find_mask_argument(Positions()) == find_mask_argument(Own()) == "position"
    assert find_mask_argument(nn.DataParallel(Positions())) == "position"
    assert find_mask_argument(Alone()) == "none"
    assert find_mask_argument(Named()) == "name"
    assert find_mask_argument(make_decoder()) == "name"
    assert find_attribute(Own(), "config") is None


def test_gpt2_compiled_and_in_an_adapter() -> None:
    """Adapters of transformers' own decoders, of which the second argument is `past_key_values`."""
    transformers = pytest.importorskip("transformers", reason="transformers is an extra")
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers comes with transformers")
    raw = tokenizers.Tokenizer(tokenizers.models.BPE())
    raw.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<end>"], initial_alphabet=alphabet
    )
    raw.train_from_iterator(TEXTS * 5, trainer)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=raw, eos_token="<end>", pad_token="<end>", model_max_length=64
    )
    torch.manual_seed(0)
    configuration = transformers.GPT2Config(
        vocab_size=len(tokenizer),
        num_labels=2,
        pad_token_id=0,
        bos_token_id=0,
        eos_token_id=0,
        n_embd=16,
        n_layer=1,
        n_head=2,
        n_positions=64,
        initializer_range=0.3,
    )
    network = transformers.GPT2ForSequenceClassification(configuration).eval()
    with torch.no_grad():
        rows = [tokenizer(text, return_tensors="pt") for text in TEXTS]
        expected = torch.cat([network(**row).logits for row in rows])
    for wrapped in (torch.compile(network, backend="eager"), Adapter(network)):
        logits = standfast.TextModel(wrapped, tokenizer, device="cpu").logits(TEXTS)
        assert torch.allclose(logits, expected, atol=1e-5)
