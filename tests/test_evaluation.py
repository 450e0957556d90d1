"""Running a grid: results stored atomically, resumed, failures recorded; the one-liner and the command line."""

from __future__ import annotations

import functools
import logging
import os
from functools import partial
from pathlib import Path
from typing import Any

import captum.attr
import captum.metrics
import numpy as np
import polars as pl
import pytest
import torch
from refusals import assert_refused

import standfast
from conftest import small_net
from standfast.files import write_atomically
from standfast.metrics import LocalLipschitz, MaxSensitivity, WorstCase
from standfast.neighbourhoods import Brightness, Compose, TimeShift
from standfast.question.metric_labels import name_metrics

BALL = standfast.LinfBall(0.1)


class OfQuantus:
    """Stands in for a metric of Quantus, which need not be installed."""

    __module__ = "quantus.metrics.complexity.sparseness"


@pytest.fixture
def model() -> standfast.Model:
    return standfast.Model(small_net((1, 8, 8)), (0.0, 1.0), device="cpu", batch_size=64)


@pytest.fixture
def inputs() -> torch.Tensor:
    return torch.rand(5, 1, 8, 8, generator=torch.Generator().manual_seed(0))


METRICS = [
    WorstCase(BALL, budget=30),
    MaxSensitivity(BALL, samples=5),
    LocalLipschitz(BALL, samples=5),
]
#: of tests that ask nothing of the sanity checks
QUIETLY: dict[str, Any] = {"progress": False, "sanity": False}


def test_explainers_may_come_from_a_generator(model: standfast.Model, inputs: torch.Tensor) -> None:
    names = (name for name in ("saliency", "input_x_gradient"))
    found = standfast.evaluate(model, names, inputs[:1], METRICS[1], controls=False, progress=False)
    assert set(found.frame()["explainer"]) == {"saliency", "input_x_gradient"}


def test_evaluate_gives_a_tidy_frame_and_a_report(
    model: standfast.Model, inputs: torch.Tensor, tmp_path: Path
) -> None:
    found = standfast.evaluate(
        model, {"a": "saliency", "b": "gradcam"}, inputs, METRICS, controls=False, progress=False
    )
    frame = found.samples
    assert frame.height == 2 * 3 * 5
    assert set(frame["explainer"]) == {"a", "b"}
    direct = METRICS[0](model, "gradcam", inputs, generator=torch.Generator().manual_seed(0))
    stored = frame.filter((pl.col("explainer") == "b") & (pl.col("metric") == "worst_case")).sort(
        "sample"
    )
    assert stored["similarity"].to_list() == pytest.approx(direct.similarity.tolist(), abs=0)
    report = found.to_html(tmp_path / "report.html")
    assert report.read_text().rstrip().endswith("<!-- standfast report: complete -->")


def test_results_do_not_depend_on_how_the_work_is_cut(
    model: standfast.Model, inputs: torch.Tensor
) -> None:
    frames = [
        standfast.evaluate(
            model,
            ["saliency"],
            inputs,
            METRICS,
            **QUIETLY,
            controls=False,
            samples_per_job=size,
        ).samples.drop("job")
        for size in (1, 2, 5)
    ]
    order = ["label", "explainer", "sample"]
    assert all(f.sort(order).equals(frames[0].sort(order)) for f in frames[1:])
    other = standfast.evaluate(
        model, ["saliency"], inputs, METRICS, **QUIETLY, controls=False, seed=1
    ).samples.drop("job")
    assert not other.sort(order).equals(frames[0].sort(order))


def test_repeats_differ_and_the_first_is_the_study_without_them(
    model: standfast.Model, inputs: torch.Tensor
) -> None:
    once = standfast.evaluate(model, ["saliency"], inputs, METRICS, **QUIETLY).samples
    thrice = standfast.evaluate(model, ["saliency"], inputs, METRICS, **QUIETLY, repeats=3).samples
    columns = [name for name in once.columns if name != "job"]  # a job's identity is its own
    first = thrice.filter(pl.col("repeat") == 0).select(columns)
    assert first.equals(once.select(columns))
    values = [
        thrice.filter(pl.col("repeat") == r, pl.col("label") == "max_sensitivity")["value"]
        for r in range(3)
    ]
    assert not values[0].equals(values[1])
    assert not values[1].equals(values[2])


