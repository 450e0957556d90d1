"""A fourth kind of inputs is one more file of another package; `evaluate` and study files both take it."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from event_sequences import EventInputs, EventModel, EventSequences
from sklearn.linear_model import LogisticRegression
from torch import nn

import standfast
from standfast.errors import ArgumentError
from standfast.question.frames import GivenFrame, _join_tables
from standfast.question.inputs import Given, find_given_kind, find_kind, kinds
from standfast.question.question import KINDS
from standfast.study.file.document import StudyError
from standfast.study.file.spec import study_from

SEQUENCES = EventSequences((("start", "turn", "stop", "wait"), ("start", "wait", "wait", "turn")))


def score(sequences: list[list[str]]) -> Any:
    turns = np.array(
        [
            [0.9, 0.5, 0.1, 0.3][events.index("turn") if "turn" in events else 3]
            for events in sequences
        ]
    )
    return np.stack([turns, 1 - turns], 1)


MODELS = (EventModel(score), nn.Linear(4, 2), standfast.Model(nn.Linear(4, 2), (0.0, 1.0)))
NO_INPUTS = ([1, 2, 3], {"events": ["start"]}, None, "start", np.zeros((2, 4)))


@pytest.fixture
def plug_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    point = EntryPoint("events", "event_sequences:EventInputs", "standfast.inputs")
    monkeypatch.setitem(kinds.plugins, "events", point)
    yield
    kinds._entries.pop("events", None)


def test_the_kinds_of_this_package() -> None:
    assert {kind.name for kind in KINDS} <= set(kinds.names())
    assert find_kind(torch.zeros(2, 3), [object()]).name == "tensors"
    assert find_given_kind("no data") is None


@pytest.mark.usefixtures("plug_in")
@pytest.mark.parametrize("inputs", NO_INPUTS, ids=["list", "mapping", "none", "text", "array"])
@pytest.mark.parametrize("model", MODELS, ids=["events", "module", "model"])
def test_inputs_of_no_kind_are_an_error_about_inputs(model: Any, inputs: Any) -> None:
    with pytest.raises(ArgumentError) as caught:
        standfast.evaluate(model, "occlusion", inputs, "aopc", progress=False)
    assert caught.value.argument == "inputs"
    for name in kinds.names():
        assert (kinds[name].forms or kinds[name].words) in caught.value.expected
    assert str(caught.value.got).startswith(type(inputs).__name__)


def test_numbers_beside_an_estimator_are_to_be_a_frame() -> None:
    rows = np.arange(12.0).reshape(6, 2)
    estimator = LogisticRegression().fit(rows, np.arange(6) % 2)
    with pytest.raises(
        ArgumentError, match=r"^inputs: .*, got ndarray beside LogisticRegression, whose"
    ):
        standfast.evaluate(estimator, "occlusion", rows, "aopc", progress=False)


@pytest.mark.usefixtures("plug_in")
def test_evaluate_takes_a_kind_of_a_plug_in() -> None:
    assert find_kind(SEQUENCES, []) is EventInputs
    options: dict[str, Any] = {"sanity": False, "progress": False, "neighbourhood": None}
    metrics = ["worst_case:budget=20,similarity=spearman", "aopc:steps=2,samples=2"]
    found = standfast.evaluate(EventModel(score), "occlusion", SEQUENCES, metrics, **options)
    assert found.failures == []
    assert (
        found.manifest["about"]["default neighbourhood"]
        == "events are exchanged, because nothing was given"
    )
    # there are no weights, and codes are no map
    assert set(found.manifest["controls"]) == {"random"}


@pytest.mark.usefixtures("plug_in")
def test_so_does_a_study_file(tmp_path: Path) -> None:
    (tmp_path / "simulator.py").write_text(
        "from event_sequences import EventModel, EventSequences\nfrom test_kinds_of_inputs import SEQUENCES, score\n"
        "def load():\n    return SEQUENCES\n"
        "def build():\n    return EventModel(score)\n"
        "def wrong():\n    return score\n"
    )
    content = {
        "data": {"runs": {"function": "simulator:load"}},
        "models": {"rule": {"function": "simulator:build"}},
        "explainers": ["occlusion"],
        "metrics": [{"aopc": {"steps": 2, "samples": 2}}],
        "sanity": False,
    }
    found = standfast.run_study(study_from(content, tmp_path), tmp_path / "out", progress=False)
    assert found.failures == []
    metrics = {"aopc": standfast.metrics.AOPC(steps=2, samples=2)}
    python = standfast.evaluate(
        EventModel(score),
        ["occlusion"],
        SEQUENCES,
        metrics,
        sanity=False,
        progress=False,
    )
    columns = ["explainer", "sample", "value"]
    assert (
        found.samples.select(columns)
        .sort(columns)
        .equals(python.samples.select(columns).sort(columns))
    )
    wrong = {**content, "models": {"rule": {"function": "simulator:wrong"}}}
    with pytest.raises(
        StudyError, match=r"models\.rule\.function: expected a function that returns an EventModel"
    ):
        study_from(wrong, tmp_path).grid()
    mixed = {**content, "data": {"runs": {"function": "simulator:load"}, "digits": "digits"}}
    with pytest.raises(
        StudyError, match=r"data\.digits: expected data to be sequences of events alone"
    ):
        study_from(mixed, tmp_path).grid()


@pytest.mark.usefixtures("plug_in")
@pytest.mark.parametrize(
    ("key", "value"), [("samples", 1), ("targets", "labels"), ("bounds", [0, 1])]
)
def test_what_a_function_chooses_itself_is_not_ignored(
    tmp_path: Path, key: str, value: Any
) -> None:
    (tmp_path / "runs.py").write_text(
        "from event_sequences import EventModel\nfrom test_kinds_of_inputs import SEQUENCES, score\n"
        "def load():\n    return SEQUENCES\n"
        "def build():\n    return EventModel(score)\n"
    )
    content = {
        "data": {"runs": {"function": "runs:load", key: value}},
        "models": {"rule": {"function": "runs:build"}},
        "explainers": ["occlusion"],
        "metrics": [{"aopc": {"steps": 2, "samples": 2}}],
    }
    with pytest.raises(StudyError, match=rf"{key}: expected none, since the function returns"):
        study_from(content, tmp_path).grid()


def test_a_kind_of_a_plug_in_that_cannot_be_loaded_stops_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(
        kinds.plugins, "lost", EntryPoint("lost", "no_such_module:Kind", "standfast.inputs")
    )
    with pytest.warns(UserWarning, match="kind of inputs lost: the plug-in .* could not be loaded"):
        assert find_kind(torch.zeros(2, 3), [object()]).name == "tensors"


def test_rows_to_explain_are_a_reference_once_and_only_where_there_is_no_other() -> None:
    """The rows of the table are what draws of a background come from."""
    pd = pytest.importorskip("pandas")
    rows = pd.DataFrame({"income": [1.0, 2.0, 3.0], "debt": [4.0, 5.0, 6.0]})
    training = pd.DataFrame({"income": [7.0, 8.0], "debt": [9.0, 10.0]})

    def list_incomes(data: GivenFrame, reference: Any = None) -> list[float]:
        table = _join_tables(Given({"a": data}, {}, reference=reference))
        return sorted(table.rows[:, 0].tolist())

    assert list_incomes(GivenFrame(rows)) == [1.0, 2.0, 3.0]
    assert list_incomes(GivenFrame(rows), reference=training) == [7.0, 8.0]
    assert list_incomes(GivenFrame(rows, reference=training), reference=rows) == [7.0, 8.0]
