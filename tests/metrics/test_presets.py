"""Presets: options by name, where those that are given win; and what metrics say of their costs."""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

import standfast
from conftest import SHAPES, small_net
from standfast.cli import app
from standfast.explainers.gradients.input_gradients import InputXGradient
from standfast.metrics import Metric, Result, metrics
from standfast.metrics.base import PRESETS, Preset, Presets, has_neighbourhood
from standfast.question.metric_labels import name_metrics
from standfast.study.file.spec import StudyError, load_study, study_from
from standfast.study.identity import Description
from standfast.testing import check_description

BALL = standfast.LinfBall(0.1)


def configure(name: str, **options: Any) -> Metric:
    return standfast.metrics.get(
        name, **({"neighbourhood": BALL} if has_neighbourhood(name) else {}), **options
    )


@dataclass(frozen=True)
class Drawn(Metric):
    """A metric of a plug-in: all that it declares is `presets`."""

    name = "drawn"
    direction = "higher"
    presets: ClassVar[Presets] = {"quick": {"samples": 3, "scale": 2.0}, "paper": {"samples": 1000}}

    samples: int = 100
    scale: float = 1.0

    def __post_init__(self) -> None:
        assert self.samples > 0

    def evaluate(self, call: Any) -> Result:
        raise NotImplementedError


@dataclass(frozen=True)
class Masked(Drawn):
    """Tensors cannot be compared, so its field is not."""

    name = "masked"

    mask: Tensor = field(default_factory=lambda: torch.zeros(2), compare=False)


@dataclass(frozen=True)
class Narrow(Drawn):
    """Fixes one of the options."""

    name = "narrow"

    samples: int = field(init=False, default=50)


def test_preset_fills_in_what_is_not_given() -> None:
    assert (Drawn().samples, Drawn().scale) == (100, 1.0)
    assert Drawn(preset="standard") == Drawn()
    assert (Drawn(preset="quick").samples, Drawn(preset="quick").scale) == (3, 2.0)
    assert Drawn(preset="paper").scale == 1.0


def test_options_that_are_given_win() -> None:
    """Also positional ones, and those that are given the value of the default."""
    assert Drawn(100, preset="quick") == Drawn(samples=100, preset="quick") == Drawn(100, 2.0)
    assert dataclasses.replace(Drawn(preset="quick"), samples=7) == Drawn(7, 2.0)


def test_stored_options_are_those_that_result() -> None:
    assert Drawn(scale=5.0, preset="quick").options() == {
        "preset": "quick",
        "samples": 3,
        "scale": 5.0,
    }
    assert not Drawn.has_effect("preset", {})
    assert "preset" not in repr(Drawn(preset="quick"))


def test_equal_options_have_one_identity_whichever_preset_they_come_from() -> None:
    """Else jobs would be done again where only the word changes."""
    quick = Drawn(preset="quick")
    assert (
        Description(quick).digest
        == Description(Drawn(3, 2.0)).digest
        == Description(Drawn(3, 2.0, preset="paper")).digest
    )
    assert Description(quick).digest != Description(Drawn()).digest
    assert (
        Description(standfast.metrics.LogOdds(preset="quick")).digest
        == Description(standfast.metrics.LogOdds()).digest
    )


def test_fields_of_the_users_own_count_even_if_they_are_not_compared() -> None:
    assert (
        Description(Masked(mask=torch.ones(2))).digest
        != Description(Masked(mask=torch.zeros(2))).digest
    )
    assert (
        Description(Masked(3, 2.0, torch.ones(2))).digest
        == Description(Masked(3, 2.0, torch.ones(2), preset="quick")).digest
    )


def test_options_that_a_subclass_fixes_are_left_to_it() -> None:
    quick = Narrow(preset="quick")
    assert (quick.samples, quick.scale) == (50, 2.0)
    assert Narrow(scale=7.0).pilot() == Narrow(scale=2.0)
    check_description(Narrow(), SHAPES["flat"])


