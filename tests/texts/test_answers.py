"""Answers of language models: their score, what is kept, and that a row does not depend on its batch."""

from __future__ import annotations

import itertools
import math
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from small_answers import (
    SENTENCES,
    WORDS,
    BagOfWords,
    CopyingModel,
    make_llama,
    make_prompt,
    make_tokenizer,
    number,
)
from small_texts import make_network, transformers
from torch import Tensor, nn

import standfast
from standfast.errors import ArgumentError, ModelError, StandfastError
from standfast.explainers.adapters.other_prompts import OtherPromptExplainer
from standfast.neighbourhoods.text import GONE, Word, decode_word, encode_word
from standfast.study.file.spec import study_from
from standfast.study.identity import describe_model
from standfast.tasks import GeneratedAnswer
from standfast.tasks.base import count_parts, find_log_odds
from standfast.tasks.generated import EXPLAINED, MEAN, TOKENS
from standfast.texts.answer_network import find_answer_box
from standfast.texts.prompts import choose_other_answer, choose_other_question, find_statement
from standfast.texts.remembered import RememberedOutputs, read_state

ANSWER = "the bridge was built by Ann. it is old."
WEIGHTS = {"Ann": 1.5, "built": 0.75, "old": -0.5, "river": 0.25, "red": 0.4, "stone": -1.2}


def make_model(network: Any = None, **options: Any) -> standfast.AnswerModel:
    network = make_llama() if network is None else network
    return standfast.AnswerModel(network, make_tokenizer(), device="cpu", **options)


def list_coalitions(count: int) -> Tensor:
    """Which units each coalition has, bool `(2^count, count)`."""
    return torch.tensor(list(itertools.product([False, True], repeat=count)))


def write_context(prompt: standfast.Prompt, kept: list[bool]) -> str:
    parts = [sentence for sentence, keeps in zip(SENTENCES, kept, strict=True) if keeps]
    return f"user : Context: {' '.join(parts)}\n\nQuery: {prompt.question} ? Answer : "


def score_slowly(network: Any, text: str, answer: str) -> list[float]:
    """The log-probability of each token of an answer: one forward pass for each, of one row without padding."""
    tokenizer = make_tokenizer()
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    scores = []
    for token in tokenizer(answer, add_special_tokens=False)["input_ids"]:
        with torch.no_grad():
            logits = network(
                torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.int64)
            )
        logits = getattr(logits, "logits", logits)
        scores.append(float(logits[0, -1].double().log_softmax(0)[token]))
        ids = [*ids, token]
    return scores


def test_the_score_is_that_of_a_slow_loop() -> None:
    network, prompt = make_llama(), make_prompt(answer=ANSWER)
    model = make_model(network)
    made, rows = model.bind(prompt)
    for kept in ([True] * 5, [False, True, True, False, True], [False] * 5):
        row = torch.where(torch.tensor(kept), rows[0], float(GONE))[None]
        expected = score_slowly(network, write_context(prompt, kept), ANSWER)
        outputs = made.logits(row)[0]
        assert outputs[EXPLAINED].item() == pytest.approx(sum(expected), abs=1e-4)
        assert outputs[MEAN].item() == pytest.approx(sum(expected) / len(expected), abs=1e-5)
        assert outputs[TOKENS] == len(expected)
    pieces = model.score_tokens(prompt)
    assert [piece for piece, _ in pieces] == ANSWER.replace(".", " .").split()
    full = score_slowly(network, write_context(prompt, [True] * 5), ANSWER)
    assert [score for _, score in pieces] == pytest.approx(full, abs=1e-4)


@pytest.mark.parametrize(
    ("statement", "tokens"),
    [(None, range(11)), (1, range(7, 11)), ("built by", [3, 4]), ("Ann", [5]), ("old.", [9, 10])],
)
def test_a_statement_is_a_part_of_the_tokens(statement: Any, tokens: Any) -> None:
    network = make_llama()
    model = make_model(network)
    prompt = make_prompt(answer=ANSWER, statement=statement)
    each = score_slowly(network, write_context(prompt, [True] * 5), ANSWER)
    outputs = model.logits([prompt])[0]
    assert outputs[EXPLAINED].item() == pytest.approx(
        sum(each[token] for token in tokens), abs=1e-4
    )
    # of the whole answer, which is kept
    assert outputs[MEAN].item() == pytest.approx(sum(each) / len(each), abs=1e-5)
    assert outputs[TOKENS] == len(tokens)


