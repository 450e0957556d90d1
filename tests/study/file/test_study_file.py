"""The study file: what it means, what it says when something is wrong, and its schema."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from ruamel.yaml import YAML

import standfast
from malformed_studies import MALFORMED, prepare
from standfast.explainers import explainers
from standfast.metrics.base import metrics as registry
from standfast.neighbourhoods import JPEG, Rotation
from standfast.study.file.document import StudyError
from standfast.study.file.options import describe_options
from standfast.study.file.problems import Problem
from standfast.study.file.schema import json_schema
from standfast.study.file.spec import load_study, study_from
from standfast.study.identity import Description

EXAMPLE = (Path(__file__).parent / "example.yaml").read_text()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("studies")
    prepare(folder)
    return folder


def write(folder: Path, text: str) -> Path:
    (folder / "study.yaml").write_text(text)
    return folder / "study.yaml"


def words(**sections: Any) -> dict[str, Any]:
    content = {
        "data": {"d": "digits"},
        "models": {"m": "lenet5-mnist"},
        "explainers": ["lrp"],
        "samples": 1,
    }
    return {**content, "metrics": ["max_sensitivity"], "neighbourhood": {"linf": 0.1}, **sections}


def test_example_becomes_a_grid(folder: Path) -> None:
    study = load_study(write(folder, EXAMPLE))
    grid = study.grid()
    assert (grid.seed, grid.repeats, grid.samples_per_job, grid.device) == (3, 2, 2, "cpu")
    assert grid.paths == (str(folder.resolve()),)
    assert {name: len(samples) for name, samples in grid.data.items()} == {
        "digits": 3,
        "good": 2,
        "own": 3,
    }
    assert grid.data["digits"].targets is None
    assert grid.data["good"].targets.tolist() == [0, 1]
    assert grid.combinations() == [
        ("digits", "lenet"),
        ("good", "lenet"),
        ("good", "mine"),
        ("own", "lenet"),
        ("own", "mine"),
    ]
    assert list(grid.explainers) == [
        "saliency",
        "integrated_gradients: steps=4, baseline=[0.0]",
        "integrated_gradients: steps=8",
        "smoothgrad",
        "malformed_module:explain",
        "input_copy",  # the only control that these metrics take
    ]
    assert grid.controls == ("input_copy",)
    assert grid.explainers["integrated_gradients: steps=4, baseline=[0.0]"].baseline == (0.0,)
    assert grid.explainers["smoothgrad"] == standfast.explainers.SmoothGrad(noise=1.0)
    assert grid.explainers["malformed_module:explain"].rows_per_input == 2
    assert list(grid.metrics) == [
        "worst_case: changed_class",
        "misinterpretation_probability: changed_explanation",
        "max_sensitivity",
        "max_sensitivity 2",
    ]
    assert grid.metrics["worst_case: changed_class"].neighbourhood == standfast.LinfBall(0.1)
    assert grid.metrics["worst_case: changed_class"].similarity == "ssim:window=5"
    probability = grid.metrics["misinterpretation_probability: changed_explanation"]
    assert probability.neighbourhood == standfast.L2Ball(2.0, "truncated_normal")
    assert (study.name, study.base) == (str(folder / "study.yaml"), folder.resolve())
    executor = study.executor
    assert (executor.name, executor.workers, executor.gpus_per_worker) == ("ray", "auto", 0.5)


def test_slurm_entry_in_submitits_words() -> None:
    submitit = pytest.importorskip("submitit")
    entry = {
        "name": "slurm",
        "slurm": {"partition": "gpu", "mem_gb": 8, "gpus_per_node": 1, "extra": {"account": "a"}},
    }
    parameters = study_from(words(executor=entry)).executor.slurm.parameters()
    assert parameters["slurm_additional_parameters"] == {"account": "a"}
    known = submitit.AutoExecutor._typed_parameters().keys() | {
        f"slurm_{name}" for name in submitit.SlurmExecutor._valid_parameters()
    }
    assert set(parameters) <= known


def test_plain_values_make_the_same_study(folder: Path) -> None:
    study = load_study(write(folder, EXAMPLE))
    plain = json.loads(json.dumps(study.plain()))
    again = study_from(plain, folder)
    assert again.plain() == plain
    assert again.grid().metrics == study.grid().metrics
    assert plain["executor"] == {
        "name": "ray",
        "workers": "auto",
        "gpus_per_worker": 0.5,
        "cpus_per_worker": 1.0,
    }


def test_spelled_out_defaults_are_the_same_jobs() -> None:
    """Also to the letter: 2 and 2.0 are equal, and the identity of a job tells them apart."""
    metrics = [name for name in registry if registry[name].__module__.startswith("standfast.")]
    metrics.remove("relevance_localisation")  # needs regions, which come with the data
    study = study_from(
        {
            "data": {"d": "digits"},
            "models": {"m": "lenet5-mnist"},
            "neighbourhood": {"linf": 0.1},
            "explainers": [
                name for name in explainers if explainers[name].__module__.startswith("standfast.")
            ],
            "metrics": metrics,
        }
    )
    grid, again = study.grid(), study_from(study.plain()).grid()
    for ours, theirs in ((grid.metrics, again.metrics), (grid.explainers, again.explainers)):
        assert {key: Description(value).digest for key, value in ours.items()} == {
            key: Description(value).digest for key, value in theirs.items()
        }


def test_json_and_windows_files_are_fine(folder: Path) -> None:
    study = load_study(write(folder, EXAMPLE))
    content = YAML(typ="safe", pure=True).load(EXAMPLE)
    assert load_study(write(folder, json.dumps(content))).plain() == study.plain()
    (folder / "study.yaml").write_bytes(b"\xef\xbb\xbf" + EXAMPLE.replace("\n", "\r\n").encode())
    assert load_study(folder / "study.yaml").plain() == study.plain()


def test_numbers_are_those_of_yaml_1_2(folder: Path) -> None:
    text = json.dumps(words()).replace('"lrp"', "{lrp: {epsilon: 1e-3}}")
    assert load_study(write(folder, text)).grid().explainers["lrp"] == standfast.explainers.LRP(
        1e-3
    )


def test_explainers_from_the_users_module(tmp_path: Path) -> None:
    code = (
        "from dataclasses import dataclass\nimport standfast\n"
        "@dataclass(frozen=True)\nclass Mine(standfast.explainers.Saliency):\n"
        "    factor: float = 1.0\n    name = 'mine'\n"
        "ready = Mine(factor=3.0)\n"
    )
    (tmp_path / "module_of_explainers.py").write_text(code)
    explainers = {
        "class": {"function": "module_of_explainers:Mine", "options": {"factor": 2}},
        "instance": {"function": "module_of_explainers:ready"},
    }
    grid = study_from(words(explainers=explainers), tmp_path).grid()
    assert (grid.explainers["class"].factor, grid.explainers["instance"].factor) == (2.0, 3.0)
    wrong = {"class": {"function": "module_of_explainers:Mine", "options": {"factr": 2}}}
    with pytest.raises(
        StudyError, match=r"explainers\.class\.options\.factr: .*did you mean 'factor'"
    ):
        study_from(words(explainers=wrong), tmp_path).grid()


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_study_gives_a_short_error(name: str, folder: Path) -> None:
    text, fragment = MALFORMED[name]
    path = write(folder, text)
    with pytest.raises(StudyError) as caught:
        load_study(path).grid()
    said = str(caught.value)
    lines = said.splitlines()
    assert fragment in " ".join(said.split()), said
    assert lines[0].startswith(f"{path}: ")
    assert len(lines) <= 24, said
    assert max(map(len, lines)) <= 200, said
    assert "Traceback" not in said
    assert "pydantic" not in said
    assert not (folder / "executed").exists()


def places(content: Any) -> Iterator[tuple[Any, Any]]:
    """Every container of a study with each of its keys or indices."""
    keys = content if isinstance(content, dict) else range(len(content))
    for key in keys:
        yield content, key
        if isinstance(content[key], dict | list):
            yield from places(content[key])


@pytest.mark.parametrize(
    "value",
    [None, True, -1, 10**30, float("nan"), "", "a:b", [], {}, [None], {"a": {}}, {1: 2}],
    ids=repr,
)
def test_anything_anywhere_is_fine_or_a_study_error(value: Any) -> None:
    content = YAML(typ="safe", pure=True).load(EXAMPLE)
    # as a key, what cannot be one is the same for all
    name = value if isinstance(value, str | int | None) else "other"
    is_other_key = name != "other" or value == []
    for container, key in list(places(content)):
        before, container[key] = container[key], value
        with contextlib.suppress(StudyError):
            study_from(content).plain()
        container[key] = before
        if isinstance(container, dict) and is_other_key:
            container[name] = container.pop(key)
            with contextlib.suppress(StudyError):
                study_from(content).plain()
            container[key] = container.pop(name)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes("title: fünf".encode("latin-1"))
    cases = {
        "missing.yaml": "no such file or directory",
        ".": "is a directory",
        "latin.yaml": "a text in UTF-8",
    }
    for name, said in cases.items():
        with pytest.raises(StudyError, match=said):
            load_study(tmp_path / name)


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_never_ends_is_not_read(kind: str, tmp_path: Path) -> None:
    """A pipe or a device, also by a link, in the place of the study file, data, weights, a program or references."""
    odd = tmp_path / "odd"
    os.mkfifo(odd) if kind == "pipe" else odd.symlink_to("/dev/zero")
    for name in ("study.yaml", "x.npy", "w.safetensors", "m.pt"):
        (tmp_path / name).symlink_to(odd)
    with pytest.raises(
        StudyError, match=f"a file that can be read, got 'odd|study.yaml': it is a {kind}"
    ):
        load_study(tmp_path / "study.yaml")
    weights = {"architecture": "lenet5", "weights": "w.safetensors"}
    sections = {
        "data": {"d": {"path": "x.npy"}},
        "models": {"m": weights, "p": {"path": "m.pt"}},
        "explainers": [{"kernel_shap": {"background": "x.npy"}}],
    }
    with pytest.raises(StudyError) as caught:
        study_from(words(**sections), tmp_path).grid()
    found = {problem.path: problem.got for problem in caught.value.problems}
    background = ("explainers", 0, "kernel_shap", "background")
    assert set(found) == {
        ("data", "d", "path"),
        ("models", "m", "weights"),
        ("models", "p", "path"),
        background,
    }
    assert all(kind in got for got in found.values())


@pytest.mark.parametrize("place", ["samples", "seed", "budget", "radius"])
def test_numbers_that_python_refuses_to_write(place: str, tmp_path: Path) -> None:
    values = {"samples": 2, "seed": 0, "budget": 9, "radius": 0.1, place: "0x" + 4000 * "f"}
    text = f"""samples: {values["samples"]}
