"""Models of texts: exact answers of a bag of words, prompts, tokens, and texts of different lengths."""

from __future__ import annotations

import copy
import itertools
import json
import math
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import text_networks
import torch
from scipy import stats
from text_networks import PIECES, BagOfWords, PieceTokenizer, Recurrent
from torch import Tensor, nn

import standfast
from standfast.errors import ArgumentError, ModelError
from standfast.neighbourhoods import Deletion, TokenSwaps
from standfast.neighbourhoods.text import GONE
from standfast.question.texts import fit_explainer

TEXTS = ["a dull film", "A great story, boring film", "dull, flat ?"]
TABLE = {"dull": ["boring", "flat"], "film": ["story"], "great": ["dull"], "boring": ["dull", "a"]}


@pytest.fixture(scope="module")
def bag() -> BagOfWords:
    return BagOfWords(seed=10)


def weigh(network: BagOfWords, text: str) -> float:
    ids, _ = PieceTokenizer().find_words(text)
    return sum(network.weights[number] for number in ids)


@pytest.mark.parametrize("around", [(), (1,)])
def test_logits_are_those_of_the_tokens(bag: BagOfWords, around: tuple[int, ...]) -> None:
    model = standfast.TextModel(bag, PieceTokenizer(around, around))
    extra = 2 * sum(bag.weights[number] for number in around)
    expected = [[0.0, weigh(bag, text) + extra] for text in TEXTS]
    torch.testing.assert_close(model.logits(TEXTS), torch.tensor(expected), rtol=1e-5, atol=1e-5)
    assert model.predict(TEXTS).tolist() == [int(second > 0) for _, second in expected]


@pytest.mark.parametrize(
    "explainer",
    ["occlusion", "kernel_shap:samples=200", "integrated_gradients:steps=8", "input_x_gradient"],
)
def test_attributions_of_words_are_their_numbers(bag: BagOfWords, explainer: str) -> None:
    """Of a linear model each word adds the numbers of its tokens; padding and special tokens have none."""
    model = standfast.TextModel(bag, PieceTokenizer((1,), (2,)))
    found = standfast.explain(model, explainer, TEXTS, targets=1)
    for text, pairs in zip(TEXTS, found, strict=True):
        for word, value in pairs:
            if explainer == "occlusion":  # of the probability
                whole, rest = (
                    torch.tensor(weigh(bag, text) + 0.0 + bag.weights[1] + bag.weights[2]),
                    weigh(bag, word),
                )
                expected = (torch.sigmoid(whole) - torch.sigmoid(whole - rest)).item()
            else:
                expected = weigh(bag, word)
            if "integrated" in explainer:  # from the embedding of the padding
                expected -= len(PieceTokenizer().find_words(word)[0]) * bag.weights[0]
            assert value == pytest.approx(expected, abs=2e-4), (text, word)


def enumerate_swaps(text: str, rate: float) -> list[tuple[float, str]]:
    """All texts that swaps make, with their probabilities."""
    words = text.replace(",", " ,").split()
    ways = []
    for word in words:
        others = TABLE.get(word.lower(), [])
        shares = [(rate / len(others), other) for other in others]
        ways.append([(1.0 - rate if others else 1.0, word), *shares])
    found = []
    for chosen in itertools.product(*ways):
        chance = 1.0
        for share, _ in chosen:
            chance *= share
        found.append((chance, " ".join(word for _, word in chosen)))
    return found


def test_the_worst_case_over_swaps_is_that_of_all_texts(bag: BagOfWords) -> None:
    model = standfast.TextModel(bag, PieceTokenizer())
    changes = TokenSwaps(0.4, TABLE)
    rows = model.encode(TEXTS[1:2])
    options: dict[str, Any] = {"search": "random", "budget": 600}
    every = [text for _, text in enumerate_swaps(TEXTS[1], 0.4)]
    sign = 1 if weigh(bag, TEXTS[1]) > 0 else -1
    margins = [sign * weigh(bag, text) for text in every]
    metric = standfast.metrics.WorstCase(changes, event="misclassification", **options)
    found = metric(model.make_model(rows), "random", rows)
    assert float(found.margin[0]) == pytest.approx(-min(margins), abs=1e-4)
    maps = torch.tensor(
        [[weigh(bag, word) for word in re.findall(r"\w+|,", text)] for text in every]
    )
    near = torch.cosine_similarity(maps[:1], maps)[torch.tensor(margins) > 0].min()
    metric = standfast.metrics.WorstCase(
        changes, event="changed_explanation", similarity="cosine", absolute=False, **options
    )
    explainer = fit_explainer("input_x_gradient")
    found = metric(model.make_model(rows), explainer, rows)
    assert float(found.value[0]) == pytest.approx(float(near), abs=1e-3)