def test_the_generated_answer_is_the_greedy_one() -> None:
    network, tokenizer = make_llama(), make_tokenizer()
    model = make_model(network, longest=9)
    prompt = make_prompt(answer=None)
    ids = tokenizer(
        write_context(prompt, [True] * 5), add_special_tokens=False, return_tensors="pt"
    )["input_ids"]
    answer = []
    for _ in range(9):
        with torch.no_grad():
            answer.append(
                int(
                    network(torch.cat([ids, torch.tensor([answer], dtype=torch.int64)], 1))
                    .logits[0, -1]
                    .argmax()
                )
            )
    with pytest.warns(UserWarning, match="the answer is cut at its most tokens"):
        assert model.answer(prompt) == tokenizer.decode(answer)
    assert model.write(prompt).answer == tuple(answer)
    peer = network.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=9, pad_token_id=0
    )
    assert peer[0, ids.shape[1] :].tolist() == answer


def test_the_first_tokens_are_kept_just_where_greedy_decoding_says_so() -> None:
    """By generating anew for each of the 32 contexts."""
    network = make_llama(seed=3)
    model = make_model(network, task="answer:first=2", longest=2)
    prompt = make_prompt(answer=None)
    with pytest.warns(UserWarning, match="cut at its most tokens"):
        made, rows = model.bind(prompt)
    coalitions = list_coalitions(5)
    outputs = made.logits(torch.where(coalitions, rows, float(GONE)))
    margins = made.task.margin(outputs, made.task.answer(outputs[-1:]).expand(32, -1))
    fixed = list(model.write(prompt).answer)
    kept = []
    for row in coalitions.tolist():
        ids = make_tokenizer()(
            write_context(prompt, row), add_special_tokens=False, return_tensors="pt"
        )["input_ids"]
        peer = network.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=2,
            pad_token_id=0,
        )
        kept.append(peer[0, ids.shape[1] :].tolist() == fixed)
    assert (margins < 0).tolist() == kept
    assert 0 < sum(kept) < 32
    assert "same first 2 tokens" in made.task.kept


def test_a_fall_of_the_mean_log_probability_is_another_answer() -> None:
    task = GeneratedAnswer(tolerance=0.25)
    clean = torch.tensor([[-4.0, -0.5, -1.0, 4.0]])
    answer = task.answer(clean)
    changed = torch.tensor(
        [[-4.0, -0.74, 9.0, 4.0], [-4.0, -0.76, -9.0, 4.0], [0.0, 0.0, 0.0, 4.0]]
    )
    assert (task.margin(changed, answer.expand(3, -1)) < 0).tolist() == [True, False, True]
    assert GeneratedAnswer().allowed_fall == 0.5
    assert bool(task.exists(clean, answer))
    with pytest.raises(ArgumentError, match="first: expected None beside a tolerance"):
        GeneratedAnswer(tolerance=0.5, first=3)
    with pytest.raises(ArgumentError, match="targets: expected None"):
        task.answer(clean, torch.tensor([0]))


def test_log_odds_of_an_answer() -> None:
    scores = torch.tensor([math.log(0.25), math.log(0.999), -200.0, 0.0], dtype=torch.float64)
    found = find_log_odds(GeneratedAnswer(), scores)
    assert found[:3].tolist() == pytest.approx([math.log(1 / 3), math.log(999), -200.0])
    assert bool(found.isfinite().all())
    assert count_parts(GeneratedAnswer(), torch.tensor([[0.0, 0.0, 0.0, 7.0]])).tolist() == [7.0]


# Batches


def read_rows(made: standfast.Model, rows: Tensor) -> Tensor:
    """The outputs, computed anew."""
    box = find_answer_box(made)
    assert box is not None
    box._outputs.clear()
    return made.logits(rows)


@pytest.mark.parametrize("architecture", ["LlamaForCausalLM", "GPT2LMHeadModel"])
@pytest.mark.parametrize("tokens", [None, 40, 333])
def test_a_row_does_not_depend_on_its_batch(architecture: str, tokens: int | None) -> None:
    """All contexts at once, each alone, in another order, and with other bounds of a batch: the same bits."""
    network = make_llama()
    # whose places are learned, so that padding at the left would move them
    if architecture == "GPT2LMHeadModel":
        config = {
            "vocab_size": len(make_tokenizer()),
            "n_embd": 16,
            "n_layer": 2,
            "n_head": 2,
            "n_positions": 512,
        }
        network = make_gpt2(**config)
    prompt = make_prompt(answer=ANSWER)
    reference, rows = make_model(network).bind(prompt)
    contexts = torch.where(list_coalitions(5), rows, float(GONE))
    together = read_rows(reference, contexts)
    made, _ = make_model(network, batch_tokens=tokens).bind(prompt)
    assert torch.equal(read_rows(made, contexts.flip(0)).flip(0), together)
    alone = torch.cat([read_rows(made, row[None]) for row in contexts])
    assert torch.equal(alone, together)
    assert torch.equal(read_rows(made, contexts[5:9]), together[5:9])