def test_lists_and_wrong_kinds(model: standfast.Model, inputs: torch.Tensor) -> None:
    explainers = [standfast.explainers.get("saliency"), "gradcam"]
    found = standfast.evaluate(model, explainers, inputs, METRICS[1:2], **QUIETLY, controls=False)
    assert set(found.frame()["explainer"]) == {"saliency", "gradcam"}
    for metric in ("aopc:steps=2", standfast.metrics.AOPC(steps=2)):
        alone = standfast.evaluate(
            model, "saliency", inputs, metric, **QUIETLY, controls=False
        ).frame()
        assert alone["explainer"].unique().to_list() == ["saliency"]
        assert alone["label"].unique().to_list() == ["aopc"]
    with pytest.raises(
        standfast.ArgumentError, match=r"metric: expected a name or a Metric \(an instance"
    ):
        standfast.evaluate(model, "saliency", inputs, standfast.metrics.CEval, progress=False)  # type: ignore[arg-type]
    expected = "model: expected a standfast Model or a torch.nn.Module, got function"
    with pytest.raises(standfast.ArgumentError, match=expected):
        standfast.evaluate(small_net, "saliency", inputs, "aopc", progress=False)  # type: ignore[arg-type]
    evaluate = partial(standfast.evaluate, model, "saliency", inputs, "aopc", progress=False)
    assert_refused(evaluate, seed=["a", 2**64], about=[[1]])
    for given in (
        {"explainers": None, "metrics": "aopc"},
        {"explainers": "saliency", "metrics": None},
    ):
        with pytest.raises(
            standfast.ArgumentError,
            match="(explainers|metrics): expected one, several in a list, or",
        ):
            standfast.evaluate(model, inputs=inputs, progress=False, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"metrics": {1: "aopc"}}, "metrics: expected names that are texts, and not empty, got 1$"),
        (
            {"explainers": {1: "saliency"}},
            "explainers: expected names that are texts, and not empty, got 1$",
        ),
        (
            {"metrics": {" ": "aopc"}},
            "metrics: expected names that are texts, and not empty, got ' '$",
        ),
        (
            {"about": {"title": "a", "n": {1}}},
            r"about\['n'\]: expected a text, a number, or .*, got set$",
        ),
        (
            {"about": {"model": torch.nn.ReLU()}},
            r"about\['model'\]: expected a text, .*, got ReLU$",
        ),
        (
            {"explainers": captum.attr.Saliency(torch.nn.ReLU())},
            "use 'captum:Saliency', or .*from_captum",
        ),
        (
            {"explainers": [captum.attr.Saliency]},
            "got Saliency of captum: use 'captum:Saliency', or .*from_captum",
        ),
        *(
            (
                {"explainers": [given]},
                "explainer: .* got Saliency of captum: use 'captum:Saliency', or .*from_captum",
            )
            for given in (
                captum.attr.Saliency(torch.nn.ReLU()).attribute,
                functools.partial(captum.attr.Saliency(torch.nn.ReLU()).attribute, abs=False),
            )
        ),
        ({"metrics": OfQuantus()}, "metrics: .* got OfQuantus of quantus: use 'quantus:OfQuantus'"),
        (
            {"metrics": [OfQuantus]},
            "metric: expected a name or a Metric, got .* use 'quantus:OfQuantus'",
        ),
        ({"metrics": captum.metrics.infidelity}, "metrics: .* use 'captum:infidelity'"),
        (
            {"metrics": "aopc:baseline=(0.0,1.0)"},
            r"baseline: expected one number, or 1 .*, got 2 numbers",
        ),
        (
            {"explainers": "integrated_gradients:baseline=(0.0,1.0)"},
            r"baseline: expected one number, or 1 .*, got 2 n",
        ),
    ],
)
def test_what_would_fail_later_fails_at_once(
    model: standfast.Model, inputs: torch.Tensor, change: dict[str, Any], message: str
) -> None:
    given = {"explainers": "saliency", "metrics": "aopc", **change}
    with pytest.raises(standfast.ArgumentError, match=message):
        standfast.evaluate(model, inputs=inputs, progress=False, **given)


def test_results_are_not_written_in_the_place_of_a_file(
    model: standfast.Model, inputs: torch.Tensor, tmp_path: Path
) -> None:
    (file := tmp_path / "a.csv").write_text("")
    with pytest.raises(
        standfast.ArgumentError, match=r"out: expected a folder, got the file .*a.csv$"
    ):
        standfast.evaluate(model, "saliency", inputs, "aopc", out=file, progress=False)
    with pytest.raises(
        standfast.ArgumentError, match="study: expected a study file, .*, got NoneType$"
    ):
        standfast.run_study(None)  # type: ignore[arg-type]