def test_an_error_that_a_preset_causes_names_it() -> None:
    """Also in a study file, where the place of the option is named."""
    with pytest.raises(
        standfast.ArgumentError, match="budget: .* got 10000 .preset 'quick' sets budget=10000.$"
    ):
        standfast.metrics.MisinterpretationProbability(BALL, particles=20_000, preset="quick")
    entry = {
        "misinterpretation_probability": {
            "particles": 20_000,
            "preset": "quick",
            "neighbourhood": {"linf": 0.1},
        }
    }
    with pytest.raises(StudyError, match="preset 'quick' sets budget=10000"):
        study_from(words(metrics=[entry]))


@pytest.mark.parametrize(
    "make", [Drawn, partial(standfast.metrics.get, "worst_case", neighbourhood=BALL)]
)
def test_unknown_preset_is_an_error(make: Any) -> None:
    words = "preset: expected one of quick, standard, paper, got"
    with pytest.raises(standfast.ArgumentError, match=f"{words} 'quik' .did you mean 'quick'"):
        make(preset="quik")
    with pytest.raises(standfast.ArgumentError, match=f"{words} 3"):
        make(preset=3)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", standfast.metrics.names())
def test_presets_of_every_metric(name: str, preset: Preset) -> None:
    found, standard = configure(name, preset=preset), configure(name)
    declared = type(found).presets.get(preset, {})
    assert "standard" not in type(found).presets
    for option, value in declared.items():
        assert getattr(found, option) == value
        assert getattr(standard, option) != value, (
            "a preset has only what differs from the defaults"
        )
    if preset == "quick":
        assert found.cost().evaluations <= 10_000
    same = set(found.options()) - set(declared) - {"preset"}
    assert all(found.options()[option] == standard.options()[option] for option in same)


@pytest.mark.parametrize("name", standfast.metrics.names())
def test_quick_preset_runs(name: str) -> None:
    shape = SHAPES["image"]
    kind, model = (
        metrics[name],
        standfast.Model(small_net(shape), (0.0, 1.0), device="cpu", batch_size=64),
    )
    quick = dataclasses.replace(kind.example(), **kind.presets.get("quick", {}))
    result = quick(
        model, "input_x_gradient", torch.rand(2, *shape, generator=torch.Generator().manual_seed(3))
    )
    assert result.status == ("ok", "ok")
    if result.low is not None and result.high is not None:
        inside = (result.low <= result.value) & (result.value <= result.high)
        assert bool((inside | result.low.isnan()).all())


def test_presets_of_metrics_by_name() -> None:
    found = name_metrics(
        ["aopc", "aopc:preset=standard", "aopc:steps=7", standfast.metrics.AOPC()], preset="quick"
    )
    assert [metric.cost().evaluations for metric in found.values()] == [61, 501, 15, 501]


def small_model() -> standfast.Model:
    return standfast.Model(small_net(SHAPES["flat"]), (0.0, 1.0), device="cpu", batch_size=64)


@pytest.mark.parametrize("run", [partial(standfast.evaluate, progress=False), standfast.estimate])
def test_a_wrong_preset_is_an_error_also_without_metrics_by_name(run: Any) -> None:
    with pytest.raises(
        standfast.ArgumentError, match="preset: expected one of quick, .* got 'quik' .did you mean"
    ):
        run(
            small_model(),
            "saliency",
            torch.rand(2, *SHAPES["flat"]),
            standfast.metrics.AOPC(),
            preset="quik",
        )


@pytest.mark.parametrize("run", [partial(standfast.evaluate, progress=False), standfast.estimate])
def test_a_preset_without_metrics_by_name_is_warned_of(run: Any) -> None:
    metric = standfast.metrics.MaxSensitivity(BALL, samples=2)
    with pytest.warns(
        UserWarning, match="preset='quick' has no effect, because no metric is given by name"
    ) as caught:
        run(
            small_model(),
            "saliency",
            torch.rand(2, *SHAPES["flat"]),
            {"own": metric},
            preset="quick",
        )
    assert caught[0].filename == __file__
    run(small_model(), "saliency", torch.rand(2, *SHAPES["flat"]), [metric, "aopc"], preset="quick")