def make_gpt2(**options: Any) -> Any:
    package = pytest.importorskip("transformers")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return package.GPT2LMHeadModel(package.GPT2Config(**options, initializer_range=0.3)).eval()


def test_padding_at_the_left_and_a_cache_give_the_same_scores() -> None:
    """By transformers alone: a batch padded at the left, and the answer behind a prompt that is in a cache."""
    network, prompt, tokenizer = make_llama(), make_prompt(answer=ANSWER), make_tokenizer()
    made, rows = make_model(network).bind(prompt)
    kept = [[True] * 5, [False, True, False, False, False], [False] * 5]
    found = made.logits(torch.where(torch.tensor(kept), rows, float(GONE)))[:, EXPLAINED]
    answer = tokenizer(ANSWER, add_special_tokens=False)["input_ids"]
    prompts = [
        tokenizer(write_context(prompt, row), add_special_tokens=False)["input_ids"] for row in kept
    ]
    longest = max(map(len, prompts))
    ids = torch.tensor([[*[0] * (longest - len(own)), *own, *answer] for own in prompts])
    mask = torch.tensor(
        [[*[0] * (longest - len(own)), *[1] * (len(own) + len(answer))] for own in prompts]
    )
    places = (mask.cumsum(1) - 1).clamp(min=0)
    with torch.no_grad():
        logits = network(ids, attention_mask=mask, position_ids=places).logits[:, longest - 1 : -1]
        at_left = (
            logits.log_softmax(2).gather(2, torch.tensor([answer] * 3)[..., None])[..., 0].sum(1)
        )
        cached = []
        for own in prompts:
            start = network(torch.tensor([own]), use_cache=True)
            rest = network(torch.tensor([answer]), past_key_values=start.past_key_values)
            logits = torch.cat([start.logits[:, -1:], rest.logits[:, :-1]], 1)[0]
            cached.append(float(logits.log_softmax(1)[range(len(answer)), answer].sum()))
    torch.testing.assert_close(found, at_left, rtol=0, atol=1e-4)
    torch.testing.assert_close(found, torch.tensor(cached), rtol=0, atol=1e-4)


