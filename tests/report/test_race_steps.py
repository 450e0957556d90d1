"""What is proposed after a race: only what the race supports, as lines that run and do nothing else."""

from __future__ import annotations

import dataclasses
import shlex
from typing import Any

import pytest

import standfast
from standfast.report.race_steps import describe_race_steps
from standfast.report.races import tabulate_race
from standfast.report.step_lines import is_harmless
from standfast.results.races import Confirmation, Entrant, Outcome, Race

CALL = {
    "model": "model",
    "explainers": {
        "named": False,
        "parts": [
            {"name": "saliency", "code": "'saliency'"},
            {"name": "gradcam", "code": "'gradcam'"},
        ],
    },
    "metrics": {"named": False, "parts": [{"name": "", "code": "'aopc'"}]},
    "options": {"seed": "3", "minutes": "5.0", "workers": "2"},
}
COMMAND = (
    "standfast",
    "choose",
    "--model",
    "m.pt2",
    "--data",
    "d.npz",
    "--minutes",
    "5",
    "--trust",
)


def confirm(outcome: Outcome, needed: int | None = None, name: str = "saliency") -> Confirmation:
    return Confirmation(name, outcome, 20, None, (), "Not decided.", needed=needed)


def make_race(*entrants: Entrant, **facts: Any) -> Race:
    """A race by AOPC on 60 samples that took 90 seconds."""
    race = Race(
        data="d",
        model="m",
        label="aopc",
        direction="higher",
        decimals=2,
        level=0.05,
        ladder=(10, 20, 40),
        entrants=entrants
        or (Entrant("saliency", None, 40, seconds=30.0), Entrant("gradcam", "worse", 10)),
        samples=60,
        rows=tuple(range(40)),
        confirmation_rows=tuple(range(40, 60)),
        cost=0.2,
        budget=0.25,
        seconds=90.0,
        call=CALL,
    )
    return dataclasses.replace(race, **facts)


def test_nothing_is_proposed_beside_one_that_is_chosen() -> None:
    steps = describe_race_steps(make_race(confirmation=confirm("confirmed")))
    assert steps == []
    assert "No next step" in str(steps)


def test_more_samples_where_the_confirmation_does_not_decide() -> None:
    race = make_race(confirmation=confirm("undecided", needed=10))
    (step,) = describe_race_steps(race)
    # ten more decide half of such cases, and 40 more seven of ten: 20 are a third of 60, so that 60 are one of 180
    assert step.line == (
        "standfast.choose(model, inputs[:180], explainers=['saliency', 'gradcam'], metrics=['aopc'], "
        "seed=3, minutes=5.0)"
    )
    assert (step.kind, step.samples, step.seconds) == ("samples", 180, 270.0)
    assert "10 to 40 more samples for the confirmation would decide saliency" in step.why
    text = str(describe_race_steps(race))
    assert "with at least 180 samples of the same kind in inputs" in " ".join(text.split())
    assert describe_race_steps(make_race(confirmation=confirm("undecided"))) == []
    (step,) = describe_race_steps(dataclasses.replace(race, minutes=5.0))
    assert step.line.endswith("seed=3, minutes=15)")


def test_more_minutes_where_the_time_was_up() -> None:
    race = make_race(
        confirmation=confirm("unfinished"), minutes=5.0, out_of_time=True, minutes_needed=None
    )
    (step,) = describe_race_steps(race)
    assert step.line.endswith("seed=3, minutes=10)")
    before_first_look = make_race(
        Entrant("saliency", None, 0), Entrant("gradcam", None, 0), minutes=5.0, out_of_time=True
    )
    (step,) = describe_race_steps(dataclasses.replace(before_first_look, minutes_needed=6.3))
    assert step.line.endswith("minutes=7)")
    assert step.cost == "at most 7 minutes"
    assert "before the first look" in step.why