def test_the_probability_is_that_of_all_texts(bag: BagOfWords) -> None:
    """The share of texts of another class, by enumeration; plain draws, so that the count has a binomial law."""
    model = standfast.TextModel(bag, PieceTokenizer())
    rate, text = 0.4, TEXTS[1]
    sign = 1 if weigh(bag, text) > 0 else -1
    exact = sum(
        chance for chance, other in enumerate_swaps(text, rate) if sign * weigh(bag, other) < 0
    )
    rows = model.encode([text])
    region = TokenSwaps(rate, TABLE).around(rows)
    draws = region.sample(4000, region.streams(0))[0]
    logits = model.make_model(rows).logits(
        region.perturb(draws, torch.zeros(len(draws), dtype=torch.int64))
    )
    hits = int((sign * (logits[:, 1] - logits[:, 0]) < 0).sum())
    assert 0.01 < exact < 0.99
    assert stats.binomtest(hits, 4000, exact).pvalue > 1e-3
    metric = standfast.metrics.MisinterpretationProbability(
        TokenSwaps(rate, TABLE), event="misclassification"
    )
    held = 0
    for seed in range(12):
        generator = torch.Generator().manual_seed(seed)
        found = metric(model.make_model(rows), "random", rows, generator=generator).frame()
        held += float(found["low"][0]) <= math.log(exact) <= float(found["high"][0])
    assert held >= 8  # of 95% intervals, with probability 1 - 2e-4


def test_results_of_a_text_do_not_depend_on_the_others(bag: BagOfWords) -> None:
    model = standfast.TextModel(bag, PieceTokenizer((1,)))
    metrics = [
        standfast.metrics.MaxSensitivity(Deletion(0.4), samples=20),
        "aopc",
        "worst_case:budget=40",
    ]
    options: dict[str, Any] = {"sanity": False, "progress": False, "controls": False}
    asked = ["saliency", "occlusion"]
    together = standfast.evaluate(
        model, asked, TEXTS, metrics, neighbourhood=Deletion(0.3), **options
    )
    for number, text in enumerate(TEXTS):
        alone = standfast.evaluate(
            model, asked, [text], metrics, neighbourhood=Deletion(0.3), **options
        )
        own = together.frame().filter(sample=number).sort("label", "explainer")
        other = alone.frame().sort("label", "explainer")
        assert own["value"].to_list() == other["value"].to_list()
        assert own["value"].is_finite().all()


def test_explanations_of_a_batch_are_those_of_single_texts(bag: BagOfWords) -> None:
    model = standfast.TextModel(bag, PieceTokenizer((1,), (2,)))
    rows = model.encode(TEXTS)
    made = model.make_model(rows)
    for name in ("occlusion", "kernel_shap:samples=50"):
        explainer = standfast.explainers.get(name)
        whole = explainer(made, rows)
        for number in range(len(TEXTS)):
            width = int((rows[number] != 0).sum())
            alone = explainer(made.with_width(width), rows[number : number + 1, :width])
            assert torch.equal(whole[number, :width], alone[0])
            assert not whole[number, width:].any()


@pytest.mark.parametrize("removal", ["delete", "retrieve"])
def test_what_stands_in_the_place_of_words(bag: BagOfWords, removal: Any) -> None:
    model = standfast.TextModel(bag, PieceTokenizer(), removal=removal)
    rows = model.encode(TEXTS)
    fill = model.make_fill(rows, removal)
    if removal == "delete":
        assert set(fill.flatten().tolist()) == {GONE}
        without = torch.where(
            torch.tensor([False, True, False] + [False] * (rows.shape[1] - 3)), fill, rows[:1]
        )
        assert model.make_model(rows).logits(without)[0, 1].item() == pytest.approx(
            weigh(bag, "a film"), abs=1e-5
        )
    else:
        assert set(fill.flatten().tolist()) <= set(rows.flatten().tolist())
        assert len(fill) > 8