class Counting(nn.Module):
    """A network that says how many rows and tokens each of its batches has."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.config = network.config
        self.batches: list[tuple[int, int]] = []

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Any:
        self.batches.append(tuple(input_ids.shape))  # type: ignore[arg-type]
        return self.network(input_ids, attention_mask=attention_mask)


def test_batches_are_bounded_by_tokens_and_contexts_run_once() -> None:
    network = Counting(CopyingModel())
    made, rows = make_model(network, batch_tokens=120).bind(make_prompt())
    contexts = torch.where(list_coalitions(5), rows, float(GONE))
    network.batches.clear()
    read_rows(made, contexts)
    assert all(count == 1 or count * length <= 120 for count, length in network.batches)
    assert sum(count for count, _ in network.batches) == 32  # no row for padding
    network.batches.clear()
    made.logits(contexts.flip(0))
    assert network.batches == []


def test_other_weights_are_asked_again() -> None:
    network = BagOfWords(WEIGHTS)
    made, rows = make_model(network).bind(make_prompt())
    before = made.logits(rows)
    with torch.no_grad():
        network.words.weight[number("Ann"), 0] += 1
    assert made.logits(rows)[0, EXPLAINED] > before[0, EXPLAINED]
    own, seen = network.words.weight.data, []
    for shift in (0.1, 0.2, 0.3):
        network.words.weight.data = own + shift  # in the place of one that was freed
        seen.append(float(made.logits(rows)[0, EXPLAINED]))
        network.words.weight.data = own
    assert len(set(seen)) == 3


# Models whose truth is known


def test_shapley_values_of_an_additive_model() -> None:
    """The log-odds of the answer are the sum of the weights of the words, so that a sentence is worth its own."""
    model = make_model(BagOfWords(WEIGHTS))
    prompt = make_prompt()
    made, rows = model.bind(prompt)
    worth = [
        sum(WEIGHTS.get(word, 0.0) for word in sentence.replace(".", " .").split())
        for sentence in SENTENCES
    ]
    around = WEIGHTS["built"]  # of the question
    coalitions = list_coalitions(5)
    scores = made.logits(torch.where(coalitions, rows, float(GONE)))[:, EXPLAINED].double()
    log_odds = find_log_odds(made.task, scores)
    expected = (coalitions.double() @ torch.tensor(worth, dtype=torch.float64)) + around
    torch.testing.assert_close(log_odds, expected, rtol=1e-4, atol=1e-4)
    values = brute_force_shapley(scores, coalitions)
    found = [value for _, value in standfast.explain(model, "kernel_shap", prompt)]
    assert found == pytest.approx(values, abs=1e-4)
    found = [value for _, value in standfast.explain(model, "occlusion", prompt)]
    full = scores[-1]
    without = [
        scores[int((~torch.eye(5, dtype=torch.bool)[unit]).long() @ torch.tensor([16, 8, 4, 2, 1]))]
        for unit in range(5)
    ]
    assert found == pytest.approx([float(full - score) for score in without], abs=1e-5)


def brute_force_shapley(scores: Tensor, coalitions: Tensor) -> list[float]:
    """By the definition: the mean gain over all orders in which the units come."""
    count = coalitions.shape[1]
    worth = {
        tuple(row): float(score) for row, score in zip(coalitions.tolist(), scores, strict=True)
    }
    values = [0.0] * count
    for order in itertools.permutations(range(count)):
        present = [False] * count
        for unit in order:
            before = worth[tuple(present)]
            present[unit] = True
            values[unit] += (worth[tuple(present)] - before) / math.factorial(count)
    return values


@pytest.mark.parametrize(
    "explainer", ["occlusion", "kernel_shap", "shapley_sampling", "input_x_gradient"]
)
def test_the_sentence_that_is_copied_is_named(explainer: str) -> None:
    model = make_model(CopyingModel(), longest=1)
    with pytest.warns(UserWarning, match="cut at its most tokens"):
        cited = standfast.explain(model, explainer, "Who built the bridge", documents=SENTENCES[:4])
    best = max(cited, key=lambda part: part[1])
    assert best[0] == "the bridge was built by Ann."
    assert cited.answer.startswith("Ann")
    printed = str(cited).splitlines()
    assert printed[0] == "Q: Who built the bridge"
    assert printed[3].endswith("the bridge was built by Ann.")


@pytest.mark.filterwarnings("ignore:the answer is cut")
@pytest.mark.parametrize(
    "explainer", ["saliency", "integrated_gradients:steps=4", "input_x_gradient"]
)
def test_gradients_by_embeddings_are_those_of_autograd(explainer: str) -> None:
    network = make_llama()
    prompt = make_prompt(answer="by Ann")
    found = [value for _, value in standfast.explain(make_model(network), explainer, prompt)]
    if explainer != "input_x_gradient":
        assert all(map(math.isfinite, found))
        return
    ids = make_tokenizer()(f"{write_context(prompt, [True] * 5)}by Ann", add_special_tokens=False)[
        "input_ids"
    ]
    vectors = network.model.embed_tokens(torch.tensor([ids])).detach().requires_grad_(True)
    logits = network(inputs_embeds=vectors).logits[0].log_softmax(1)
    (logits[-3, ids[-2]] + logits[-2, ids[-1]]).backward()
    relevance = (vectors * vectors.grad).sum(2)[0].tolist()
    start = len(make_tokenizer()("user : Context:", add_special_tokens=False)["input_ids"])
    for value, sentence in zip(found, SENTENCES, strict=True):
        count = len(make_tokenizer()(sentence, add_special_tokens=False)["input_ids"])
        assert value == pytest.approx(sum(relevance[start : start + count]), abs=1e-4)
        start += count


# Prompts


def test_units_of_a_context() -> None:
    documents = ["Ann built it. Bob said so.\nA heading\nMore text", "It is old."]
    prompt = standfast.Prompt("Who?", documents)
    assert [word.text for word in prompt.split("passage")] == documents
    sentences = ["Ann built it.", "Bob said so.", "A heading", "More text", "It is old."]
    assert [word.text for word in prompt.split("sentence")] == sentences
    assert [word.gap for word in prompt.split("sentence")] == ["", " ", "\n", "\n", "\n\n"]
    words = [word.text for word in prompt.split("word")]
    assert words[:4] == ["Ann", "built", "it", "."]
    for unit in ("word", "sentence", "passage"):
        assert "".join(word.gap + word.text for word in prompt.split(unit)) == "\n\n".join(
            documents
        )


@pytest.mark.parametrize("granularity", ["word", "sentence", "passage"])
def test_each_unit_has_a_number(granularity: Any) -> None:
    model = make_model(BagOfWords(WEIGHTS), granularity=granularity)
    prompt = standfast.Prompt("Who built the bridge", SENTENCES, answer="Ann")
    cited = standfast.explain(model, "occlusion", prompt)
    assert [text for text, _ in cited] == [unit.text for unit in prompt.split(granularity)]
    assert len(cited) == {"word": 32, "sentence": 5, "passage": 5}[granularity]


def test_a_system_prompt_and_a_plain_prompt() -> None:
    model = make_model(BagOfWords(WEIGHTS))
    written = model.write(make_prompt(system="it is"))
    assert written.before == "system : it is ? user : Context: "
    assert written.after == "\n\nQuery: Who built the bridge ? Answer : "
    plain = standfast.AnswerModel(
        BagOfWords(WEIGHTS), make_tokenizer(chat=False), chat=False, device="cpu"
    )
    written = plain.write(make_prompt(system="it is"))
    assert written.before == "it is\n\nContext: "
    assert written.after == "\n\nQuery: Who built the bridge\n\nAnswer:"
    assert written.answer == (number("Ann"),)
    own = make_model(BagOfWords(WEIGHTS), template="{question} ? {documents}").write(make_prompt())
    assert own.before == "user : Who built the bridge ? "


def test_a_slip_in_a_sentence_is_one_in_one_of_its_words() -> None:
    typos = standfast.neighbourhoods.Typos(rate=0.5)
    row = torch.tensor([[encode_word(Word("Ann built it.", " "))]], dtype=torch.float64)
    region = typos.around(row)
    points = torch.linspace(0.51, 0.99, 200, dtype=torch.float64)[:, None]
    changed = {
        decode_word(code).text
        for code in region.perturb(points, torch.zeros(200, dtype=torch.int64))[:, 0].tolist()
    }
    assert changed == {f"Ann {slip} it." for slip in typos.candidates("built")}
    deletion = standfast.neighbourhoods.Deletion(rate=0.5).around(row)
    left = {
        decode_word(code).text
        for code in deletion.perturb(points, torch.zeros(200, dtype=torch.int64))[:, 0].tolist()
    }
    assert left == {"built it.", "Ann it.", "Ann built.", "Ann built it"}


def make_without_chat() -> Any:
    return standfast.AnswerModel(
        BagOfWords(WEIGHTS), make_tokenizer(chat=False), device="cpu"
    ).write(make_prompt())


def make_forgetful() -> Any:
    tokenizer = pickle.loads(pickle.dumps(make_tokenizer()))
    tokenizer.chat_template = "{{ messages[0]['role'] }} : Answer : "
    return standfast.AnswerModel(BagOfWords(WEIGHTS), tokenizer, device="cpu").write(make_prompt())


def make_strict() -> Any:
    tokenizer = pickle.loads(pickle.dumps(make_tokenizer()))
    tokenizer.chat_template = "{{ raise_exception('no system role') }}"
    return standfast.AnswerModel(BagOfWords(WEIGHTS), tokenizer, device="cpu").write(
        make_prompt(system="it is")
    )


class Silent(BagOfWords):
    """It ends every answer at once."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return super().forward(input_ids, attention_mask) + 1e5 * (
            torch.arange(len(self.words.weight)) == 1
        )


