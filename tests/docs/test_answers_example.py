"""The example of answers: its steps on a model that copies, and with SmolLM2 where its package is installed."""

from __future__ import annotations

import importlib
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest
from small_answers import CopyingModel, make_prompt, make_tokenizer
from small_texts import transformers

import standfast

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXAMPLES))
        found = importlib.import_module("answers")
    del sys.modules["answers"]
    return found


def test_the_sentence_that_is_copied_is_cited_and_holds(example: ModuleType) -> None:
    model = standfast.AnswerModel(CopyingModel(), make_tokenizer(), device="cpu")
    found = example.cite(model, make_prompt(), ablations=32, cited=1)
    text = example.describe(found, 1)
    assert "cited: the bridge was built by Ann.\ngrounded: " in text
    assert found["lds"].value[0] > 0.7


@pytest.fixture(scope="module")
def smollm2(example: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> standfast.AnswerModel:
    """The model of the example, from where it is kept, or else read from its package."""
    transformers()
    kept = example.find_kept()
    if not kept.exists():
        for package in (example.PACKAGE, "gguf", "accelerate"):
            if find_spec(package) is None:
                pytest.skip(f"needs {package}: see examples/answers.py")
        kept = tmp_path_factory.mktemp("smollm2") / "model"
    model: standfast.AnswerModel = example.load(kept)
    return model


@pytest.mark.slow
def test_smollm2_cites_the_sentences_that_have_the_answer(
    example: ModuleType, smollm2: standfast.AnswerModel
) -> None:
    prompt = standfast.Prompt(example.QUESTION, example.DOCUMENTS)
    assert len(smollm2.split([prompt])[0]) == 10
    found = example.cite(smollm2, prompt, ablations=32, cited=2)
    best = sorted(found["cited"], key=lambda part: -part[1])[:2]
    assert any("Lindqvist" in text or "1931" in text for text, _ in best)
    assert found["groundedness"].grounded.tolist() == [1.0]
    assert found["groundedness"].describe().startswith("grounded")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the answer is cut")
@pytest.mark.parametrize(
    ("question", "grounded"),
    [
        ("In which year was the bridge of Halden opened?", True),
        ("What museum does the town have?", True),
        ("What is the capital of France?", False),
        ("Which ocean lies between Europe and America?", False),
        ("How many days are in a week?", False),
    ],
)
def test_smollm2_is_grounded_where_the_answer_is_in_the_context_alone(
    example: ModuleType, smollm2: standfast.AnswerModel, question: str, grounded: bool
) -> None:
    bound, rows = smollm2.bind(standfast.Prompt(question, example.DOCUMENTS))
    gone = float(smollm2.find_removed("delete"))
    metric = standfast.metrics.Groundedness(cited=1, draws=8, baseline=gone)
    assert metric(bound, "random", rows).grounded.tolist() == [float(grounded)]
