"""Tokenizers of three kinds as their packages have them: special tokens and padding stay, and are never counted."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as some
from small_texts import (
    SPECIALS,
    make_network,
    read_reviews,
    train_bert,
    train_tokenizer,
    transformers,
    wrap_tokenizer,
)
from torch import Tensor, nn

import standfast
from standfast.errors import ArgumentError
from standfast.neighbourhoods import Casing, Deletion, Punctuation, TextChange, Typos
from standfast.question.texts import fit_explainer
from standfast.texts import write_text

KINDS = list(SPECIALS)
CHANGES: list[TextChange] = [
    Casing(0.5),
    Deletion(0.5),
    Punctuation(0.5),
    Typos(0.5),
    Deletion(0.99),
]
# words of the tokenizers and others, letters with accents and of other scripts, marks, and what looks like a mask
PIECES = some.sampled_from(
    ["film", "unbelievably", "isn't", "it", "Élan", "你好", "🎬", "?", "...", "[MASK]", "שלום", "a"]
)
STRINGS = some.lists(PIECES, min_size=1, max_size=9).map(" ".join)
LISTS = some.lists(
    STRINGS | some.text(min_size=1, max_size=12).filter(str.strip), min_size=1, max_size=3
)


class Watched(nn.Module):
    """A network of a token's embedding and its place, which keeps what it is asked."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(1)
            self.words = nn.Embedding(train_tokenizer(kind).get_vocab_size(), 6)
            self.head = nn.Linear(6, 2)
        self.asked: list[tuple[Tensor, Tensor]] = []

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        self.asked.append((input_ids.clone(), attention_mask.clone()))
        there = attention_mask[..., None].to(self.words.weight)
        places = torch.arange(input_ids.shape[1])[:, None] / 10
        logits: Tensor = self.head((torch.tanh(self.words(input_ids) + places) * there).sum(1))
        return logits


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=12, deadline=None)
@given(texts=LISTS, number=some.integers(0, 3), seed=some.integers(0, 2**30))
@example(texts=["a"], number=4, seed=0)  # nothing but special tokens is left
def test_special_tokens_and_padding_never_move(
    kind: str, texts: list[str], number: int, seed: int
) -> None:
    """The network is asked for what the tokenizer alone makes of the changed strings, and for padding behind it."""
    network, tokenizer = Watched(kind), train_tokenizer(kind)
    model = standfast.TextModel(network, tokenizer, device="cpu")
    rows = model.encode(texts)
    made = model.make_model(rows)
    try:
        region = CHANGES[number].around(rows)
    except ArgumentError:
        assume(False)
    points = torch.rand(
        rows.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )
    changed = region.perturb(points, torch.arange(len(rows)))
    assert not changed[rows == 0].any()
    network.asked.clear()
    made.logits(changed)
    expected = {tuple(tokenizer.encode(write_text(row).text).ids) for row in changed.tolist()}
    found = set()
    for ids, mask in network.asked:
        for own, there in zip(ids, mask.bool(), strict=True):
            count = int(there.sum())
            assert there[:count].all()
            assert (own[count:] == 0).all()
            found.add(tuple(own[:count].tolist()))
    assert found == expected


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=6, deadline=None)
@given(texts=LISTS)
def test_special_tokens_and_padding_are_never_explained(kind: str, texts: list[str]) -> None:
    """A word has what autograd gives its tokens; the rest of the map is 0, although special tokens have gradients."""
    network, tokenizer = Watched(kind), train_tokenizer(kind)
    model = standfast.TextModel(network, tokenizer, device="cpu")
    rows = model.encode(texts)
    explainers = {
        name: fit_explainer(name)
        for name in ("input_x_gradient", "occlusion", "integrated_gradients:steps=4")
    }
    for name, explainer in explainers.items():
        maps = explainer(model.make_model(rows), rows, 1)
        assert maps.shape == rows.shape
        assert not maps[rows == 0].any()
        if name != "input_x_gradient":
            continue
        for own, text in zip(maps, rows.tolist(), strict=True):
            encoded = tokenizer.encode(write_text(text).text)
            ids = torch.tensor([encoded.ids])
            vectors = network.words(ids).detach().requires_grad_(True)
            places = torch.arange(ids.shape[1])[:, None] / 10
            network.head(torch.tanh(vectors + places).sum(1))[0, 1].backward()
            relevance = (vectors * vectors.grad).sum(2)[0].detach().double()
            inner = torch.tensor(encoded.special_tokens_mask) == 0
            assert bool(relevance[~inner].all())
            torch.testing.assert_close(own.sum(), relevance[inner].sum(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_special_tokens_and_padding_are_never_counted(kind: str) -> None:
    """AOPC, against strings in which one word after the other becomes the mask, beside a longer text."""
    network, tokenizer = train_bert(kind), train_tokenizer(kind)
    model = standfast.TextModel(network, tokenizer, removal=("mask", "delete"), device="cpu")
    longer = "An unbelievably great and moving picture, isn't it, with so good a cast"
    texts = ["A dull film, isn't it?", longer]
    options: dict[str, Any] = {"sanity": False, "controls": False, "progress": False}
    found = standfast.evaluate(model, "occlusion", texts, standfast.metrics.AOPC(), **options)
    explained = standfast.explain(model, "occlusion", texts)
    words, values = zip(*explained[0], strict=True)
    assert words == ("A", "dull", "film", ",", "isn't", "it", "?")
    gaps = ["", " ", " ", "", " ", " ", ""]
    order = sorted(range(7), key=lambda place: -values[place])
    predicted = int(model.predict(texts)[0])
    for removal, put in (("mask", SPECIALS[kind][2]), ("delete", "")):
        strings = []
        for count in range(8):
            gone = order[:count]
            parts = [
                (" " if put else "", put) if k in gone else (gaps[k], words[k]) for k in range(7)
            ]
            strings.append("".join(gap + word for gap, word in parts if word).strip())
        falls = []
        for text in strings:
            ids = torch.tensor([tokenizer.encode(text).ids])
            falls.append(
                float(
                    network(ids, attention_mask=torch.ones_like(ids)).logits.softmax(1)[
                        0, predicted
                    ]
                )
            )
        slow = sum(falls[0] - fall for fall in falls) / 8
        frame = found.frame().filter(sample=0)
        (own,) = [row["value"] for row in frame.to_dicts() if removal in row["label"]]
        assert own == pytest.approx(slow, abs=1e-5), removal


@pytest.mark.parametrize("kind", KINDS)
def test_both_packages_give_the_same(kind: str) -> None:
    """The tokenizer alone, and as transformers has it."""
    network, texts = train_bert(kind), list(read_reviews()[0][:6])
    one, other = (
        standfast.TextModel(network, own) for own in (train_tokenizer(kind), wrap_tokenizer(kind))
    )
    assert one.split(texts) == other.split(texts)
    assert torch.equal(one.logits(texts), other.logits(texts))
    found = wrap_tokenizer(kind)(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        expected = network(found["input_ids"], attention_mask=found["attention_mask"]).logits
    torch.testing.assert_close(one.logits(texts), expected, rtol=1e-4, atol=1e-5)
    assert (one.predict(list(read_reviews()[0])) == read_reviews()[1]).double().mean() > 0.75


@pytest.mark.parametrize("kind", KINDS)
def test_the_label_of_one_word(kind: str) -> None:
    """Of a `BertForTokenClassification`: the logits of the word's first token."""
    network, tokenizer = (
        make_network("BertForTokenClassification", kind, num_labels=3),
        train_tokenizer(kind),
    )
    text = "An unbelievably dull film"
    logits = standfast.TextModel(network, tokenizer, word=2).logits(
        [text, "a dull film about nothing at all, is it not?"]
    )
    encoded = tokenizer.encode(text)
    place = encoded.word_ids.index(2)
    ids = torch.tensor([encoded.ids])
    torch.testing.assert_close(
        logits[0], network(ids).logits[0, place].detach(), rtol=1e-4, atol=1e-5
    )


def test_a_causal_model_reads_its_prompt() -> None:
    """A Llama, asked for "yes" or "no": the logits after the prompt with the text in it."""
    network, tokenizer = (
        make_network("LlamaForCausalLM", "bytes"),
        train_tokenizer("bytes", end=False),
    )
    template = "Is this good? {text} Answer:"
    model = standfast.CausalModel(network, tokenizer, template=template)
    texts = ["A dull film.", "An unbelievably great and moving picture, isn't it?"]
    numbers = [tokenizer.token_to_id(word) for word in ("Ġyes", "Ġno")]
    for own, text in zip(model.logits(texts), texts, strict=True):
        ids = torch.tensor([tokenizer.encode(template.replace("{text}", text)).ids])
        with torch.no_grad():
            torch.testing.assert_close(
                own, network(ids).logits[0, -1, numbers], rtol=1e-4, atol=1e-5
            )
    explained = standfast.explain(model, "occlusion", texts)
    assert [word for word, _ in explained[0]] == ["A", "dull", "film", "."]
    with pytest.raises(
        ArgumentError, match="tokenizer: expected one that adds no token at the end"
    ):
        standfast.CausalModel(network, train_tokenizer("bytes"), template=template)


@pytest.mark.parametrize(
    "explainer",
    [
        *(
            "saliency",
            "input_x_gradient",
            "smoothgrad:samples=3",
            "integrated_gradients:steps=4",
            "attention_rollout",
        ),
        *("attention_relevance", "fullgrad", "gradcam", "deeplift", "gradient_shap", "attn_lrp"),
    ],
)
def test_maps_do_not_depend_on_how_far_texts_are_filled_up(
    explainer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, tokenizer = train_bert("wordpiece"), train_tokenizer("wordpiece")
    texts = list(read_reviews()[0][:3])
    found = []
    for step in (1, 24):
        monkeypatch.setattr("standfast.texts.network._STEP", step)
        with warnings.catch_warnings(action="ignore"):
            pairs = standfast.explain(
                standfast.TextModel(network, tokenizer, device="cpu"), explainer, texts, 1
            )
        found.append(torch.tensor([value for each in pairs for _, value in each]))
    assert found[0].abs().max() > 1e-5  # behind a layer normalisation, gradients sum to 0
    torch.testing.assert_close(
        found[0], found[1], rtol=1e-3, atol=1e-4 * float(found[0].abs().max())
    )


def test_the_token_for_padding_is_not_looked_at_within_a_text() -> None:
    network, tokenizer = train_bert("wordpiece"), train_tokenizer("wordpiece")
    model = standfast.TextModel(network, tokenizer, removal="pad", device="cpu")
    rows = model.encode(["a dull film today"])
    gone = rows.clone()
    gone[0, 1] = model.find_removed("pad")
    ids = torch.tensor([tokenizer.encode(write_text(gone[0].tolist()).text).ids])
    with torch.no_grad():
        expected = network(input_ids=ids, attention_mask=(ids != 0).long()).logits
    assert int((ids == 0).sum()) == 1
    torch.testing.assert_close(model.make_model(rows).logits(gone), expected, rtol=1e-4, atol=1e-5)


def test_texts_are_filled_up_with_what_the_model_pads_with() -> None:
    """A decoder finds the last token by its own padding id, which is not the tokenizer's."""
    transformers()
    network = make_network("LlamaForSequenceClassification", "wordpiece", num_labels=2)
    network.config.pad_token_id = 4
    tokenizer = train_tokenizer("wordpiece", end=False)
    texts = ["a dull film", "this is a great film with a story"]
    found = standfast.TextModel(network, tokenizer, device="cpu").logits(texts)
    for own, text in zip(found, texts, strict=True):
        with torch.no_grad():
            expected = network(input_ids=torch.tensor([tokenizer.encode(text).ids])).logits[0]
        torch.testing.assert_close(own, expected, rtol=1e-4, atol=1e-5)