BAD: dict[str, tuple[Any, type[Exception], str]] = {
    "no documents": (
        lambda: standfast.Prompt("Who?", []),
        ArgumentError,
        "documents: expected at least one text",
    ),
    "an empty document": (
        lambda: standfast.Prompt("Who?", ["a", " "]),
        ArgumentError,
        "documents: .*got ' '$",
    ),
    "no question": (
        lambda: standfast.Prompt(" ", ["a"]),
        ArgumentError,
        "question: expected a text",
    ),
    "an empty answer": (
        lambda: make_prompt(answer=""),
        ArgumentError,
        "answer: expected a text .*got ''$",
    ),
    "another statement": (
        lambda: make_prompt(answer="by Ann", statement="by Bob"),
        ArgumentError,
        "statement: expected a part of the answer 'by Ann', got 'by Bob'",
    ),
    "no such sentence": (
        lambda: make_prompt(answer="by Ann", statement=2),
        ArgumentError,
        "statement: .*one of the 1",
    ),
    "no chat template": (
        make_without_chat,
        ArgumentError,
        r"tokenizer: expected one with a chat template .*chat=False",
    ),
    "no documents in the template": (
        make_forgetful,
        ArgumentError,
        "tokenizer: .*writes the documents once.*0 times",
    ),
    "no such role": (
        make_strict,
        ArgumentError,
        "tokenizer: .*takes the roles system, user, got TemplateError",
    ),
    "an answer that ends at once": (
        lambda: make_model(Silent(WEIGHTS)).answer(make_prompt(answer=None)),
        ModelError,
        r"model: expected an answer of at least one word.*Prompt\(answer=",
    ),
    "a prompt that is too long": (
        lambda: make_model(CopyingModel()).write(make_prompt(SENTENCES * 30)),
        ArgumentError,
        "prompt: expected at most the 512 tokens that the model takes, got 9[0-9][0-9] with an answer of 1",
    ),
    "a template without a question": (
        lambda: make_model(template="{documents}"),
        ArgumentError,
        "template: expected a text with {documents} and {question} once each",
    ),
    "a task of classes": (
        lambda: make_model(task="classification"),
        ArgumentError,
        "task: expected 'answer'",
    ),
    "a question alone": (
        lambda: standfast.explain(make_model(BagOfWords(WEIGHTS)), "occlusion", "Who built it"),
        ArgumentError,
        "documents: expected a list of texts, which is the context of the question, got none",
    ),
    "texts": (
        lambda: standfast.evaluate(
            make_model(BagOfWords(WEIGHTS)), "occlusion", ["a text"], "aopc", progress=False
        ),
        ArgumentError,
        "inputs: expected a Prompt, or several",
    ),
    "a function": (
        lambda: standfast.explain(
            make_model(BagOfWords(WEIGHTS)), lambda predict, texts, targets: [], make_prompt()
        ),
        ArgumentError,
        "explainer: expected an explainer of standfast for answers",
    ),
    "no logits of tokens": (
        lambda: make_model(make_network("BertForSequenceClassification", "bytes")).logits(
            [make_prompt()]
        ),
        ModelError,
        r"model: expected a language model, with logits \(N, T, V\)",
    ),
}


