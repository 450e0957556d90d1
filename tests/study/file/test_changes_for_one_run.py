"""`--set`: other values of a study file for one run."""

from __future__ import annotations

from pathlib import Path

import pytest

from standfast.errors import ArgumentError
from standfast.study.file.document import StudyError
from standfast.study.file.spec import load_study

STUDY = """
samples: 20
data: [digits]
models: [lenet5-mnist]
neighbourhood: {linf: 0.1}
explainers: [saliency]
metrics: {worst: worst_case}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "study.yaml"
    path.write_text(STUDY)
    return path


def test_a_value_is_replaced_and_the_file_stays(file: Path) -> None:
    study = load_study(
        file,
        changes=["samples=80", "neighbourhood=[{brightness: 0.2}, {jpeg: [30, 90]}]", "seed=3"],
    )
    assert (study.samples, study.seed) == (80, 3)
    assert list(study.metrics) == ["worst: brightness 0.2", "worst: jpeg 30 to 90"]
    assert file.read_text() == STUDY


def test_an_entry_is_added_to_a_list_or_a_mapping(file: Path) -> None:
    changes = [
        "explainers+={smoothgrad: {times_input: true}}",
        "explainers+=lrp",
        "metrics+=aopc",
        "controls+=random",
    ]
    study = load_study(file, changes=changes)
    assert list(study.explainers) == ["saliency", "smoothgrad", "lrp"]
    assert list(study.metrics) == ["worst", "aopc"]
    assert list(study.named_controls) == ["random"]


def make_copies(rounds: int) -> str:
    """A short text that aliases make long: nine times as long with each round."""
    lists = [
        f"b{number}: &b{number} [{', '.join([f'*b{number - 1}'] * 9)}]"
        for number in range(1, rounds + 1)
    ]
    return f"{{b0: &b0 [x], {', '.join(lists)}}}"


@pytest.mark.parametrize(
    "change",
    [
        "samples",
        "=80",
        "samples=",
        "samples=[",
        "a b=3",
        "samples=!!python/none x",
        "samples=2001-99-99",
        "samples=!!int x",
        f"samples={'9' * 5000}",
        f"samples={'[' * 600}",  # the parser takes the square of their number
        "samples=&all [*all]",
        "samples={a: 1, a: 2}",
        f"samples={make_copies(20)}",
    ],
    ids=lambda change: change[:30],
)
def test_another_form_is_refused(file: Path, change: str) -> None:
    with pytest.raises(ArgumentError, match="set: expected KEY=VALUE"):
        load_study(file, changes=[change])


def test_what_does_not_fit_is_an_error_of_the_study(file: Path) -> None:
    with pytest.raises(StudyError, match=r"(?s)sampels: .*did you mean 'samples'"):
        load_study(file, changes=["sampels=80"])
    with pytest.raises(StudyError, match="\n  samples: expected a number of at least 1, got -1"):
        load_study(file, changes=["samples=-1"])


def test_an_entry_that_is_there_is_not_replaced(file: Path) -> None:
    with pytest.raises(
        ArgumentError, match="set: expected a name that the study does not have yet, got 'worst'"
    ):
        load_study(file, changes=["metrics+={worst: {budget: 3}}"])