def test_a_larger_budget_or_more_samples_where_nothing_was_told_apart() -> None:
    two = (Entrant("saliency", None, 20), Entrant("gradcam", None, 20))
    (budget,) = describe_race_steps(make_race(*two, confirmation=confirm("confirmed")))
    assert budget.line.endswith("seed=3, minutes=5.0, budget=0.5)")
    assert "before saliency and gradcam were told apart" in budget.why
    in_time = make_race(*two, confirmation=confirm("confirmed"), minutes=5.0)
    (budget,) = describe_race_steps(in_time)
    # twice the budget takes twice the time
    assert budget.line.endswith("seed=3, minutes=10, budget=0.5)")
    assert budget.cost == "at most 10 minutes"
    at_the_end = [dataclasses.replace(entrant, samples=40) for entrant in two]
    (samples,) = describe_race_steps(make_race(*at_the_end, confirmation=confirm("confirmed")))
    assert "inputs[:120]" in samples.line
    whole = make_race(*two, confirmation=confirm("confirmed"), budget=1.0)
    assert describe_race_steps(whole) == []


def test_a_smoother_relative_of_one_that_does_not_hold() -> None:
    unstable = (Entrant("saliency", "unstable", 10, seconds=6.0), Entrant("gradcam", "check", 0))
    (step,) = describe_race_steps(make_race(*unstable))
    assert "explainers=['saliency', 'gradcam', 'smoothgrad']" in step.line
    assert step.seconds == 6.0 * 17
    tried = {**CALL["explainers"], "parts": [*CALL["explainers"]["parts"]]}  # type: ignore[index,dict-item]
    tried["parts"].append({"name": "smooth", "code": "'smoothgrad:samples=4'"})
    assert describe_race_steps(make_race(*unstable, call={**CALL, "explainers": tried})) == []


def test_the_command_with_what_changes() -> None:
    race = make_race(confirmation=confirm("undecided", needed=10))
    (step,) = describe_race_steps(race, COMMAND)
    assert shlex.split(step.line) == [*COMMAND, "--samples", "180"]
    late = make_race(confirmation=confirm("unfinished"), minutes=5.0, out_of_time=True)
    (step,) = describe_race_steps(late, COMMAND)
    assert shlex.split(step.line) == [*COMMAND[:6], "--trust", "--minutes", "10"]
    # how many samples a study has is in its file
    assert describe_race_steps(race, ("standfast", "choose", "study.yaml")) == []
    (step,) = describe_race_steps(late, ("standfast", "choose", "study.yaml"))
    assert step.line == "standfast choose study.yaml --minutes 10"


@pytest.mark.parametrize(
    "code", ["standfast.run_study('x.yaml')", "__import__('os').system('true')", "'a'\n'b'"]
)
def test_a_call_of_a_stranger_that_does_more_is_no_line(code: str) -> None:
    metrics = {"named": False, "parts": [{"name": "", "code": code}]}
    race = make_race(
        confirmation=confirm("undecided", needed=10), call={**CALL, "metrics": metrics}
    )
    assert describe_race_steps(race) == []
    assert describe_race_steps(dataclasses.replace(race, call={})) == []


def test_the_page_has_the_steps() -> None:
    race = make_race(confirmation=confirm("undecided", needed=10))
    assert [step.line for step in tabulate_race(race)["steps"]] == [
        step.line for step in describe_race_steps(race)
    ]
    assert all(is_harmless(step.line) for step in describe_race_steps(race))


def test_the_line_runs() -> None:
    """It asks what a call of `choose` takes; that it ends is seen in `tests/race`."""
    (step,) = describe_race_steps(make_race(confirmation=confirm("undecided", needed=10)))
    with pytest.raises(standfast.errors.ArgumentError, match="model"):
        eval(step.line, {"standfast": standfast, "model": 3, "inputs": [0] * 200})


def test_no_explainer_is_added_to_those_that_nobody_named() -> None:
    """`--explainer smoothgrad` alone would be a race of one."""
    usual = {**CALL, "explainers": {"named": False, "parts": []}}
    fallen = (Entrant("saliency", "unstable", 10, "worst"), Entrant("gradcam", "check", 0))
    race = make_race(*fallen, call=usual)
    assert describe_race_steps(race) == []
    assert describe_race_steps(race, COMMAND) == []
    assert len(describe_race_steps(make_race(*fallen))) == 1