seed: {values["seed"]}
data: [digits]
models: [lenet5-mnist]
explainers: [lrp]
neighbourhood: {{linf: {values["radius"]}}}
metrics: [worst_case: {{budget: {values["budget"]}}}]
"""
    with pytest.raises(
        StudyError, match=r"line \d\): expected a number below 1e308, got one of 16000 bits"
    ):
        load_study(write(tmp_path, text))


SOMEBODYS = """
import torch
import standfast
from malformed_module import build, explain, load

def shift(x): return x
def forward(module, x): return module(x)
def measure(): return standfast.metrics.MaxSensitivity(standfast.LinfBall(0.1))
"""


def test_code_from_elsewhere_needs_trust(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In every section, and nothing of it is imported without; what lies beside the file needs none."""
    (tmp_path / "installed").mkdir()
    (tmp_path / "installed" / "somebodys_module.py").write_text(SOMEBODYS)
    for path in (tmp_path / "installed", folder):
        monkeypatch.syspath_prepend(str(path))
    module = "somebodys_module:{}".format
    entries: list[tuple[str, str, str]] = [
        ("data", "function", module("load")),
        ("models", "function", module("build")),
        ("models", "preprocess", module("shift")),
        ("models", "forward", module("forward")),
        ("explainers", "function", module("explain")),
        ("metrics", "function", module("measure")),
    ]

    def make(section: str, key: str, reference: str, **more: bool) -> dict[str, Any]:
        entry: dict[str, Any] = {key: reference, **more}
        return words(**{section: {"own": entry if key == "function" else {"lenet5-mnist": entry}}})

    for each in entries:
        with pytest.raises(
            StudyError, match="expected trust: true beside it, because somebodys_module lies"
        ) as caught:
            study_from(make(*each), tmp_path).grid()
        (problem,) = caught.value.problems
        assert (problem.path[:2], problem.path[-1]) == ((each[0], "own"), each[1])
    assert "somebodys_module" not in sys.modules
    for each in entries:
        study_from(make(*each, trust=True), tmp_path).grid()
        study_from(make(*each), tmp_path / "installed").grid()
    for reference in ("os:getcwd", "__main__:main"):
        with pytest.raises(StudyError, match="expected trust: true"):
            study_from(words(data={"d": {"function": reference}}), tmp_path).grid()