def test_a_run_in_which_all_fails_warns_and_has_the_common_columns(
    model: standfast.Model, inputs: torch.Tensor
) -> None:
    def broken(module: torch.nn.Module, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        raise ZeroDivisionError("no explanation today")

    with pytest.warns(
        UserWarning, match="2 of 2 jobs failed:\n  broken failed for 1 of 1 metric: .*no expl"
    ):
        found = standfast.evaluate(model, [broken], inputs, "aopc", progress=False, controls=False)
    assert {"value", "low", "high"} <= set(found.frame().columns)


def test_files_are_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "file"
    write_atomically(target, b"old")
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_atomically(target, b"new")
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def brightness(
    module: torch.nn.Module, inputs: torch.Tensor, targets: torch.Tensor
) -> torch.Tensor:
    return inputs


def test_names_functions_and_objects_together(model: standfast.Model, inputs: torch.Tensor) -> None:
    pytest.importorskip("quantus")
    metrics = ["worst_case:budget=30", "quantus:Sparseness", standfast.metrics.CEval()]
    found = standfast.evaluate(
        model, ["saliency", brightness], inputs[:2], metrics, **QUIETLY, controls=False
    )
    assert found.failures == []
    assert set(found.frame()["explainer"]) == {"saliency", "brightness"}
    assert found.frame().height == 2 * 3 * 2
    worst = found.manifest["metrics"]["worst_case: changed_explanation"]["options"]
    assert worst["neighbourhood"]["radius"] == 8 / 255
    given = standfast.evaluate(
        model,
        ["saliency"],
        inputs[:2],
        metrics[:1],
        neighbourhood=standfast.L2Ball(0.2),
        **QUIETLY,
    )
    assert given.manifest["metrics"]["worst_case: changed_explanation"]["options"][
        "neighbourhood"
    ] == {
        **worst["neighbourhood"],
        "norm": "L2Ball",
        "radius": 0.2,
    }
    assert "default neighbourhood" not in given.manifest["about"]


def test_a_neighbourhood_that_no_metric_takes(model: standfast.Model, inputs: torch.Tensor) -> None:
    own = standfast.metrics.MaxSensitivity(standfast.LinfBall(0.1), samples=2)
    with pytest.warns(
        UserWarning,
        match="neighbourhood= has no effect, because no metric that has one is given by",
    ):
        standfast.evaluate(
            model,
            "saliency",
            inputs[:1],
            own,
            neighbourhood=standfast.LinfBall(0.2),
            progress=False,
        )


@pytest.mark.parametrize(
    "bounds", [(-torch.inf, torch.inf), (torch.zeros(2), torch.tensor([1.0, 2.0]))]
)
def test_no_neighbourhood_without_a_range(bounds: tuple[float, float]) -> None:
    model = standfast.Model(torch.nn.Linear(2, 3), bounds, device="cpu")
    with pytest.raises(
        standfast.ArgumentError, match="neighbourhood: expected a neighbourhood, .* got None"
    ):
        standfast.evaluate(
            model, ["saliency"], torch.full((1, 2), 0.5), ["max_sensitivity"], progress=False
        )
    # without the default
    metrics = [
        "parameter_sensitivity_consistency:masks=20",
        MaxSensitivity(BALL, samples=2),
    ]
    assert (
        standfast.evaluate(
            model, ["saliency"], torch.full((1, 2), 0.5), metrics, progress=False
        ).failures
        == []
    )


def test_transformations_in_turn(model: standfast.Model, inputs: torch.Tensor) -> None:
    """Each metric by name in each of them; their words and labels are in the report, and differ."""
    several = [Brightness(0.2), Compose((Brightness(0.1), Brightness((0.0, 0.2))))]
    found = standfast.evaluate(
        model,
        ["saliency"],
        inputs[:2],
        {"s": "max_sensitivity:samples=3"},
        neighbourhood=several,
        progress=False,
    )
    assert found.failures == []
    labels = ["s: brightness 0.2", "s: brightness 0.1 + brightness 0 to 0.2"]
    assert sorted(found.frame()["label"].unique()) == sorted(labels)
    expected = found.run.planned
    costs = standfast.estimate(
        model,
        ["saliency"],
        inputs[:2],
        ["max_sensitivity:samples=3"],
        neighbourhood=several,
        seconds=0.01,
    )
    assert (len(costs.frame()), expected) == (
        5,
        5,
    )  # the checks, and two metrics with a copy of the input beside the explainer
    for wrong in (0.1, [], [BALL, 0.1]):
        with pytest.raises(
            standfast.ArgumentError, match="neighbourhood: expected a neighbourhood"
        ):
            standfast.evaluate(
                model, ["saliency"], inputs, ["max_sensitivity"], neighbourhood=wrong
            )


def test_names_of_metrics() -> None:
    assert list(name_metrics([*METRICS, METRICS[0]])) == [
        "worst_case: changed_explanation",
        "max_sensitivity",
        "local_lipschitz",
        "worst_case: changed_explanation 2",
    ]
    assert list(name_metrics({"mine": METRICS[0]})) == ["mine"]
    assert (
        name_metrics(["worst_case:budget=30", METRICS[1]], BALL)["worst_case: changed_explanation"]
        == METRICS[0]
    )
    several = [BALL, TimeShift(3)]
    assert list(name_metrics(["worst_case", "aopc", METRICS[1]], several)) == [
        "worst_case: changed_explanation, linf 0.1",
        "worst_case: changed_explanation, time shift 3",
        "aopc",
        "max_sensitivity",
    ]
    found = name_metrics({"a": "max_sensitivity", "b": METRICS[1]}, several)
    assert {label: metric.neighbourhood for label, metric in found.items()} == {  # type: ignore[attr-defined]
        "a: linf 0.1": BALL,
        "a: time shift 3": TimeShift(3),
        "b": BALL,
    }
    with pytest.raises(
        standfast.ArgumentError, match="neighbourhood: expected a value for worst_case, such as"
    ):
        name_metrics(["worst_case"])  # type: ignore[list-item]


# what newcomers meet


def net() -> torch.nn.Module:
    return small_net((1, 8, 8))


def dataset(inputs: torch.Tensor, **more: object) -> standfast.data.Dataset:
    labels = torch.zeros(len(inputs), dtype=torch.int64)
    return standfast.data.Dataset("scans", inputs, labels, ("healthy", "ill"), **more)  # type: ignore[arg-type]


def test_a_module_alone_has_the_bounds_of_the_data_set(inputs: torch.Tensor) -> None:
    about = {"model": "small net, 70% right"}
    data = dataset(2 * inputs - 1, bounds=(-1.0, 1.0))
    found = standfast.evaluate(net(), "saliency", data, METRICS[1], about=about, progress=False)
    manifest = found.manifest
    assert list(manifest["models"]) == ["small net"]
    assert manifest["about"]["bounds"] == "[-1, 1], those of the data set scans"
    assert manifest["data"]["scans"]["bounds"] == [[-1.0, -1.0], [1.0, 1.0]]
    assert (
        standfast.estimate(net(), "saliency", dataset(inputs), METRICS[1], seconds=0.1).evaluations
        > 0
    )


def test_a_module_alone_assumes_bounds_aloud_or_not_at_all(inputs: torch.Tensor) -> None:
    with pytest.warns(
        UserWarning, match=r"bounds: taken as \[0, 1\], because all inputs lie in \[0.*Model"
    ) as caught:
        found = standfast.evaluate(net(), "saliency", inputs, METRICS[1], progress=False)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert found.manifest["about"]["bounds"].startswith(
        "[0, 1], assumed because all inputs lie in [0.0"
    )
    for values in (inputs - 0.5, 1.01 * inputs, 0.01 * inputs, 255 * inputs):
        with pytest.raises(
            standfast.ArgumentError, match=r"bounds: expected .*Model\(net, bounds=\(low, high\)\)"
        ):
            standfast.evaluate(net(), "saliency", values, METRICS[1], progress=False)
    with pytest.raises(
        standfast.ArgumentError,
        match=r"inputs: expected a torch.Tensor or a Dataset; .*, got ndarray: use",
    ):
        standfast.evaluate(net(), "saliency", inputs.numpy(), METRICS[1], progress=False)  # type: ignore[arg-type]
    pair = (inputs, torch.zeros(len(inputs)))
    for model in (net(), standfast.Model(net(), (0.0, 1.0), device="cpu")):
        with pytest.raises(standfast.ArgumentError, match=r"got tuple: give the inputs alone"):
            standfast.evaluate(model, "saliency", pair, METRICS[1], progress=False)  # type: ignore[arg-type]
        for kind in (torch.uint8, torch.int64):
            with pytest.raises(standfast.ArgumentError, match=rf"got {kind}: use x.float\(\)"):
                standfast.evaluate(model, "saliency", inputs.to(kind), METRICS[1], progress=False)


def test_data_and_model_have_names_of_their_own(
    model: standfast.Model, inputs: torch.Tensor
) -> None:
    def names(given: object, **about: str) -> tuple[list[str], list[str]]:
        found = standfast.evaluate(
            model, "saliency", given, METRICS[1], progress=False, about=about
        )
        return list(found.manifest["data"]), list(found.manifest["models"])

    kind = type(model.module).__name__
    assert names(dataset(inputs)) == (["scans"], [kind])
    assert names(inputs) == (["inputs"], [kind])
    assert names(inputs, model="resnet, 99% accuracy", data="12 scans, 2024") == (
        ["12 scans"],
        ["resnet"],
    )


def test_what_failed_is_warned_of_once_with_the_reason(
    inputs: torch.Tensor, tmp_path: Path
) -> None:
    flat = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 3))
    model = standfast.Model(flat, (0.0, 1.0), device="cpu")
    words = "4 of 11 jobs failed:\n  gradcam failed for 3 of 3 metrics: gradcam needs a convolution, and this Seq"
    with pytest.warns(UserWarning, match=words) as caught:
        found = standfast.evaluate(
            model,
            ["saliency", "gradcam"],
            inputs,
            METRICS,
            progress=False,
            samples_per_job=5,
            out=tmp_path,
        )
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert "Failed: gradcam failed for 3 of 3 metrics: gradcam needs" in " ".join(
        str(found).split()
    )