@pytest.mark.parametrize("case", list(BAD))
def test_bad_input_is_one_clear_sentence(case: str) -> None:
    call, kind, words = BAD[case]
    with pytest.raises(kind, match=words) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_whole_answers_as_labels_are_told_of_answers() -> None:
    with pytest.warns(
        UserWarning, match=r"beginnings of answers are compared.*standfast\.AnswerModel"
    ):
        standfast.CausalModel(
            make_llama(),
            make_tokenizer(),
            labels=("the bridge is old", "Bob said that"),
            device="cpu",
        )


def test_where_a_statement_stands() -> None:
    answer = "Ann did. In May. Ann did."
    assert find_statement(answer, None) == (0, len(answer))
    assert find_statement(answer, 2) == (17, 25)
    assert find_statement(answer, "Ann did.") == (0, 8)


# Everything that takes texts takes answers


def test_evaluate_takes_prompts_of_different_lengths() -> None:
    prompts = [
        make_prompt(answer="by Ann"),
        make_prompt(SENTENCES[:4], answer="Bob"),
        make_prompt(SENTENCES[1:]),
    ]
    metrics = ["aopc", "worst_case:budget=20"]
    options: dict[str, Any] = {"sanity": False, "progress": False}
    found = standfast.evaluate(
        make_model(), ["occlusion", "kernel_shap"], prompts, metrics, **options
    )
    assert found.failures == []
    alone = standfast.evaluate(make_model(), ["occlusion"], prompts[1:2], metrics, **options)
    for name in ("aopc (delete)", "worst_case:budget=20"):
        assert read_values(found, name, sample=1) == read_values(alone, name, sample=0)


def read_values(found: standfast.Results, label: str, sample: int) -> list[float]:
    rows = found.samples
    is_asked = (
        (rows["label"] == label) & (rows["explainer"] == "occlusion") & (rows["sample"] == sample)
    )
    values: list[float] = rows.filter(is_asked)["value"].to_list()
    assert len(values) == 1
    return values


def test_aopc_is_the_mean_fall_of_the_log_probability() -> None:
    network, prompt = make_llama(), make_prompt(answer="by Ann")
    model = make_model(network)
    values = [value for _, value in standfast.explain(model, "occlusion", prompt)]
    options: dict[str, Any] = {"sanity": False, "controls": False, "progress": False}
    found = standfast.evaluate(model, "occlusion", [prompt], "aopc", **options)
    kept = [True] * 5
    scores = [sum(score_slowly(network, write_context(prompt, kept), "by Ann"))]
    for unit in sorted(range(5), key=lambda unit: -values[unit]):
        kept[unit] = False
        scores.append(sum(score_slowly(network, write_context(prompt, kept), "by Ann")))
    expected = sum(scores[0] - score for score in scores) / 6
    assert found.frame()["value"].item() == pytest.approx(expected, abs=1e-3)


def test_a_study_file_and_pickles(tmp_path: Path) -> None:
    (tmp_path / "asked.py").write_text(
        "from small_answers import *\nimport standfast\n"
        "def load():\n"
        "    prompts = [make_prompt(answer='by Ann'), make_prompt(SENTENCES[:4], answer='Bob')]\n"
        "    return standfast.texts.Prompts(prompts)\n"
        "def build():\n    return standfast.AnswerModel(make_llama(), make_tokenizer(), device='cpu')\n"
    )
    content = {
        "data": {"asked": {"function": "asked:load"}},
        "models": {"llama": {"function": "asked:build"}},
        "explainers": ["occlusion"],
        "metrics": ["aopc"],
        "sanity": False,
        "controls": False,
    }
    found = standfast.run_study(study_from(content, tmp_path), tmp_path / "out", progress=False)
    assert found.failures == []
    prompts = [make_prompt(answer="by Ann"), make_prompt(SENTENCES[:4], answer="Bob")]
    options: dict[str, Any] = {"sanity": False, "controls": False, "progress": False}
    python = standfast.evaluate(make_model(), "occlusion", prompts, "aopc", **options)
    assert python.frame()["value"].to_list() == found.frame()["value"].to_list()
    made, rows = make_model().bind(prompts[0])
    again = pickle.loads(pickle.dumps(made))
    assert torch.equal(again.logits(rows), made.logits(rows))


