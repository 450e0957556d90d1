"""`evaluate` and a study file that ask the same have the same jobs, of which the study's entries are a part."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
from credit_frames import make_frame, score
from ruamel.yaml import YAML
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from text_networks import BagOfWords, PieceTokenizer

import standfast
from standfast.explainers import get
from standfast.question.arguments import DEFAULT_NEIGHBOURHOOD, Arguments
from standfast.question.grid import Grid, LoadedModel, Samples
from standfast.study.file.document import StudyError
from standfast.study.file.spec import Study, study_from
from standfast.study.import_paths import importing_from
from standfast.study.plan import Plan, make_plan

EXAMPLES = Path(__file__).parents[2] / "examples"
DIGITS: dict[str, Any] = {
    "samples": 4,
    "samples_per_job": 2,
    "data": {"digits": "digits"},
    "models": {"lenet": "lenet5-mnist"},
    "neighbourhood": {"linf": 0.1},
    "explainers": ["saliency", "gradcam"],
    "metrics": [{"aopc": {"steps": 3, "samples": 2}}, {"max_sensitivity": {"samples": 2}}],
}


def plan_study(study: Study) -> tuple[Grid, Plan]:
    grid = study.grid()
    with importing_from(grid.paths):
        return grid, make_plan(grid)


def ask_like(
    study: Study, grid: Grid, data: str, inputs: Any, model_names: Mapping[str, Any], **options: Any
) -> Grid:
    """The grid of `evaluate` for one data set of a study, with the entries that the study says its models come from."""
    explainers = {
        name: explainer for name, explainer in grid.explainers.items() if name not in grid.controls
    }
    arguments = Arguments(
        model=model_names,
        explainers=options.pop("explainers", explainers),
        inputs=inputs,
        metrics=options.pop("metrics", grid.metrics),
        controls=study.controls if isinstance(study.controls, bool) else list(study.controls),
        sanity=study.sanity,
        seed=study.seed,
        repeats=study.repeats,
        samples_per_job=study.samples_per_job,
        about={"data": data},
        **options,
    )
    asked = arguments.ask().make_grid()
    sources = {}
    for name, source in asked.models.items():
        assert isinstance(source, LoadedModel)
        sources[name] = replace(source, about=grid.models[name].about)
    return replace(asked, models=sources, device=study.device)


def as_python_has_them(samples: Samples) -> Any:
    """Samples of tensors as a user of Python would hand them over."""
    labels = samples.extras.get("labels")
    if labels is None or labels.is_floating_point():
        return samples.inputs
    classes = samples.about.get("classes") or [
        str(number) for number in range(int(labels.max()) + 1)
    ]
    extras = {name: values for name, values in samples.extras.items() if name != "labels"}
    return standfast.data.Dataset(
        "d", samples.inputs, labels, tuple(classes), samples.bounds, extras, samples.features
    )


def list_jobs(plan: Plan, data: str) -> set[tuple[str, ...]]:
    return {
        (job.identity, job.model, job.explainer, job.label) for job in plan.jobs if job.data == data
    }


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.yaml")), ids=lambda file: file.stem)
def test_the_examples(file: Path) -> None:
    content = YAML(typ="safe").load(file.read_text())
    study = study_from({**content, "samples": 2, "samples_per_job": 2}, EXAMPLES)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            grid, plan = plan_study(study)
    except StudyError as error:
        pytest.skip(f"its data or packages are not here: {error}")
    for data, samples in grid.data.items():
        with importing_from(grid.paths), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            names = [model for met, model in grid.combinations() if met == data]
            models = {name: grid.models[name].model(samples, "cpu") for name in names}
            asked = ask_like(
                study, grid, data, as_python_has_them(samples), models, targets=samples.targets
            )
            assert list_jobs(make_plan(asked), data) == list_jobs(plan, data)
    assert set(grid.controls) >= {"input_copy"} - set(grid.explainers)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"controls": False},
        {"controls": ["edges"]},
        {"sanity": 3, "explainers": ["saliency", "random"]},
    ],
)
def test_digits(changes: dict[str, Any]) -> None:
    study = study_from({**DIGITS, **changes})
    grid, plan = plan_study(study)
    model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0), device="cpu")
    digits = standfast.data.bundled("digits")[:4]
    assert list_jobs(
        make_plan(ask_like(study, grid, "digits", digits, {"lenet": model})), "digits"
    ) == list_jobs(plan, "digits")


def test_explainers_with_options_have_the_same_jobs_where_they_are_named() -> None:
    """By themselves they have other labels in a file and in Python; stored jobs are known by these."""
    listed = ["kernel_shap:samples=40", "saliency"]
    model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0), device="cpu")
    digits = standfast.data.bundled("digits")[:4]
    in_a_file = study_from({**DIGITS, "explainers": listed, "controls": False})
    assert list(in_a_file.explainers) == ["kernel_shap", "saliency"]
    asked = Arguments(
        model, listed, digits, [standfast.metrics.AOPC(steps=3, samples=2)], controls=False
    ).ask()
    assert list(asked.explainers) == listed
    named = {"KS": "kernel_shap:samples=40", "saliency": "saliency"}
    study = study_from({**DIGITS, "explainers": named})
    grid, plan = plan_study(study)
    asked_grid = ask_like(study, grid, "digits", digits, {"lenet": model}, explainers=named)
    assert list_jobs(make_plan(asked_grid), "digits") == list_jobs(plan, "digits")


def test_the_same_verdict() -> None:
    content = {**DIGITS, "sanity": 4, "metrics": [{"aopc": {"steps": 3, "samples": 2}}]}
    study = standfast.run_study(content, "memory://same-verdict", progress=False)
    model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0), device="cpu")
    found = standfast.evaluate(
        {"lenet": model},
        ["saliency", "gradcam"],
        standfast.data.bundled("digits")[:4],
        [standfast.metrics.AOPC(steps=3, samples=2)],
        sanity=4,
        samples_per_job=2,
        progress=False,
    )
    assert str(found.verdict()) == str(study.verdict())
    columns = ["explainer", "label", "sample", "value"]
    assert (
        found.samples.select(columns)
        .sort(columns)
        .equals(study.samples.select(columns).sort(columns))
    )


def test_digits_without_a_neighbourhood() -> None:
    content = {name: part for name, part in DIGITS.items() if name != "neighbourhood"}
    metrics = ["worst_case:budget=5", "max_sensitivity:samples=2", "aopc:steps=3,samples=2"]
    study = study_from({**content, "metrics": metrics})
    grid, plan = plan_study(study)
    model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0), device="cpu")
    digits = standfast.data.bundled("digits")[:4]
    asked = ask_like(study, grid, "digits", digits, {"lenet": model}, metrics=metrics)
    assert list_jobs(make_plan(asked), "digits") == list_jobs(plan, "digits")
    assert grid.about[DEFAULT_NEIGHBOURHOOD] == asked.about[DEFAULT_NEIGHBOURHOOD]
    again = study_from(study.plain()).grid()
    assert again.metrics == grid.metrics
    named = study_from(
        {**content, "metrics": metrics, "neighbourhood": {"linf": {"radius": find_radius(grid)}}}
    )
    assert list_jobs(make_plan(named.grid()), "digits") == list_jobs(plan, "digits"), (
        "the new default only adds"
    )


def find_radius(grid: Grid) -> float:
    """The radius of the ball that a grid has by default."""
    neighbourhood = next(iter(grid.metrics.values())).neighbourhood_in_use
    assert isinstance(neighbourhood, standfast.LinfBall)
    return neighbourhood.radius


def test_a_class_of_a_file_gets_the_default_too(tmp_path: Path) -> None:
    (tmp_path / "own_metric.py").write_text("from standfast.metrics import MaxSensitivity\n")
    own = {
        "mine": {"function": "own_metric:MaxSensitivity", "options": {"samples": 2}, "trust": True}
    }
    content = {name: part for name, part in DIGITS.items() if name != "neighbourhood"}
    grid = study_from({**content, "metrics": own}, tmp_path).grid()
    (metric,) = grid.metrics.values()
    assert metric == standfast.metrics.MaxSensitivity(
        standfast.LinfBall(find_radius(grid)), samples=2
    )


def test_data_without_a_range_need_a_neighbourhood_and_say_where(tmp_path: Path) -> None:
    (tmp_path / "endless.py").write_text(
        "import torch, standfast\n"
        "def load():\n"
        "    rows = torch.zeros(3, 4)\n"
        "    inf = float('inf')\n"
        "    return standfast.data.Dataset('d', rows, torch.zeros(3, dtype=torch.int64), ('a', 'b'), (-inf, inf))\n"
        "def build():\n    return torch.nn.Linear(4, 2)\n"
    )
    content = {
        "data": {"d": {"function": "endless:load"}},
        "models": {"m": {"function": "endless:build"}},
        "explainers": ["saliency"],
        "metrics": ["aopc", {"mine": {"max_sensitivity": {"samples": 2}}}, "worst_case"],
    }
    with pytest.raises(StudyError) as caught:
        study_from(content, tmp_path).grid()
    places = [".".join(map(str, problem.path)) for problem in caught.value.problems]
    assert places == ["metrics.1.mine.max_sensitivity.neighbourhood", "metrics.2"]


def test_what_was_taken_by_default_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    content = {name: part for name, part in DIGITS.items() if name != "neighbourhood"}
    small = {"samples": 1, "explainers": ["saliency"], "controls": False, "sanity": False}
    found = standfast.run_study(
        {**content, **small, "metrics": ["max_sensitivity:samples=2"]}, "memory://default-ball"
    )
    words = found.manifest["about"][DEFAULT_NEIGHBOURHOOD]
    assert f"neighbourhood: {words}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "task",
    [
        {"decision": "P(no) > 0.35"},
        "decision:rule=P(no)>0.35",
        {"decision": {"rule": "P(no) > .35"}},
    ],
)
def test_a_decision_about_a_table(tmp_path: Path, task: Any) -> None:
    """However it is written, the file and the call have the same jobs; and none of those without it."""
    frame = make_frame(60, missing=False)[["income", "town"]].reset_index(drop=True)
    paid = np.where(score(make_frame(60, missing=False)) > 5, "yes", "no")
    pipeline = make_pipeline(OneHotEncoder(handle_unknown="ignore"), LogisticRegression()).fit(
        frame, paid
    )
    frame.assign(paid=paid).to_csv(tmp_path / "credit.csv", index=False)
    joblib.dump(pipeline, tmp_path / "pipeline.joblib")
    entry = {"path": "pipeline.joblib", "trust": True}
    content: dict[str, Any] = {
        "samples": 4,
        "samples_per_job": 4,
        "data": {"credit": {"table": "credit.csv", "label": "paid"}},
        "models": {"pipeline": {**entry, "task": task}},
        "explainers": {"occlusion": "occlusion"},
        "metrics": {"worst": {"worst_case": {"budget": 5}}},
        "sanity": False,
    }
    study = study_from(content, tmp_path)
    grid, plan = plan_study(study)
    whole = pd.read_csv(tmp_path / "credit.csv").drop(columns="paid")
    options = {"metrics": {"worst": "worst_case:budget=5"}, "reference": whole}
    asked = ask_like(
        study, grid, "credit", whole[:4], {"pipeline": pipeline}, decision="P(no) > 0.35", **options
    )
    jobs = list_jobs(make_plan(asked), "credit")
    assert jobs == list_jobs(plan, "credit")
    plain = plan_study(study_from({**content, "models": {"pipeline": entry}}, tmp_path))[1]
    assert jobs.isdisjoint(list_jobs(plain, "credit"))


def test_a_decision_about_a_class_of_the_data() -> None:
    """The name is that of the data set, in the file as in the call; without one, jobs are as they were."""
    model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    study = study_from(
        {**DIGITS, "models": {"lenet": {"lenet5-mnist": {"task": {"decision": "P(3) > 0.2"}}}}}
    )
    grid, plan = plan_study(study)
    digits = standfast.data.bundled("digits")[:4]
    asked = ask_like(study, grid, "digits", digits, {"lenet": model}, decision="P(3) > 0.2")
    assert list_jobs(make_plan(asked), "digits") == list_jobs(plan, "digits")
    plain = list_jobs(plan_study(study_from(DIGITS))[1], "digits")
    assert plain.isdisjoint(list_jobs(plan, "digits"))


@pytest.mark.parametrize("default", [False, True], ids=["given", "default"])
def test_a_table_beside_a_pipeline(tmp_path: Path, default: bool) -> None:
    frame = make_frame(60, missing=False)[["income", "town"]].reset_index(drop=True)
    paid = np.where(score(make_frame(60, missing=False)) > 5, "yes", "no")
    pipeline = make_pipeline(OneHotEncoder(handle_unknown="ignore"), LogisticRegression()).fit(
        frame, paid
    )
    frame.assign(paid=paid).to_csv(tmp_path / "credit.csv", index=False)
    joblib.dump(pipeline, tmp_path / "pipeline.joblib")
    study = study_from(
        {
            "samples": 4,
            "samples_per_job": 4,
            "data": {"credit": {"table": "credit.csv", "label": "paid"}},
            "models": {"pipeline": {"path": "pipeline.joblib", "trust": True}},
            "neighbourhood": None if default else {"table": {"changes": {"income": "2%"}}},
            "explainers": {"occlusion": "occlusion"},
            "metrics": {"worst": {"worst_case": {"budget": 5}}, "curve": "corruption_curve"},
            "sanity": False,  # which compares with the labels, and a frame has none
        },
        tmp_path,
    )
    grid, plan = plan_study(study)
    whole = pd.read_csv(tmp_path / "credit.csv").drop(columns="paid")
    metrics = {"worst": "worst_case:budget=5", "curve": "corruption_curve"}
    around = standfast.neighbourhoods.TableChanges({"income": "2%"})
    options = {"metrics": metrics, "neighbourhood": None if default else around, "reference": whole}
    asked = ask_like(study, grid, "credit", whole[:4], {"pipeline": pipeline}, **options)
    assert list_jobs(make_plan(asked), "credit") == list_jobs(plan, "credit")
    # a pipeline has no weights, and a table no edges
    assert set(grid.controls) == {
        "random",
        "input_copy",
    }


@pytest.mark.parametrize("default", [False, True], ids=["given", "default"])
def test_texts(tmp_path: Path, default: bool) -> None:
    (tmp_path / "own.py").write_text(
        "from text_networks import BagOfWords, PieceTokenizer\nfrom standfast.texts import TextModel\n"
        "def build():\n    return TextModel(BagOfWords(), PieceTokenizer(), granularity='word')\n"
        "def load():\n    return ['a dull film', 'a great, great story', 'a boring film']\n"
    )
    study = study_from(
        {
            "samples_per_job": 3,
            "data": {"reviews": {"function": "own:load"}},
            "models": {"bag": {"function": "own:build"}},
            "neighbourhood": None if default else {"typos": {"rate": 0.2}},
            "explainers": {"saliency": "saliency", "occlusion": "occlusion"},
            "metrics": {
                "worst": {"worst_case": {"budget": 5}},
                "faith": {"aopc": {"steps": 2, "samples": 2}},
            },
            "sanity": 3,
        },
        tmp_path,
    )
    grid, plan = plan_study(study)
    model = standfast.TextModel(BagOfWords(), PieceTokenizer(), granularity="word")
    texts = ["a dull film", "a great, great story", "a boring film"]
    metrics = {"worst": "worst_case:budget=5", "faith": standfast.metrics.AOPC(steps=2, samples=2)}
    options = {
        "metrics": metrics,
        "neighbourhood": None if default else standfast.neighbourhoods.Typos(rate=0.2),
    }
    plain_explainers = replace(
        grid, explainers={name: get(name) for name in study.explainers}, controls=()
    )
    asked = ask_like(study, plain_explainers, "reviews", texts, {"bag": model}, **options)
    assert list_jobs(make_plan(replace(asked, models=asked.models)), "reviews") == list_jobs(
        plan, "reviews"
    )
    assert set(grid.controls) == {"random", "randomised:saliency"}  # the codes of words are no map