def test_a_module_that_cannot_predict_fails_before_any_job(
    inputs: torch.Tensor, tmp_path: Path
) -> None:
    flat = standfast.Model(torch.nn.Linear(8, 2), (0.0, 1.0), device="cpu")
    with pytest.raises(
        standfast.ModelError, match=r"a tensor of shape \(N, 1, 8, 2\) for inputs of shape"
    ):
        standfast.evaluate(flat, "saliency", inputs, METRICS, progress=False, out=tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_radius_beyond_the_range_is_warned_of_once(
    model: standfast.Model, inputs: torch.Tensor
) -> None:
    metrics = ["max_sensitivity:samples=2", "local_lipschitz:samples=2"]
    with pytest.warns(UserWarning, match=r"was LinfBall\(8/255\) meant\?") as caught:
        standfast.evaluate(
            model, "saliency", inputs, metrics, neighbourhood=standfast.LinfBall(8), progress=False
        )
    assert len(caught) == 1
    assert caught[0].filename == __file__
    model._warned.clear()
    with pytest.warns(UserWarning, match="radius: LinfBall"):
        MaxSensitivity(standfast.LinfBall(8), samples=2)(model, "saliency", inputs)


def test_numbers_of_numpy_are_accepted_in_calls_and_studies(
    model: standfast.Model, inputs: torch.Tensor
) -> None:
    two = np.int64(2)
    numbers = {"seed": two, "repeats": two, "samples_per_job": torch.tensor(2)}
    metric = "max_sensitivity:samples=2"
    found = standfast.evaluate(model, "saliency", inputs, metric, progress=False, **numbers)  # type: ignore[arg-type]
    manifest = found.manifest
    assert [manifest[name] for name in numbers] == [2, 2, 2]
    study = {
        "data": {"digits": "digits"},
        "samples": two,
        "models": {"net": "lenet5-mnist"},
        "explainers": [{"integrated_gradients": {"steps": two}}],
        "metrics": [{"aopc": {"steps": torch.tensor(2), "samples": two}}],
        "seed": two,
    }
    done = standfast.run_study(study, "memory://numbers", progress=False)
    assert done.manifest["explainers"]["integrated_gradients"]["steps"] == 2
    assert done.manifest["study"]["seed"] == 2


def test_messages_for_logging_and_none_without_a_wish(
    model: standfast.Model,
    inputs: torch.Tensor,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def broken(module: torch.nn.Module, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        raise ZeroDivisionError

    explainers = {"good": "saliency", "bad": broken}
    with (
        caplog.at_level("DEBUG", logger="standfast"),
        pytest.warns(UserWarning, match="bad failed for 1 of 1 metric"),
    ):
        standfast.evaluate(
            model,
            explainers,
            inputs,
            "aopc:steps=2",
            progress=False,
            samples_per_job=5,
            controls=False,
            sanity=False,
        )
    assert [record.levelname for record in caplog.records if record.levelno >= logging.WARNING] == [
        "WARNING"
    ]
    assert capfd.readouterr() == ("", "")