def test_controls_explain_another_answer_and_an_unrelated_question() -> None:
    model, prompt = make_model(make_llama(seed=1)), make_prompt(answer="by Ann")
    bound, rows = model.bind(prompt)
    own = standfast.explainers.get("occlusion")
    found = {}
    for other in ("answer", "question"):
        control = OtherPromptExplainer(own, other)  # type: ignore[arg-type]
        found[other] = control(bound, rows)
    same_prompt = make_prompt(answer="I do not know.")
    unrelated = standfast.Prompt("What is two plus two?", prompt.documents, answer="Four.")
    for other, expected in (("answer", same_prompt), ("question", unrelated)):
        values = [value for _, value in standfast.explain(model, "occlusion", expected)]
        assert found[other][0].tolist() == pytest.approx(values, abs=1e-6)
    assert not torch.allclose(found["answer"], own(bound, rows))
    options: dict[str, Any] = {"sanity": False, "progress": False}
    evaluated = standfast.evaluate(model, "occlusion", [prompt], "aopc", **options)
    assert list(evaluated.manifest["controls"]) == [
        "random",
        "randomised:occlusion",
        "other_answer:occlusion",
        "other_question:occlusion",
    ]
    with pytest.raises(ArgumentError, match="model: expected an AnswerModel"):
        OtherPromptExplainer(own)(standfast.Model(nn.Linear(3, 2), (0.0, 1.0)), torch.ones(1, 3))