def words(**more: Any) -> dict[str, Any]:
    content = {"data": {"d": "digits"}, "models": {"m": "lenet5-mnist"}, "explainers": ["saliency"]}
    return {
        **content,
        "metrics": [{"aopc": {"steps": 7}}, {"aopc": {"preset": "paper"}}, "log_odds"],
        **more,
    }


def test_presets_in_a_study_file() -> None:
    first, second, _ = study_from(words()).grid(check=False).metrics.values()
    assert (first.samples, second.samples) == (5, 5)  # type: ignore[attr-defined]
    study = study_from(words(preset="quick"))
    first, second, _ = study.grid(check=False).metrics.values()
    assert (first.steps, first.samples, first.preset) == (7, 2, "quick")  # type: ignore[attr-defined]
    assert (second.steps, second.samples, second.preset) == (100, 5, "paper")  # type: ignore[attr-defined]
    assert study.plain()["metrics"]["aopc"]["aopc"]["samples"] == 2
    again = study_from(study.plain())
    assert [entry.value for entry in again.metrics.values()] == [
        entry.value for entry in study.metrics.values()
    ]


@pytest.mark.parametrize(
    "content", [words(preset="quik"), words(metrics=[{"aopc": {"preset": "quik"}}])]
)
def test_unknown_preset_in_a_study_file(content: dict[str, Any]) -> None:
    with pytest.raises(
        StudyError,
        match="preset: expected quick, standard or paper, got 'quik' .did you mean 'quick'",
    ):
        study_from(content)


def test_presets_of_the_users_own_metrics_in_a_study_file(tmp_path: Path) -> None:
    study = study_from(
        words(preset="quick", metrics=[{"mine": {"function": f"{__name__}:Drawn", "trust": True}}]),
        tmp_path,
    )
    (metric,) = study.grid(check=False).metrics.values()
    assert metric == Drawn(3, 2.0)


def test_preset_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "study.yaml"
    text = "samples: 1\ndata: [digits]\nmodels: [lenet5-mnist]\nexplainers: [saliency]\n"
    file.write_text(text + "metrics: [corruption_curve]\n")
    assert load_study(file).preset == "standard"
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["run", "study.yaml", "--preset", "quick", "--no-report"])
    assert done.exit_code == 0, done.output
    results = standfast.load_results("results/study")
    assert results.manifest["metrics"]["corruption_curve"]["options"]["samples"] == 1
    assert results.manifest["study"]["preset"] == "quick"


@dataclass(frozen=True)
class Counting(InputXGradient):
    """Counts the rows that it explains."""

    rows: ClassVar[Counter[str]] = Counter()

    def attribute(
        self,
        model: standfast.Model,
        x: Tensor,
        targets: Tensor | None,
        *,
        create_graph: bool = False,
    ) -> tuple[Tensor, Tensor]:
        self.rows["explained"] += len(x)
        return super().attribute(model, x, targets, create_graph=create_graph)


#: their evaluations depend on what is found, and on the number of layers; a trial shows it (`standfast.estimate`)
DEPENDENT = ("misinterpretation_probability", "parameter_sensitivity_consistency")


@pytest.mark.parametrize("name", standfast.metrics.names())
def test_the_cost_is_what_happens(name: str) -> None:
    """Within a factor of two; 16 samples, so that few of the rows are padding."""
    shape, count = SHAPES["image"], 16
    model = standfast.Model(small_net(shape), (0.0, 1.0), device="cpu", batch_size=64)
    metric, explainer = metrics[name].example(), Counting()
    explainer.rows.clear()
    inputs = torch.rand(count, *shape, generator=torch.Generator().manual_seed(3))
    result = metric(model, explainer, inputs)
    evaluations = result.model_evaluations.double().mean().item()
    if name not in DEPENDENT:
        assert 0.5 <= metric.cost().evaluations / evaluations <= 2
    explained = explainer.rows["explained"] / count / evaluations
    assert 0.5 <= metric.cost().explanations / metric.cost().evaluations / explained <= 2
