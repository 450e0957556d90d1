"""The controls of a study file: those by default, named ones, none, and what is refused at which place."""

from __future__ import annotations

from typing import Any

import pytest

import standfast
from standfast.explainers import Edges, RandomExplainer
from standfast.question.question import rename_taken
from standfast.study.file.document import StudyError
from standfast.study.file.schema import json_schema
from standfast.study.file.spec import study_from
from standfast.study.plan import make_plan


def words(**sections: Any) -> dict[str, Any]:
    content = {
        "data": {"d": "digits"},
        "models": {"m": "lenet5-mnist"},
        "explainers": ["saliency"],
        "samples": 3,
    }
    return {
        **content,
        "metrics": [{"aopc": {"steps": 2, "samples": 2}}],
        "sanity": False,
        **sections,
    }


def test_those_that_fit_by_default() -> None:
    grid = study_from(words()).grid()
    assert grid.controls == ("random", "input_copy", "edges", "randomised:saliency")
    assert list(grid.explainers) == ["saliency", *grid.controls]
    sensitivity = [{"max_sensitivity": {"neighbourhood": {"linf": 0.1}, "samples": 2}}]
    assert study_from(words(metrics=sensitivity)).grid().controls == ("input_copy",)
    assert study_from(words(controls=False)).grid().controls == ()
    assert study_from(words(explainers=["random"])).grid().controls == ()


def test_stored_jobs_are_found_again_and_the_default_only_adds() -> None:
    before = {
        job.identity
        for job in make_plan(study_from(words(controls=False, samples_per_job=3)).grid()).jobs
    }
    after = {job.identity for job in make_plan(study_from(words(samples_per_job=3)).grid()).jobs}
    assert before < after


def test_named_ones_are_read_like_explainers() -> None:
    study = study_from(words(controls=["edges", {"mine": {"random": {"seed": 4}}}]))
    grid = study.grid()
    assert grid.controls == ("edges", "mine")
    assert grid.explainers["mine"] == RandomExplainer(seed=4)
    assert study_from(study.plain()).grid().controls == grid.controls
    assert study.plain()["controls"] == {"edges": {"edges": {}}, "mine": {"random": {"seed": 4}}}
    assert study_from(words()).plain()["controls"] is True


@pytest.mark.parametrize("given", ["yes", "no", "True", "random", 1, 0, None, [], {}])
def test_what_is_neither_true_nor_false_is_told_of_both(given: Any) -> None:
    with pytest.raises(StudyError) as caught:
        study_from(words(controls=given))
    (problem,) = caught.value.problems
    assert problem.path == ("controls",)
    assert problem.expected.startswith("true, false, or explainers")
    near = {"yes": "true", "no": "false", "True": "true"}.get(str(given))
    assert ("did you mean" in str(problem.got)) == (near is not None)
    assert near is None or f"did you mean {near}?" in str(problem.got)


def test_what_does_not_fit_is_said_at_its_place() -> None:
    with pytest.raises(
        StudyError, match=r"controls\[0\]: (.|\n)*'edgs' \(did you mean 'edges'\?\)"
    ):
        study_from(words(controls=["edgs"]))
    with pytest.raises(
        StudyError, match=r"controls\.saliency.*names that differ from those of the explainers"
    ):
        study_from(words(controls={"saliency": "edges"})).grid()


def test_a_users_control_stands_for_that_of_the_same_kind() -> None:
    grid = study_from(
        words(
            explainers={
                "saliency": "saliency",
                "random": {"random": {"seed": 1}},
                "edges": "input_x_gradient",
            }
        )
    ).grid()
    assert grid.controls == ("input_copy", "edges 2", "randomised:saliency")
    assert rename_taken(
        {"edges": Edges()}, {"edges": standfast.explainers.get("lrp"), "edges 2": Edges()}
    ) == {"edges 3": Edges()}


def test_the_schema_knows_both_forms() -> None:
    section = json_schema()["properties"]["controls"]
    assert section["$ref"] == "#/$defs/controls"
    assert json_schema()["$defs"]["controls"] == {
        "anyOf": [{"type": "boolean"}, {"$ref": "#/$defs/explainers"}]
    }