def test_a_prompt_stays_and_labels_are_classes() -> None:
    network, tokenizer = Recurrent(), PieceTokenizer((1,))
    model = standfast.CausalModel(
        network, tokenizer, labels=("yes", "no"), template="a film , {text} , great ?"
    )
    ids, _ = tokenizer.find_words("a film , dull story , great ?")
    with torch.no_grad():
        after = network(torch.tensor([ids]), torch.ones(1, len(ids), dtype=torch.bool))[0, -1]
    expected = after[[PIECES.index("yes"), PIECES.index("no")]]
    torch.testing.assert_close(model.logits(["dull story"])[0], expected, rtol=1e-5, atol=1e-5)
    found = standfast.explain(model, "input_x_gradient", ["dull story", "boring"], targets=0)
    assert [[word for word, _ in pairs] for pairs in found] == [["dull", "story"], ["boring"]]
    embedded = network.words(torch.tensor([ids])).detach().requires_grad_(True)
    score = network.head(network.mix(embedded)[0])[0, -1, PIECES.index("yes")]
    (gradient,) = torch.autograd.grad(score, embedded)
    by_token = (gradient * embedded).sum(2)[0]
    torch.testing.assert_close(
        torch.tensor([v for _, v in found[0]]), by_token[4:6], rtol=1e-3, atol=1e-5
    )


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"template": "no place"}, "template"),
        ({"labels": ("yes",)}, "labels"),
        ({"labels": ("yes", "yes")}, "labels"),
    ],
)
def test_prompts_that_do_not_fit(options: dict[str, Any], argument: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        standfast.CausalModel(Recurrent(), PieceTokenizer(), **options)
    assert caught.value.argument == argument


def test_the_answer_of_one_word() -> None:
    """The token of the word moves as words before it are left out, and the answer moves with it."""
    network, tokenizer = Recurrent(), PieceTokenizer((1,))
    model = standfast.TextModel(network, tokenizer, word=2)
    rows = model.encode(["boring great film , story"])
    changed = rows.clone()
    changed[0, 0] = GONE
    ids = [tokenizer.find_words(text)[0] for text in ("boring great film", "great film")]
    expected = [
        network(torch.tensor([own]), torch.ones(1, len(own), dtype=torch.bool))[0, -1]
        for own in ids
    ]
    found = model.make_model(rows).logits(torch.cat([rows, changed]))
    torch.testing.assert_close(found, torch.stack(expected), rtol=1e-5, atol=1e-5)
    values = standfast.explain(model, "saliency", ["boring great film , story"])[0]
    # what comes later is not read
    assert [value > 0 for _, value in values] == [
        True,
        True,
        True,
        False,
        False,
    ]


def test_units_of_explanations(bag: BagOfWords) -> None:
    text = "Boring film. A dull story"
    tokens = standfast.TextModel(bag, PieceTokenizer(), granularity="token")
    assert [word for word, _ in standfast.explain(tokens, "input_x_gradient", [text])[0]] == [
        *("Bor", "ing", "film", ".", "A", "dull", "story"),
    ]
    sentences = standfast.TextModel(bag, PieceTokenizer(), granularity="sentence")
    values = [
        value for _, value in standfast.explain(sentences, "input_x_gradient", [text], targets=1)[0]
    ]
    first, second = weigh(bag, "Boring film."), weigh(bag, "A dull story")
    assert values == pytest.approx([first] * 3 + [second] * 3, abs=1e-4)


def test_functions_of_the_users_get_strings(bag: BagOfWords) -> None:
    model = standfast.TextModel(bag, PieceTokenizer((1,)))
    seen: list[list[str]] = []

    def lengths(predict: Any, texts: list[str], classes: Any) -> list[list[int]]:
        seen.append(texts)
        assert predict(texts).shape == (len(texts), 2)
        return [[len(word) for word in text.split()] for text in texts]

    found = standfast.explain(model, lengths, ["a dull film", "dull"])
    assert [[value for _, value in pairs] for pairs in found] == [[1, 4, 4], [4]]
    with pytest.raises(ModelError, match="a number for each word"):
        standfast.explain(
            model, lambda predict, texts, classes: [[1.0]] * len(texts), ["a dull film"]
        )


class WrongTwin(nn.Module):
    """Two layers of embeddings: the first one is not what the answer depends on alone."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.more = nn.Embedding(len(PIECES), 4), nn.Embedding(len(PIECES), 4)
        self.head = nn.Linear(4, 2)

    def get_input_embeddings(self) -> nn.Embedding:
        return self.words

    def forward(self, ids: Tensor, attention_mask: Tensor) -> Tensor:
        found: Tensor = self.head(
            ((self.words(ids) + self.more(ids)) * attention_mask[..., None]).sum(1)
        )
        return found


def test_embeddings_that_do_not_give_the_same_logits_are_refused() -> None:
    model = standfast.TextModel(WrongTwin(), PieceTokenizer())
    with pytest.raises(ModelError, match="same logits"):
        standfast.explain(model, "saliency", ["a dull film"])
    assert len(standfast.explain(model, "occlusion", ["a dull film"])[0]) == 3


def test_what_does_not_go_in(bag: BagOfWords) -> None:
    model = standfast.TextModel(bag, PieceTokenizer())
    cases: list[tuple[str, Any]] = [
        ("inputs", lambda: standfast.explain(model, "occlusion", "a film")),
        ("inputs", lambda: standfast.explain(model, "occlusion", ["a film", " "])),
        ("inputs", lambda: standfast.explain(model, "occlusion", ["a film", None])),
        ("tokenizer", lambda: standfast.TextModel(bag, object()).predict(["a"])),
        ("granularity", lambda: standfast.TextModel(bag, PieceTokenizer(), granularity="letter")),  # type: ignore[arg-type]
        ("removal", lambda: standfast.TextModel(bag, PieceTokenizer(), removal="mask")),
        (
            "neighbourhood",
            lambda: standfast.evaluate(
                model, "occlusion", TEXTS, "worst_case", neighbourhood=standfast.LinfBall(0.1)
            ),
        ),
        ("metrics", lambda: standfast.evaluate(model, "occlusion", TEXTS, "local_lipschitz")),
        ("metrics", lambda: standfast.evaluate(model, "occlusion", TEXTS, "c_eval")),
        (
            "reference",
            lambda: standfast.evaluate(model, "occlusion", TEXTS, "aopc", reference=TEXTS),
        ),
    ]
    for argument, call in cases:
        with pytest.raises(ArgumentError) as caught:
            call()
        assert caught.value.argument == argument, caught.value


def test_removal_is_said_beside_each_metric_that_removes(bag: BagOfWords) -> None:
    model = standfast.TextModel(bag, PieceTokenizer(), removal=("delete",))
    options: dict[str, Any] = {"controls": False, "sanity": False, "progress": False}
    found = standfast.evaluate(model, "occlusion", TEXTS, ["aopc"], **options)
    assert found.manifest["about"]["removal"] == {"aopc (delete)": "delete"}


def test_a_process_that_has_not_read_the_texts_knows_their_words(
    bag: BagOfWords, tmp_path: Path
) -> None:
    model = standfast.TextModel(bag, PieceTokenizer((1,)))
    rows = model.encode(TEXTS)
    made = model.make_model(rows)
    (tmp_path / "model.pickle").write_bytes(pickle.dumps((made, rows)))
    code = "import pickle, sys; model, rows = pickle.load(open(sys.argv[1], 'rb')); print(model.logits(rows).tolist())"
    where = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(Path(text_networks.__file__).parent), *sys.path]),
    }
    command = [sys.executable, "-c", code, str(tmp_path / "model.pickle")]
    there = subprocess.run(command, capture_output=True, text=True, check=True, env=where)
    assert json.loads(there.stdout) == made.logits(rows).tolist()


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_columns_of_frames_are_texts_and_frames_are_not(bag: BagOfWords, library: str) -> None:
    frame = pytest.importorskip(library).DataFrame({"text": TEXTS, "label": [0, 1, 0]})
    model = standfast.TextModel(bag, PieceTokenizer())
    assert standfast.explain(model, "occlusion", frame["text"]) == standfast.explain(
        model, "occlusion", TEXTS
    )
    with pytest.raises(ArgumentError, match="a column of a data frame"):
        standfast.explain(model, "occlusion", frame)
    options: dict[str, Any] = {"sanity": False, "progress": False, "controls": False}
    found = standfast.evaluate(model, "occlusion", frame["text"], "aopc", **options)
    assert len(found.frame()) == 3


def test_networks_of_16_bits_read_the_same_words() -> None:
    network = BagOfWords(seed=10)
    whole = standfast.TextModel(network, PieceTokenizer()).logits(TEXTS)
    half = standfast.TextModel(copy.deepcopy(network).to(torch.bfloat16), PieceTokenizer())
    torch.testing.assert_close(half.logits(TEXTS), whole, rtol=0.05, atol=0.1)
    found = standfast.explain(half, "input_x_gradient", TEXTS[:1], targets=1)[0]
    expected = [weigh(network, word) for word, _ in found]
    assert [value for _, value in found] == pytest.approx(expected, rel=0.05, abs=0.1)


def test_a_text_near_another_has_some_of_its_words(bag: BagOfWords) -> None:
    model = standfast.TextModel(bag, PieceTokenizer())
    rows = model.encode([*TEXTS, "a a a"])
    made, others = model.make_model(rows), rows.roll(1, 0)
    near = made.move_towards(rows, others, 0.05)
    changed = near != rows
    assert changed.sum(1).tolist() == [1] * len(rows)
    assert bool((near[changed] == others[changed]).all())
    half = made.move_towards(rows, others, 0.5)
    assert bool(((half == rows) | (half == others)).all())


def test_the_checks_of_explainers_are_measured_on_texts() -> None:
    model = standfast.TextModel(
        standfast.zoo.load("transformer-sentences"), standfast.data.word_vectors()
    )
    texts, _ = standfast.data.film_reviews()
    asked = {
        "gradient": "input_x_gradient",
        "constant": lambda predict, texts, _: [[*range(len(t.split()))] for t in texts],
    }
    words = [
        " ".join(word.text for word in standfast.texts.split_words(text) if word.text.isalpha())
        for text in texts[:24]
    ]
    found = standfast.evaluate(
        model, asked, words, "aopc:preset=quick", controls=False, progress=False
    )
    states = {
        key[2]: {check.question: check.state for check in each.checks}
        for key, each in found.sanity.items()
    }
    for question in ("finite", "input", "model", "learned", "removal"):
        assert states["gradient"][question] == "passed"
    assert states["constant"]["input"] == "failed"
    assert states["constant"]["model"] == "failed"


def test_maps_do_not_depend_on_what_was_explained_before(bag: BagOfWords) -> None:
    """A control shuffles the weights, and with them the range of embeddings, by which SmoothGrad scales its noise."""
    asked = ["smoothgrad:samples=3", "randomised:smoothgrad:samples=3"]
    options: dict[str, Any] = {"sanity": False, "progress": False, "controls": False}
    found = []
    for explainers in (asked, asked[::-1]):
        model = standfast.TextModel(copy.deepcopy(bag), PieceTokenizer((1,)))
        frame = standfast.evaluate(model, explainers, TEXTS, "aopc", **options).frame()
        found.append(frame.sort("explainer", "sample")["value"].to_list())
    assert found[0] == found[1]


def test_a_text_without_candidates_stays_and_others_are_evaluated(bag: BagOfWords) -> None:
    model = standfast.TextModel(bag, PieceTokenizer())
    metric = standfast.metrics.WorstCase(TokenSwaps(0.5, {"great": ["flat"]}), budget=20)
    options: dict[str, Any] = {"sanity": False, "progress": False, "controls": False}
    found = standfast.evaluate(model, "input_x_gradient", TEXTS, metric, **options)
    assert found.failures == []
    assert found.samples.sort("sample")["status"].to_list()[0] == "unvaried"
    assert "ok" in found.samples["status"]
    with pytest.raises(ArgumentError, match="at least one word of the texts"):
        unknown = standfast.metrics.WorstCase(TokenSwaps(0.5, {"unseen": ["flat"]}), budget=20)
        standfast.evaluate(model, "input_x_gradient", TEXTS, unknown, **options)


class Reads(nn.Module):
    """The mean of embeddings, which looks at padding, or divides by zero, as it is told."""

    def __init__(self, careless: bool) -> None:
        super().__init__()
        self.careless, self.words = careless, nn.Embedding(len(PIECES), 2)

    def forward(self, ids: Tensor, present: Tensor) -> Tensor:
        there = torch.ones_like(present) if self.careless else present
        return (self.words(ids) * there[..., None]).sum(1) / there.sum(1, keepdim=True)


def test_networks_that_read_padding_or_fail_without_words_are_told() -> None:
    with pytest.raises(ModelError, match="with padding beside it"):
        standfast.TextModel(Reads(careless=True), PieceTokenizer()).predict(TEXTS)
    with pytest.warns(UserWarning, match="without words"):
        standfast.TextModel(Reads(careless=False), PieceTokenizer()).predict(TEXTS)


class Unmasked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(len(PIECES), 2)

    def forward(self, ids: Tensor) -> Tensor:
        return self.words(ids).sum(1)


def test_a_network_without_a_mask_gets_no_padding() -> None:
    network = Unmasked()
    expected = [network(torch.tensor([PieceTokenizer().find_words(text)[0]])) for text in TEXTS]
    found = standfast.TextModel(network, PieceTokenizer()).logits(TEXTS)
    torch.testing.assert_close(found, torch.cat(expected).detach())


@pytest.mark.parametrize("explainer", ["occlusion", "kernel_shap:samples=64", "input_x_gradient"])
def test_every_explainer_sums_over_sentences(bag: BagOfWords, explainer: str) -> None:
    text = "Boring film. A dull story"
    words = standfast.explain(
        standfast.TextModel(bag, PieceTokenizer()), explainer, [text], targets=1
    )[0]
    model = standfast.TextModel(bag, PieceTokenizer(), granularity="sentence")
    found = [value for _, value in standfast.explain(model, explainer, [text], targets=1)[0]]
    sums = [sum(value for _, value in part) for part in (words[:3], words[3:])]
    assert found == pytest.approx([sums[0]] * 3 + [sums[1]] * 3, abs=1e-4)


def test_parts_of_words_are_not_changed(bag: BagOfWords) -> None:
    model = standfast.TextModel(bag, PieceTokenizer(), granularity="token")
    rows = model.encode(["Boring film, dull"])
    region = standfast.neighbourhoods.Casing(0.9).around(rows)
    changed = region.perturb(torch.full(rows.shape, 0.99).double(), torch.tensor([0]))
    assert (changed != rows)[0].tolist() == [False, False, True, False, True]


def test_the_word_of_the_answer_stays_and_is_there() -> None:
    network, tokenizer = Recurrent(), PieceTokenizer((1,))
    with pytest.raises(ArgumentError) as caught:
        standfast.TextModel(network, tokenizer, word=9).logits(["boring great film , story"])
    assert caught.value.argument == "word"
    model = standfast.TextModel(network, tokenizer, word=2)
    rows = model.encode(["boring great film , story"])
    changed = (
        Deletion(0.9).around(rows).perturb(torch.full(rows.shape, 0.99).double(), torch.tensor([0]))
    )
    assert (changed == GONE)[0].tolist() == [True, True, False, True, True]
    with pytest.raises(ArgumentError) as caught:
        standfast.TextModel(network, tokenizer, word=2, removal="delete")
    assert caught.value.argument == "removal"


def test_words_that_are_retrieved_are_not_one_constant(bag: BagOfWords) -> None:
    model = standfast.TextModel(bag, PieceTokenizer(), removal="retrieve")
    for explainer in ("occlusion", "randomised:occlusion"):
        with pytest.raises(ArgumentError) as caught:
            standfast.explain(model, explainer, TEXTS)
        assert caught.value.argument == "removal"
    padding = standfast.TextModel(bag, PieceTokenizer(), removal="delete")
    explainer = "integrated_gradients:steps=4"
    assert standfast.explain(model, explainer, TEXTS) == standfast.explain(
        padding, explainer, TEXTS
    )
    assert len(standfast.explain(model, "kernel_shap:samples=30", TEXTS)) == 3


def test_names_of_explainers_and_lengths_of_texts(bag: BagOfWords) -> None:
    model = standfast.TextModel(bag, PieceTokenizer())
    with pytest.raises(ArgumentError, match="twice"):
        standfast.evaluate(model, ["occlusion", "occlusion"], TEXTS, "aopc")
    rows = model.encode(TEXTS)
    with pytest.raises(ArgumentError, match="texts of the same length"):
        standfast.metrics.AOPC()(model.make_model(rows), "occlusion", rows)


@pytest.mark.parametrize(
    ("task", "expected"), [("multi_label", torch.sigmoid), ("regression:tolerance=1", lambda x: x)]
)
def test_functions_get_what_the_task_reads(bag: BagOfWords, task: str, expected: Any) -> None:
    model, seen = standfast.TextModel(bag, PieceTokenizer(), task=task), []

    def keep(predict: Any, texts: list[str], answers: Any) -> list[list[float]]:
        seen.append(torch.from_numpy(predict(["a dull film"])))
        return [[0.0, 1.0, 2.0][: len(text.split())] for text in texts]

    standfast.explain(model, keep, ["a dull film"])
    torch.testing.assert_close(
        seen[0].flatten()[-1], expected(torch.tensor(weigh(bag, "a dull film"))).double()
    )


def test_a_data_set_with_a_column_of_texts(bag: BagOfWords) -> None:
    datasets = pytest.importorskip("datasets")
    model = standfast.TextModel(bag, PieceTokenizer())
    found = standfast.explain(
        model, "occlusion", datasets.Dataset.from_dict({"text": TEXTS, "label": [0, 1, 0]})
    )
    assert found == standfast.explain(model, "occlusion", TEXTS)
