"""A table from end to end: the example at small size, in Python and as a study; features as what is explained."""

from __future__ import annotations

import importlib
import sys
import warnings
from pathlib import Path
from types import ModuleType

import polars as pl
import pytest
import torch
from ruamel.yaml import YAML
from torch import nn

import standfast
from standfast.errors import ArgumentError
from standfast.study.file.spec import study_from

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def tabular() -> ModuleType:
    pytest.importorskip("sklearn")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXAMPLES))
        found = importlib.import_module("tabular")
    del sys.modules["tabular"]  # a study imports it again
    return found


@pytest.fixture(scope="module")
def model(tabular: ModuleType) -> standfast.Model:
    return standfast.Model(tabular.build(), tabular.bounds(), device="cpu", batch_size=512)


def test_the_network_has_learned(tabular: ModuleType, model: standfast.Model) -> None:
    train, test, _, labels = tabular.split()
    torch.testing.assert_close(train.mean(0), torch.zeros(30), rtol=0, atol=1e-5)
    torch.testing.assert_close(train.std(0), torch.ones(30))
    assert float((model.predict(test) == labels).float().mean()) > 0.95
    # the fixture may have been built with another number of threads, which rounds differently on some CPUs
    again, same = tabular.build(3).state_dict(), tabular.build(3).state_dict()
    assert all(torch.equal(again[key], same[key]) for key in same)


def test_features_have_bounds_of_their_own(tabular: ModuleType, model: standfast.Model) -> None:
    """What neighbourhoods give stays within each feature's range, and a row beyond it is refused."""
    lower, upper = tabular.bounds()
    test = tabular.split()[1]
    edge = test[int((test == upper).any(1).nonzero()[0])][None]
    ball = standfast.LinfBall(radius=0.5)
    metric = standfast.metrics.WorstCase(
        ball, event="changed_explanation", similarity="spearman", budget=200
    )
    found = metric(model, "saliency", edge)
    worst = found.inputs
    assert bool(((worst >= lower - 1e-6) & (worst <= upper + 1e-6)).all())
    assert float((worst - edge).abs().max()) <= 0.5 + 1e-6
    assert not torch.equal(worst, edge)
    beyond = edge.clone()
    beyond[0, 3] = upper[3] + 0.5
    with pytest.raises(ArgumentError, match="inputs: expected values within the bounds"):
        model.logits(beyond)


def test_shapley_values_of_an_additive_model() -> None:
    """Each feature its own player: `w_i x_i` exactly, for KernelSHAP, and in the limit for LIME without a kernel."""
    module = nn.Linear(30, 2)
    model = standfast.Model(module, (-3.0, 3.0), device="cpu")
    x = torch.randn(4, 30, generator=torch.Generator().manual_seed(0)).clamp(-3, 3)
    expected = module.weight[1].detach() * x
    for name, options in (
        ("kernel_shap", {}),
        ("lime", {"output": "logit", "ridge": 0.0, "kernel_width": 100.0}),
    ):
        maps = standfast.explainers.get(name, samples=300, segments="pixels", **options)(
            model, x, 1
        )
        torch.testing.assert_close(maps, expected, rtol=1e-3, atol=1e-4)


def test_the_example(
    tabular: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = tabular.evaluate(samples=1, budget=40)
    frame = found.frame()
    assert found.failures == []
    assert (
        len(frame) == 2 * 5 + 2 * 7
    )  # two of four metrics evaluate three controls as well, the others a copy of the input
    assert set(frame["status"]) <= {"ok", "degenerate", "misclassified"}
    curves = found.frame("corruption_curve")
    assert curves["area_top"].is_finite().all()
    page = found.to_html(tmp_path / "index.html").read_text()
    assert "KernelSHAP" in page


def test_the_trees(tabular: ModuleType) -> None:
    """Six explainers of the trees by four metrics, and no job fails; shap is an extra."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("shap")
    _, test, _, labels = tabular.split()
    accuracy = tabular.fit_trees().score(test.numpy(), labels.numpy())
    page = (EXAMPLES.parent / "docs" / "how-to" / "tabular.md").read_text(encoding="utf-8")
    assert f"(100 trees, {accuracy:.1%} test accuracy)" in page
    found = tabular.evaluate_trees(samples=1, budget=20)
    assert found.failures == []
    frame = found.frame()
    # and two controls by the corruption curve, one by the measures of stability
    assert len(frame) == 4 * 6 + 2 + 3
    assert set(frame["status"]) == {"ok"}
    assert set(frame["explainer"]) == {*tabular.explain_trees(), "random", "input_copy"}


def test_the_study(tabular: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = YAML(typ="safe").load((EXAMPLES / "tabular.yaml").read_text())
    content |= {"samples": 2, "executor": {"workers": 1}}
    content["metrics"][0]["worst_case"]["budget"] = 40
    content["explainers"] = {
        key: content["explainers"][key] for key in ("integrated gradients", "Captum's occlusion")
    }
    found = standfast.run_study(study_from(content, EXAMPLES), tmp_path / "results", progress=False)
    sys.modules.pop("tabular", None)
    assert found.failures == []
    samples = found.samples
    controls = found.manifest["controls"]
    # a table has no edges
    assert controls == [
        "random",
        "input_copy",
        "randomised:integrated gradients",
    ]
    assert set(samples["explainer"]) == {"integrated gradients", "Captum's occlusion", *controls}
    assert len(samples.filter(~pl.col("explainer").is_in(controls))) == 2 * 4 * 2
    lower, upper = found.manifest["data"]["breast cancer"]["bounds"]
    assert lower[0] < lower[1] < 0 < upper[0] < upper[1]


def test_the_study_with_rules(tabular: ModuleType, tmp_path: Path) -> None:
    content = YAML(typ="safe").load((EXAMPLES / "tabular_rules.yaml").read_text())
    content |= {"samples": 2, "executor": {"workers": 1}, "explainers": ["input_x_gradient"]}
    content["metrics"][0]["worst_case"]["budget"] = 40
    content["metrics"] = content["metrics"][:2]
    found = standfast.run_study(study_from(content, EXAMPLES), tmp_path / "results", progress=False)
    sys.modules.pop("tabular", None)
    assert found.failures == []
    assert set(found.samples["status"]) == {"ok", "misclassified"}
    # the same changes, in Python, on standardised rows: all pairs of a mean and a "worst" value keep their order
    mean, std = tabular.units()
    changes = tabular.natural_changes()
    test, bounds = tabular.split()[1][:3], tabular.bounds()
    region = changes.around(test, bounds)
    rows = region.perturb(
        region.sample(20, region.streams(0)).flatten(0, 1), torch.arange(3).repeat_interleave(20)
    )
    raw = rows * std + mean
    assert bool((raw[:, :10] <= raw[:, 20:] * (1 + 1e-5) + 1e-7).all())
    assert float((rows.reshape(3, 20, 30) - test[:, None]).abs().mean()) > 0.05
    torch.testing.assert_close(tabular.Standardise()(test * std + mean), test, rtol=1e-3, atol=1e-3)