def test_aliases_without_end(tmp_path: Path) -> None:
    levels = "".join(f"  - &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9))
    with pytest.raises(StudyError, match="alias"):
        load_study(write(tmp_path, f"title:\n  - &a0 x\n{levels}"))
    # the parser takes the square of their number
    with pytest.raises(StudyError, match="brackets"):
        load_study(write(tmp_path, "title: " + "[" * 600))


def test_an_error_keeps_its_cause(folder: Path) -> None:
    study = study_from(words(data={"d": {"function": "malformed_module:broken"}}), folder)
    with pytest.raises(StudyError) as caught:
        study.grid()
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert [p.path for p in caught.value.problems] == [("data", "d", "function")]


def test_loading_runs_no_code_of_the_users(folder: Path) -> None:
    load_study(write(folder, EXAMPLE.replace("malformed_module:", "malformed_syntax:")))
    assert str(folder.resolve()) not in sys.path
    assert "malformed_syntax" not in sys.modules


def test_modules_of_the_same_name_in_two_studies(tmp_path: Path) -> None:
    found = []
    for number in (3, 5):
        base = tmp_path / str(number)
        base.mkdir()
        (base / "namesake_module.py").write_text(
            f"import torch\ndef load(): return torch.zeros({number}, 1, 28, 28)\n"
        )
        grid = study_from(
            words(data={"d": {"function": "namesake_module:load"}}, samples=None), base
        ).grid()
        found.append(len(grid.data["d"]))
    assert found == [3, 5]


SEVERAL = [{"rotation": 10}, {"jpeg": [30, 90]}, {"compose": [{"rotation": [0, 5]}, "brightness"]}]


def test_a_list_of_neighbourhoods_is_evaluated_one_after_the_other() -> None:
    metrics = [
        {"max_sensitivity": {"samples": 3}},
        {"own": {"worst_case": {"neighbourhood": [{"linf": 0.1}, {"l2": {"radius": 1}}]}}},
        # one neighbourhood: the list is a range
        {"local_lipschitz": {"neighbourhood": {"jpeg": [30, 90]}}},
        {"worst_case": {"neighbourhood": [{"hue": 5}]}},
        "aopc",
    ]
    study = study_from(words(neighbourhood=SEVERAL, metrics=metrics))
    found = {label: entry.value for label, entry in study.metrics.items()}
    assert list(found) == [
        "max_sensitivity: rotation 10",
        "max_sensitivity: jpeg 30 to 90",
        "max_sensitivity: rotation 0 to 5 + brightness 0.2",
        "own: linf 0.1",
        "own: l2 1",
        "local_lipschitz",
        "worst_case: changed_explanation",
        "aopc",
    ]
    brighter = standfast.neighbourhoods.Brightness()
    expected = [Rotation(10), JPEG((30, 90)), standfast.Compose((Rotation((0, 5)), brighter))]
    assert [getattr(metric, "neighbourhood", None) for metric in found.values()] == [
        *expected,
        standfast.LinfBall(0.1),
        standfast.L2Ball(1),
        JPEG((30, 90)),
        standfast.neighbourhoods.Hue(5),
        None,
    ]
    assert study.neighbourhood == tuple(expected)
    assert {metric.samples for label, metric in found.items() if label.startswith("max")} == {3}
    again = study_from(study.plain())
    assert again.plain() == study.plain()
    assert again.metrics.keys() == study.metrics.keys()


def test_errors_in_neighbourhoods_say_which_of_them(tmp_path: Path) -> None:
    text = """data: [digits]
models: [lenet5-mnist]
explainers: [lrp]
neighbourhood:
  - {rotation: far}
  - compose:
      - {brightness: 0.1}
      - {brihtness: 0.1}
      - {linf: 1}
  - {corruption: {name: motion_blurr}}
  - {compose: 3}
  - {rotation: 10}
  - {rotation: {degrees: 10}}
metrics:
  - max_sensitivity: {samples: -3}
  - worst_case:
      neighbourhood:
        - {linf: 0.1}
        - {rotation: [10, 5]}
  - local_lipschitz: {neighbourhood: []}
"""
    with pytest.raises(StudyError) as caught:
        load_study(write(tmp_path, text))
    said = [" ".join(line.split()) for line in str(caught.value).split("\n  ")[1:]]
    said = [line for line in said if "(line" in line]
    for line, start in zip(
        said,
        [
            "neighbourhood[0].rotation (line 5)",
            "neighbourhood[1].compose[1].brihtness (line 8)",
            "neighbourhood[1].compose[2] (line 9)",
            "neighbourhood[2].corruption.name (line 10)",
            "neighbourhood[3].compose (line 11)",
            "neighbourhood[5] (line 13)",
            "metrics[0].max_sensitivity.samples (line 15)",
            "metrics[1].worst_case.neighbourhood[1].rotation (line 19)",
            "metrics[2].local_lipschitz.neighbourhood (line 20)",
        ],
        strict=True,
    ):
        assert line.startswith(start)
    # what is wrong with the metric is said once, and not for each neighbourhood
    with pytest.raises(StudyError) as caught:
        study_from(words(neighbourhood=SEVERAL, metrics=[{"max_sensitivity": {"samples": -3}}]))
    assert len(caught.value.problems) == 1


def test_many_problems_are_cut_to_a_screen() -> None:
    problems = [Problem(("a" * 300, n), "b" * 500, "c" * 500) for n in range(30)]
    lines = str(StudyError("d" * 500, problems)).splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 200
    assert lines[-1] == "  ... and 20 more"


def test_schema() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    example = YAML(typ="safe", pure=True).load(EXAMPLE)
    assert [error.message for error in validator.iter_errors(example)] == []
    full = study_from(
        words(metrics=sorted(registry), explainers=standfast.explainers.names())
    ).plain()
    assert [error.message for error in validator.iter_errors(full)] == []
    places: list[Any] = [[{"linf": 0.1}, "rotation"], "hue"]
    lists = [{"worst_case": {"neighbourhood": place}} for place in places]
    assert [
        error.message
        for error in validator.iter_errors(words(neighbourhood=SEVERAL, metrics=lists))
    ] == []
    elsewhere = {"data": {"a": "ucr:GunPoint:test"}, "models": {"m": "timm:resnet18"}}
    assert [error.message for error in validator.iter_errors(words(**elsewhere))] == []
    for wrong in (
        {"data": {"a": "mnits:test"}},
        {"sede": 1},
        {"explainers": ["salience"]},
        {"explainers": [{"lrp": {"epsilo": 1}}]},
        {"explainers": []},
        {"metrics": {"a": {"worst_case": {"budget": "x"}}}},
        {"metrics": [{"worst_case": {"search": "blok"}}]},
        {"neighbourhood": {"linv": 1}},
        {"neighbourhood": "linf"},
        {"neighbourhood": []},
        {"neighbourhood": [{"rotation": "far"}]},
        {"neighbourhood": {"compose": [{"rotatoin": 10}]}},
        {"models": {"m": "lenet"}},
        {"executor": {"name": "slrm"}},
    ):
        assert list(validator.iter_errors(words(**wrong))), wrong


def test_schema_tells_what_options_are() -> None:
    schema = json_schema()
    worst = schema["$defs"]["metric.worst_case"]["properties"]
    assert (worst["budget"]["type"], worst["budget"]["default"]) == ("integer", 5000)
    assert worst["event"]["enum"] == ["changed_explanation", "changed_class", "misclassification"]
    for kind in [
        *(registry[name] for name in registry),
        *(standfast.algorithms.searches[n] for n in standfast.algorithms.searches),
    ]:
        missing = {f.name for f in dataclasses.fields(kind)} - set(describe_options(kind))
        assert not missing, f"{kind.__name__} does not describe {missing}"


def test_device_of_a_check_is_the_cpu() -> None:
    # there need not be one where a study is planned
    grid = study_from(words(device="cuda:3")).grid()
    assert grid.device == "cuda:3"
    assert torch.is_tensor(grid.data["d"].inputs)


def test_an_extra_that_is_not_there_is_said_of_its_data_set(tmp_path: Path) -> None:
    text = """
data: {first: digits, second: digits}
models: {lenet: lenet5-mnist}
explainers: [saliency]
metrics: [{relevance_localisation: {regions: nowhere}}]
samples: 2
"""
    with pytest.raises(StudyError) as caught:
        load_study(write(tmp_path, text)).grid()
    assert "on data 'first'" in str(caught.value)
    assert "got 'nowhere'" in str(caught.value)
