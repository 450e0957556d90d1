"""Reference inputs: as options that are compared and stored, in calls, in study files, and their effect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from refusals import assert_refused
from torch import Tensor

import standfast
from conftest import small_net
from standfast.explainers import Background, DeepSHAP, GradientSHAP
from standfast.metrics.base import plain
from standfast.study.file.document import StudyError
from standfast.study.file.spec import study_from
from standfast.study.identity import Description

SETS = {"gradient_shap": lambda b: GradientSHAP(b, samples=6), "deep_shap": DeepSHAP}


def batch(count: int, seed: int = 0) -> Tensor:
    return torch.rand(count, 1, 8, 8, generator=torch.Generator().manual_seed(seed))


def model(size: int = 64, bounds: tuple[float, float] = (0.0, 1.0)) -> standfast.Model:
    return standfast.Model(small_net((1, 8, 8)), bounds, device="cpu", batch_size=size)


# ---------------------------------------------------------------- the object


def test_is_compared_by_its_content() -> None:
    values = batch(5)
    a, b, other = Background(values), Background(values.clone()), Background(batch(5, seed=1))
    assert a == b != other
    assert hash(a) == hash(b) != hash(other)
    assert (a.shape, len(a)) == ((5, 1, 8, 8), 5)
    assert Background(values.reshape(5, 64)) != a
    values.zero_()  # a copy
    assert torch.equal(a.inputs, batch(5))
    for make in SETS.values():
        assert make(a) == make(batch(5)) != make(other)
        assert hash(make(a)) == hash(make(b)) != hash(make(other))
        assert (
            Description(make(a)).digest
            == Description(make(b)).digest
            != Description(make(other)).digest
        )
        described = plain(make(a))["background"]
        assert described == {"name": "Background", "shape": [5, 1, 8, 8], "digest": a.digest}
        json.dumps(described)
    with pytest.raises(AttributeError):
        a.shape = ()  # type: ignore[misc]


def test_refuses_what_is_not_a_batch() -> None:
    zeros = torch.zeros(2, 3)
    wrong = [zeros.numpy(), zeros[0], zeros[:0], zeros.long(), zeros * torch.nan]
    assert_refused(lambda background: Background(background), background=wrong)


# ---------------------------------------------------------------- the call


@pytest.mark.parametrize("name", SETS)
def test_shape_and_bounds_are_checked_in_the_call(name: str) -> None:
    make = SETS[name]
    wrong = [torch.zeros(2, 1, 4, 4), torch.full((2, 1, 8, 8), 1.5), (0.0, 1.0)]
    assert_refused(lambda background: make(background)(model(), batch(2)), background=wrong)
    with pytest.raises(
        standfast.ArgumentError, match=r"background: expected values within the bounds \[0\.5, 1\]"
    ):
        make(0.0)(model(bounds=(0.5, 1.0)), 0.5 + batch(2) / 2)
    double = standfast.Model(small_net((1, 8, 8)).double(), (0.0, 1.0), device="cpu")
    assert make(batch(2))(double, batch(2).double()).dtype == torch.float64


# ---------------------------------------------------------------- study files


def study(folder: Path, *explainers: Any) -> Any:
    content: dict[str, Any] = {
        "samples": 2,
        "data": {"d": "digits"},
        "models": {"m": "lenet5-mnist"},
        "explainers": list(explainers),
        "metrics": [{"max_sensitivity": {"neighbourhood": {"linf": 0.1}, "samples": 2}}],
        "device": "cpu",
        "controls": False,
    }
    return study_from(content, base=folder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    digits = standfast.data.bundled("digits").inputs
    np.save(tmp_path / "references.npy", digits[10:16].numpy())
    np.savez(tmp_path / "references.npz", x=digits[10:16].numpy(), y=np.arange(6))
    np.save(tmp_path / "small.npy", np.zeros((3, 1, 4, 4), dtype=np.float32))
    np.save(tmp_path / "whole.npy", np.ones((3, 5), dtype=np.int64))
    return tmp_path


def test_in_a_study_file(folder: Path) -> None:
    digits = standfast.data.bundled("digits").inputs
    found = study(
        folder,
        {"gradient_shap": {"background": "references.npy", "samples": 4}},
        {"deep_shap": {"background": {"path": "references.npz", "samples": 3}}},
        {"deep_shap": {"background": {"data": "digits", "samples": 5}}},
        {"gradient_shap": {"background": [0.5]}},
        {"gradient_shap": {"background": 0}},
        "deep_shap",
    )
    made = list(found.grid(check=False).explainers.values())
    assert made == [
        GradientSHAP(digits[10:16], samples=4),
        DeepSHAP(digits[10:13]),
        DeepSHAP(digits[:5]),
        GradientSHAP((0.5,)),
        GradientSHAP(0.0),
        DeepSHAP(),
    ]
    labels = list(found.explainers)
    assert len(set(labels)) == 6
    again = study_from(json.loads(json.dumps(found.plain())), base=folder)
    assert again.plain() == found.plain()
    assert list(again.grid(check=False).explainers.values()) == made
    assert found.plain()["explainers"][labels[1]]["deep_shap"]["background"] == {
        "path": "references.npz",
        "samples": 3,
    }


def test_other_references_are_other_jobs(folder: Path) -> None:
    from standfast.study.plan import make_plan

    def identities(*explainers: Any) -> list[str]:
        return [job.identity for job in make_plan(study(folder, *explainers).grid()).jobs]

    entry = {"deep_shap": {"background": "references.npy"}}
    jobs = identities(entry)
    assert (
        jobs
        == identities(entry)
        == identities({"deep_shap": {"background": {"path": "references.npz"}}})
    )
    np.save(folder / "references.npy", standfast.data.bundled("digits").inputs[20:26].numpy())
    assert set(jobs).isdisjoint(identities(entry))


@pytest.mark.parametrize(
    ("background", "message"),
    [
        ("none.npy", "explainers[0].deep_shap.background: expected a file or a folder that exists"),
        ("whole.npy", "explainers[0].deep_shap.background: expected inputs as floats or uint8"),
        (
            {"path": "references.npy", "samples": 7},
            "background.samples: expected at most the 6 samples that there are",
        ),
        (
            {"data": "digits", "samples": 301},
            "background.samples: expected at most the 300 samples that there are",
        ),
    ],
)
def test_files_that_cannot_be_read(folder: Path, background: Any, message: str) -> None:
    found = study(folder, {"deep_shap": {"background": background}})  # nothing is read yet
    with pytest.raises(StudyError) as error:
        found.grid(check=False)
    assert message in " ".join(str(error.value).split())


@pytest.mark.parametrize(
    ("background", "message"),
    [
        ({"data": "digit", "samples": 3}, "background.data: expected a data set"),
        ({"data": "digits"}, "background.samples: expected a value beside data, got nothing"),
        (
            {"data": "digits", "samples": 0},
            "background.samples: expected a number of at least 1, got 0",
        ),
        ({"data": 3, "samples": 1}, "background.data: expected a text, got 3"),
        (
            {"data": "digits", "path": "x.npy", "samples": 1},
            "exactly one of path, data, got path and data at once",
        ),
        ({"samples": 1}, "background: expected a background with exactly one of path, data"),
        ({"file": "x.npy"}, "background.file: expected a known key (path, data, samples)"),
        (True, "background: expected a number, one for each channel, a file of reference inputs"),
        (["a"], "background: expected a number, one for each channel, a file of reference inputs"),
    ],
)
def test_entries_that_name_no_background(folder: Path, background: Any, message: str) -> None:
    with pytest.raises(StudyError) as error:
        study(folder, {"deep_shap": {"background": background}})
    assert message in " ".join(str(error.value).split())