class Adapted(nn.Module):
    """A network with an adapter, which is turned on and off without another weight."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network, self.active = network, "none"

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        logits: Tensor = self.network(input_ids, attention_mask)
        return 2 * logits if self.active == "double" else logits


def test_what_changes_a_network_without_its_weights_is_asked_again() -> None:
    network = Adapted(CopyingModel())
    network.register_buffer("unused", torch.zeros(1))
    made, rows = make_model(network).bind(make_prompt())
    before = made.logits(rows)
    network.active = "double"
    assert not torch.equal(made.logits(rows), before)
    network.active = "none"
    handle = network.register_forward_hook(lambda part, args, out: 0.5 * out)
    assert not torch.equal(made.logits(rows), before)
    handle.remove()
    assert torch.equal(made.logits(rows), before)
    unused = network.get_buffer("unused")
    state = read_state(network)
    unused += 1
    assert read_state(network) != state


def test_a_network_of_inference_mode_and_networks_with_other_embeddings() -> None:
    with torch.inference_mode():
        llama = make_llama()
    expected = standfast.explain(make_model(), "occlusion", make_prompt())
    assert standfast.explain(make_model(llama), "occlusion", make_prompt()) == expected

    class WithPlaces(CopyingModel):
        def __init__(self) -> None:
            super().__init__()
            self.places = nn.Embedding(512, 4)

    class OneHot(CopyingModel):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Module()
            self.words.forward = lambda ids: nn.functional.one_hot(
                ids, len(make_tokenizer())
            ).float()

    expected = standfast.explain(make_model(CopyingModel()), "occlusion", make_prompt())
    for network in (WithPlaces(), OneHot()):
        assert standfast.explain(make_model(network), "occlusion", make_prompt()) == expected
    with pytest.raises(StandfastError, match="embedding"):
        standfast.explain(make_model(WithPlaces()), "saliency", make_prompt())


def test_memory_is_bounded_over_all_prompts() -> None:
    memory = RememberedOutputs(room=5000)
    for group in range(4):
        memory.add(group, {bytes([group, row]): torch.zeros(4) for row in range(3)})
        assert memory.taken <= 5000
    assert [len(memory.find(group)) for group in range(4)] == [0, 0, 3, 3]
    memory.find(2)  # the other one is forgotten first
    memory.add(5, {bytes([5, row]): torch.zeros(4) for row in range(3)})
    assert [len(memory.find(group)) for group in (2, 3, 5)] == [3, 0, 3]
    # more than there is room for
    memory.add(6, {bytes([6, row]): torch.zeros(4) for row in range(99)})
    assert memory.taken <= 5000
    model = make_model(CopyingModel())
    boxes = []
    for number_of_prompt in range(12):
        bound, rows = model.bind(make_prompt(answer=WORDS[8 + number_of_prompt]))
        bound.logits(torch.where(list_coalitions(5), rows, float(GONE)))
        boxes.append(find_answer_box(bound))
    known = [len(box.reader._known) for box in boxes if box is not None]
    assert known == [0] * 4 + [32] * 8
    memories = {id(box._outputs) for box in boxes if box is not None}
    assert len(memories) == 1


def make_letters() -> Any:
    """A tokenizer of letters that begins each text with a blank, as those of Llama 2 and Mistral do."""
    tk = pytest.importorskip("tokenizers", reason="needs tokenizers")
    letters = sorted({*"▁\n?.:", *"".join(WORDS), *"useraitn"})
    vocabulary = {
        letter: place for place, letter in enumerate(["<pad>", "<end>", "<unk>", *letters])
    }
    tokenizer = tk.Tokenizer(tk.models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>"))
    tokenizer.pre_tokenizer = tk.pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = tk.decoders.Metaspace(prepend_scheme="always")
    wrapped = transformers().PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="<end>",
        unk_token="<unk>",
        model_max_length=512,
    )
    wrapped.chat_template = "{% for message in messages %}{{ message['content'] }}\n{% endfor %}"
    return wrapped


def test_an_answer_that_is_given_has_the_tokens_that_follow_the_prompt() -> None:
    """No blank between the line break of the template and the answer, which the same text alone would begin with."""
    tokenizer = make_letters()
    model = standfast.AnswerModel(make_llama(vocab_size=len(tokenizer)), tokenizer, device="cpu")
    written = model.write(make_prompt(answer="Ann did", statement="did"))
    assert tokenizer.convert_ids_to_tokens(list(written.answer)) == [*"Ann▁did"]
    assert written.explained == (4, 5, 6)


@pytest.mark.filterwarnings("ignore:the answer is cut")
def test_a_trained_network_answers_anew() -> None:
    network, prompt = make_llama(), make_prompt(answer=None)
    model = make_model(network, longest=4)
    before = model.answer(prompt)
    calls: list[int] = []
    handle = network.register_forward_hook(lambda *_: calls.append(1))
    model.answer(prompt)
    count = len(calls)
    assert model.answer(prompt) == before
    assert len(calls) == count  # it is generated once
    handle.remove()
    with torch.no_grad():
        for weight in network.parameters():
            weight.copy_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)))
    after = model.answer(prompt)
    assert after != before
    assert after == make_model(network, longest=4).answer(prompt)
    assert standfast.explain(model, "occlusion", prompt).answer == after


def test_an_answer_that_the_window_cuts_is_told() -> None:
    model = make_model(make_llama(max_position_embeddings=60), longest=64)
    with pytest.warns(
        UserWarning,
        match="the answer is cut after .* tokens, since the model takes 60 with its prompt",
    ):
        model.answer(make_prompt(answer=None))


def test_a_control_asks_something_else_than_the_prompt() -> None:
    """Where a model says that it does not know, the control of another answer had been the explanation itself."""
    model = make_model()
    written = model.write(make_prompt(answer="I do not know"))
    usual = model.write(make_prompt(answer="Ann"))
    assert written.other_answer is not None
    assert usual.other_answer is not None
    assert written.other_answer.answer != usual.other_answer.answer
    assert choose_other_answer("I do not know") != choose_other_answer("Ann") == "I do not know."
    assert choose_other_question("what is two plus two") != choose_other_question("Who?")


def test_models_that_write_prompts_in_other_words_are_other_models() -> None:
    """Also where a network answers the whole context alike; the prompts that were asked before do not count."""
    network = CopyingModel()

    def describe(*asked: standfast.Prompt, **options: Any) -> Any:
        model = make_model(network, **options)
        for prompt in asked:
            model.bind(prompt)
        bound = model.make_model(model.encode([make_prompt()]), prompts=[make_prompt()])
        return describe_model(bound, {}).without_versions

    usual = describe()
    assert describe(make_prompt(answer="Bob")) == usual
    for options in (
        {"template": "{documents}\n\nQuery: {question}"},
        {"chat": False},
        {"task": "answer:first=1"},
    ):
        assert describe(**options) != usual


def test_questions_and_short_contexts_are_told_in_words_of_the_user() -> None:
    model = make_model()
    with pytest.raises(
        ArgumentError, match="documents: expected one question beside them, or a list of standfast"
    ):
        standfast.explain(model, "occlusion", ["Who?", "Why?"], documents=["It is old."])
    with pytest.raises(ArgumentError, match="at least 2 .* parts of a context, got 1"):
        standfast.explain(
            model, "context_cite", standfast.Prompt("Who?", ["it is old."], answer="Ann")
        )
