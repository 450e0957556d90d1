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


@pytest.mark.slow
def test_smollm2_cites_the_sentences_that_have_the_answer(
    example: ModuleType, tmp_path_factory: pytest.TempPathFactory
) -> None:
    transformers()
    for package in (example.PACKAGE, "gguf", "accelerate"):
        if find_spec(package) is None:
            pytest.skip(f"needs {package}: see examples/answers.py")
    model = example.load(tmp_path_factory.mktemp("smollm2") / "model")
    prompt = standfast.Prompt(example.QUESTION, example.DOCUMENTS)
    assert len(model.split([prompt])[0]) == 10
    found = example.cite(model, prompt, ablations=32, cited=2)
    best = sorted(found["cited"], key=lambda part: -part[1])[:2]
    assert any("Lindqvist" in text or "1931" in text for text, _ in best)
    assert found["groundedness"].grounded.tolist() == [1.0]
    assert found["groundedness"].describe().startswith("grounded")
