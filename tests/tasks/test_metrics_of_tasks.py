"""Metrics of models that are no classifiers, where the value is known in closed form: linear networks."""

from __future__ import annotations

import dataclasses
import itertools
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from light import light_metric
from scipy.stats import norm
from torch import Tensor, nn

import standfast
from standfast.errors import ArgumentError
from standfast.tasks import (
    Binary,
    Classification,
    Detection,
    Embedding,
    MultiLabel,
    Regression,
    Segmentation,
    Task,
    ZeroShot,
)
from standfast.tasks.labels import compute_probabilities

FEATURES = 6


def linear(outputs: int, seed: int = 0) -> nn.Linear:
    module = nn.Linear(FEATURES, outputs)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        module.weight.copy_(torch.randn(outputs, FEATURES, generator=generator))
        module.bias.copy_(torch.randn(outputs, generator=generator))
    return module


def make_model(module: nn.Module, task: Task | str, most: float = 5.0) -> standfast.Model:
    return standfast.Model(module, bounds=(-most, most), device="cpu", task=task)


@pytest.fixture
def inputs() -> Tensor:
    return torch.randn(5, FEATURES, generator=torch.Generator().manual_seed(1)).clamp(-2, 2)


def test_gradients_explain_the_score(inputs: Tensor) -> None:
    module = linear(3)
    weights = module.weight.detach()
    values = module(inputs).detach()
    saliency = standfast.explainers.get("saliency", absolute=False)
    regression = make_model(module, Regression(0.5))
    assert torch.allclose(saliency(regression, inputs, 1), weights[1].expand(5, -1))
    assert torch.allclose(saliency(regression, inputs), weights[0].expand(5, -1))
    labels = values.argmax(1)
    assert torch.allclose(saliency(make_model(module, "multi_label"), inputs), weights[labels])
    vectors = make_model(module, Embedding(0.5))
    unit = values / values.norm(dim=1, keepdim=True)
    assert torch.allclose(saliency(vectors, inputs), unit @ weights, atol=1e-5)
    single = linear(1)
    signs = single(inputs).detach().sign()
    assert torch.allclose(
        saliency(make_model(single, Binary()), inputs), signs * single.weight.detach()
    )


def test_the_largest_margin_in_a_box(inputs: Tensor) -> None:
    """`abs(w . e)` is at most `radius ||w||_1`, and a search of margins finds it."""
    module, radius, tolerance = linear(1), 0.2, 0.05
    metric = standfast.metrics.WorstCase(
        standfast.LinfBall(radius), event="misclassification", search="sign", budget=200
    )
    result = metric(make_model(module, Regression(tolerance)), "saliency", inputs)
    expected = radius * module.weight.detach().abs().sum().item() - tolerance
    torch.testing.assert_close(result.margin, torch.full((5,), expected), rtol=1e-4, atol=1e-5)


def test_probabilities_of_a_regression_that_moves(inputs: Tensor) -> None:
    """With one weight w and truncated normal noise: `P(abs(w e) > tolerance)` for a common and a rare event."""
    module = linear(1)
    with torch.no_grad():
        module.weight.zero_()
        module.weight[0, 0] = 2.0
    sigma, radius = 0.1, 0.5
    ball = standfast.LinfBall(radius, distribution="truncated_normal", sigma=sigma)
    metric = standfast.metrics.MisinterpretationProbability(ball, event="misclassification")
    for tolerance in (0.2, 0.84):
        model = make_model(module, Regression(tolerance))
        low, high = tolerance / 2 / sigma, radius / sigma
        exact = math.log(2 * (norm.cdf(high) - norm.cdf(low)) / (2 * norm.cdf(high) - 1))
        result = metric(model, "saliency", inputs[:3], generator=torch.Generator().manual_seed(0))
        assert result.status == ("ok",) * 3
        # 5 standard errors of a run; three runs of two events: a correct method fails once in 300,000 times
        assert ((result.value - exact).abs() <= 5 * result.std_error).all(), (
            exact,
            result.value,
            result.std_error,
        )
        assert (result.std_error < 0.3).all()


@pytest.mark.parametrize(
    "task", [Regression(0.3), Binary(), MultiLabel(labels="all"), "multi_label"]
)
def test_the_smallest_change_is_a_distance_from_planes(task: Task | str, inputs: Tensor) -> None:
    """c-Eval of an affine network: the nearest of the planes at which the answer changes, in the free features."""
    module = linear(1 if isinstance(task, Binary) else 3)
    model = make_model(module, task, most=50.0)
    metric = standfast.metrics.CEval(fraction=0.34, attack="fmn:steps=10,second=0")
    result = metric(model, "input_x_gradient", inputs)
    assert set(result.status) <= {"ok", "no_answer"}
    assert result.status.count("ok") >= 3
    weights, values = module.weight.detach(), module(inputs).detach()
    if isinstance(model.task, Regression):
        gaps, planes = torch.full((5, 1), 0.3), [0]
    elif isinstance(model.task, MultiLabel) and model.task.labels == "own":
        gaps, planes = values.amax(1, keepdim=True).abs(), values.argmax(1).tolist()
    else:
        gaps, planes = values.abs(), list(range(len(weights)))
    for row, fixed in enumerate(result.mask):
        if result.status[row] != "ok":  # no label is on
            continue
        which = [planes[row]] if len(planes) == 5 and gaps.shape[1] == 1 else planes
        free = weights[which] * ~fixed.reshape(-1)
        whole = (gaps[row] / weights[which].norm(dim=1)).min()
        expected = (gaps[row] / free.norm(dim=1)).min()
        assert result.c[row].item() == pytest.approx(expected.item(), rel=1e-3)
        assert result.value[row].item() == pytest.approx((expected / whole).item(), rel=1e-3)


def test_the_area_over_the_curve_of_a_linear_model(inputs: Tensor) -> None:
    """Features are set to 0 in the order of the map; the score is the predicted number itself."""
    module = linear(2)
    metric = standfast.metrics.AOPC(replacement="constant", samples=1)
    result = metric(make_model(module, Regression(1.0)), "input_x_gradient", inputs, 1)
    parts = inputs * module.weight.detach()[1]
    fallen = parts.sort(dim=1, descending=True).values.double().cumsum(1)
    expected = torch.cat([torch.zeros(5, 1), fallen], 1).mean(1)
    torch.testing.assert_close(result.value, expected.double(), rtol=1e-4, atol=1e-5)


class TwoGroups(nn.Module):
    """Two outputs of which the first is larger or the second, with other weights each; boxes and a mask of them."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.layer, self.kind = linear(2, seed=4), kind

    def forward(self, x: Tensor) -> Any:
        numbers = self.layer(x)
        if self.kind == "boxes":
            box = torch.tensor([[0.0, 0.0, 1.0, 1.0], [5.0, 5.0, 6.0, 6.0]])
            scores = 0.5 + 0.5 * numbers.sigmoid()
            return [
                {"boxes": box, "labels": torch.tensor([0, 1]), "scores": each} for each in scores
            ]
        # the first two pixels are of class 1 or 2, the others of one class each
        if self.kind == "pixels":
            first = torch.stack([numbers[:, 0] - numbers[:, 1], numbers[:, 1] - numbers[:, 0]], 1)
            middle = torch.stack([first, first], 2)
            ends = torch.tensor([[9.0, -9.0], [-9.0, 9.0]]).expand(len(x), -1, -1)
            return torch.cat([torch.full((len(x), 1, 4), -99.0), torch.cat([middle, ends], 2)], 1)
        return numbers


@pytest.mark.parametrize(
    ("kind", "task", "target"),
    [
        ("numbers", Regression(1e9), 1),
        ("numbers", MultiLabel(threshold=1e-9), None),
        ("numbers", MultiLabel(threshold=1e-9), 1),
        ("boxes", Detection(least=0.1, most=2), 1),
        ("pixels", Segmentation(iou=0.01), 2),
        ("numbers", Embedding(least=-0.999), torch.tensor([0.0, 1.0])),
    ],
)
def test_what_was_chosen_is_explained_everywhere(
    kind: str, task: Task, target: Any, inputs: Tensor
) -> None:
    """In linear layers the gradient of what was chosen hardly turns, while another output has another gradient."""
    model = make_model(TwoGroups(kind), task)
    metric = standfast.metrics.WorstCase(
        standfast.LinfBall(1.0), search="random", budget=200, explain="predicted"
    )
    saliency = standfast.explainers.get("saliency", absolute=False)
    result = metric(model, saliency, inputs, target)
    origin = dataclasses.replace(metric, explain="origin")(model, saliency, inputs, target)
    assert torch.equal(result.similarity, origin.similarity)
    assert "ok" in result.status
    if isinstance(task, Regression | MultiLabel):
        evaluated = torch.tensor([status == "ok" for status in result.status])
        torch.testing.assert_close(
            result.similarity[evaluated], torch.ones(int(evaluated.sum())), atol=1e-5, rtol=0
        )


def test_drops_of_a_regression_are_in_tolerances(inputs: Tensor) -> None:
    """Also where the prediction is near 0 or below: a right map has a positive area."""
    module = linear(1)
    metric = standfast.metrics.CorruptionCurve(replacement="constant", fractions=(0.5, 1.0))
    result = metric(make_model(module, Regression(0.5)), "input_x_gradient", inputs)
    parts = (inputs * module.weight.detach()).clamp(min=0).sum(1)
    torch.testing.assert_close(
        result.score_drop["top"][:, -1], parts.double() / 0.5, rtol=1e-4, atol=1e-5
    )


def test_weights_of_masks_by_hand(inputs: Tensor) -> None:
    """Data SenC of a linear regression: closeness of predictions `t / (t + abs(change))`, in a linear network."""
    first, second = torch.tensor([1.0, 2.0]), torch.tensor([1.5, 2.0])
    assert Regression(0.5).measure_closeness(first, second).tolist() == [0.5, 1.0]
    assert torch.allclose(
        Classification().measure_closeness(first / 4, second / 4), torch.tensor([0.875, 1.0])
    )
    result = standfast.metrics.DataSensitivityConsistency(masks=64)(
        make_model(linear(1), Regression(0.5)), "input_x_gradient", inputs
    )
    assert result.value.isfinite().all()


def test_an_attack_stays_within_the_tolerance(inputs: Tensor) -> None:
    network = nn.Sequential(nn.Linear(FEATURES, 16), nn.Tanh(), nn.Linear(16, 1))
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, generator=torch.Generator().manual_seed(2))
    model, ball = make_model(network, Regression(0.5)), standfast.LinfBall(0.3)
    metric = standfast.metrics.AttributionAttack(ball, k=2, steps=10)
    result = metric(model, "input_x_gradient", inputs)
    moved = (model.logits(result.inputs) - model.logits(inputs)).abs()[:, 0]
    assert (moved[result.label_kept] <= 0.5).all()
    worst = standfast.metrics.WorstCase(ball, budget=100)(model, "input_x_gradient", inputs)
    moved = (model.logits(worst.inputs) - model.logits(inputs)).abs()[:, 0]
    assert worst.found.all()
    assert (moved < 0.5).all()


def test_what_needs_classes_refuses_other_tasks(inputs: Tensor) -> None:
    model = make_model(linear(1), Regression(0.5))
    with pytest.raises(ArgumentError, match="log-odds compare two classes"):
        standfast.metrics.LogOdds()(model, "saliency", inputs)
    with pytest.raises(ArgumentError, match="certify"):
        standfast.metrics.CEval(certify="crown")(model, "saliency", inputs)


class Segmenter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(1, 3, 3, padding=1)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"out": self.layer(x), "aux": x}


class Detector(nn.Module):
    """Three boxes of each image, with two labels."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 21)

    def forward(self, x: Tensor) -> list[dict[str, Tensor]]:
        # not torch's own sigmoid, whose last bits depend on the place of 21 numbers in a batch
        numbers = compute_probabilities(self.layer(x.flatten(1)).reshape(-1, 3, 7))
        corner, size = 4 * numbers[..., :2], 2 + 4 * numbers[..., 2:4]
        boxes, (scores, labels) = (
            torch.cat([corner, corner + size], 2),
            (0.5 + numbers[..., 5:] / 2).max(2),
        )
        return [
            dict(zip(("boxes", "labels", "scores"), row, strict=True))
            for row in zip(boxes, labels, scores, strict=True)
        ]


@pytest.mark.parametrize(
    ("module", "task"),
    [(Segmenter, Segmentation(background=None)), (Detector, Detection(least=0.4, most=3))],
)
def test_regions_and_boxes_are_kept_by_their_true_overlap(
    module: type[nn.Module], task: Task
) -> None:
    torch.manual_seed(0)
    model = standfast.Model(module(), bounds=(0.0, 1.0), device="cpu", task=task)
    images = torch.rand(3, 1, 8, 8)
    for search in ("gradient", "block"):
        metric = standfast.metrics.WorstCase(standfast.LinfBall(0.2), search=search, budget=60)
        result = metric(model, "input_x_gradient", images)
        answer = task.answer(model.logits(images))
        margin = task.margin(model.logits(result.inputs), answer)
        torch.testing.assert_close(margin, result.margin.to(margin), rtol=1e-4, atol=1e-5)
        assert (margin[result.found] < 0).all()
    maps = standfast.explainers.get("captum:Saliency")(model, images)
    own = standfast.explainers.get("saliency")(model, images)
    torch.testing.assert_close(maps, own, rtol=1e-4, atol=1e-6)


def perceptron(outputs: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, outputs))


#: a module and a task for each column of the table in docs/how-to/tasks.md
COLUMNS: dict[str, tuple[Any, Task]] = {
    "binary": (lambda: perceptron(1), Binary()),
    "several labels": (lambda: perceptron(3), MultiLabel(labels="all")),
    "regression": (lambda: perceptron(2), Regression(0.2)),
    "embedding": (lambda: perceptron(5), Embedding(0.95)),
    "zero-shot": (lambda: perceptron(5), ZeroShot(torch.eye(5)[:3], temperature=5.0)),
    "segmentation": (Segmenter, Segmentation(background=None)),
    "detection": (Detector, Detection(least=0.4, most=3)),
}


def list_cells() -> list[Any]:
    """Every column with every metric; two metrics search as c-Eval does, and meet most columns with the slow tests."""
    cells = []
    for column, name in itertools.product(COLUMNS, standfast.metrics.names()):
        is_quick = name not in ("c_eval_plot", "near_affinity") or column in (
            "regression",
            "detection",
        )
        marks = [] if is_quick else [pytest.mark.slow]
        cells.append(pytest.param(column, name, id=f"{column}-{name}", marks=marks))
    return cells


@pytest.mark.parametrize(("column", "name"), list_cells())
def test_every_cell_of_the_table(column: str, name: str) -> None:
    make, task = COLUMNS[column]
    torch.manual_seed(0)
    model = standfast.Model(make(), bounds=(0.0, 1.0), device="cpu", task=task)
    images = torch.rand(2, 1, 8, 8)
    metric = light_metric(name)
    if name == "log_odds" and not task.classes:
        with pytest.raises(ArgumentError, match="log-odds compare two classes"):
            metric(model, "input_x_gradient", images)
        return
    result = metric(model, "input_x_gradient", images)
    assert set(result.status) <= {"ok", "no_answer", "misclassified", "degenerate"}
    assert "ok" in result.status
    evaluated = torch.tensor([status == "ok" for status in result.status])
    # where no change of the answer may be found
    if name not in (
        "c_eval",
        "c_eval_plot",
        "near_affinity",
    ):
        assert result.value[evaluated].isfinite().all()
    # the second one, so that a number that depends on the row is seen
    alone = metric(model, "input_x_gradient", images[1:])
    torch.testing.assert_close(alone.value, result.value[1:], rtol=0, atol=0, equal_nan=True)


def test_a_function_of_arrays_of_any_task(inputs: Tensor) -> None:
    module = linear(1)

    def predict(rows: Any) -> Any:
        return module(torch.as_tensor(rows)).detach().numpy()[:, 0]

    box = standfast.Model.from_callable(predict, bounds=(-5.0, 5.0), task=Regression(0.5))
    model = make_model(module, Regression(0.5))
    for explainer in ("occlusion", "kernel_shap:samples=64"):
        maps = [standfast.explainers.get(explainer)(each, inputs) for each in (box, model)]
        torch.testing.assert_close(*maps, rtol=1e-4, atol=1e-5)
    sides = standfast.Model.from_callable(
        lambda rows: 1 / (1 + torch.exp(-torch.as_tensor(predict(rows)))).numpy(),
        bounds=(-5.0, 5.0),
        task="binary:output=probability",
    )
    assert torch.allclose(sides.logits(inputs), model.logits(inputs), atol=1e-4)


def test_evaluate_with_targets(inputs: Tensor) -> None:
    model = make_model(linear(2), Regression(0.5))
    found = standfast.evaluate(
        model,
        ["saliency", "input_x_gradient"],
        inputs,
        ["aopc"],
        targets=1,
        sanity=False,
        progress=False,
    )
    assert found.failures == []
    assert found.frame()["value"].is_not_nan().all()


def test_words_of_an_extended_kind(inputs: Tensor) -> None:
    """A task of the user's own: ordinal grades, of which neighbours count as the same."""

    class Grades(Regression):
        name = "grades"

        def answer(self, outputs: Tensor, targets: Tensor | None = None) -> Tensor:
            return super().answer(outputs.round(), targets)

    model = make_model(linear(1), Grades(tolerance=1.5))
    result = standfast.metrics.WorstCase(standfast.LinfBall(0.2), budget=60)(
        model, "saliency", inputs
    )
    assert set(result.status) <= {"ok", "degenerate"}


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")  # shap, as it is imported
def test_trees_of_a_regressor_are_those_of_shap() -> None:
    shap = pytest.importorskip("shap", reason="needs shap")
    from sklearn.datasets import load_diabetes
    from sklearn.ensemble import GradientBoostingRegressor

    table = load_diabetes()
    rows = torch.tensor(table.data, dtype=torch.float32)
    fitted = GradientBoostingRegressor(n_estimators=30, random_state=0).fit(
        rows[:300].numpy(), table.target[:300]
    )
    bounds = rows.amin(0), rows.amax(0)
    model = standfast.Model.from_callable(fitted.predict, bounds, task=Regression(20.0))
    maps = standfast.explainers.get("shap:TreeExplainer")(model, rows[300:310])
    expected = torch.tensor(
        shap.TreeExplainer(fitted).shap_values(rows[300:310].numpy()), dtype=torch.float32
    )
    torch.testing.assert_close(maps, expected, rtol=1e-4, atol=1e-4)


def test_changed_inputs_have_an_answer_of_their_own(inputs: Tensor) -> None:
    """The least change of a number moves it by the tolerance, that of a region ends at the least overlap."""
    regression = make_model(linear(1), Regression(0.5))
    found = standfast.metrics.CEval(attack="fmn:steps=30")(regression, "saliency", inputs).frame()
    assert found["answer"].to_list() == pytest.approx(regression.logits(inputs)[:, 0].tolist())
    assert (found["predicted"] - found["answer"]).abs().to_list() == pytest.approx(
        [0.5] * 5, abs=1e-3
    )
    vectors = make_model(linear(3), Embedding(0.9))
    found = standfast.metrics.CEval(attack="fmn:steps=30")(vectors, "saliency", inputs).frame()
    assert found["answer"].to_list() == pytest.approx([1.0] * 5)
    assert found["predicted"].to_list() == pytest.approx([0.9] * 5, abs=1e-2)
    classes = standfast.metrics.CEval(attack="fmn:steps=5")(
        make_model(linear(3), "classification"), "saliency", inputs
    )
    assert classes.answer is None
    assert not classes.predicted.is_floating_point()


def test_drops_that_are_no_shares_have_no_f1(inputs: Tensor) -> None:
    curve = standfast.metrics.CorruptionCurve(samples=1)
    for task, shares in ((Regression(0.1), False), (Binary(), True)):
        found = curve(make_model(linear(1), task), "input_x_gradient", inputs).summary(resamples=0)
        assert math.isfinite(found.auc_top)
        assert math.isfinite(found.f1) == shares


def test_the_report_speaks_of_the_task(inputs: Tensor, tmp_path: Path) -> None:
    metrics = ["aopc:steps=3,samples=1", "corruption_curve:samples=1", "c_eval:preset=quick"]
    for task, score in ((Regression(0.5), "predicted value"), (Binary(), "probability")):
        found = standfast.evaluate(
            make_model(linear(1), task),
            "saliency",
            inputs,
            metrics,
            sanity=False,
            progress=False,
            out=tmp_path / task.name,
        )
        assert found.task_words == task.words
        assert found.metrics["aopc"].spec.axis == f"AOPC ({score})"
        page = found.to_html(tmp_path / f"{task.name}.html").read_text()
        assert ("probability of the answer" in page or "answer&#39;s probability" in page) == (
            score == "probability"
        )
        assert '<th scope="col">Same class' not in page
        assert "share of right classes" not in page


def test_no_ratio_is_1_because_the_search_with_all_features_free_was_the_worse_one() -> None:
    """A cosine with the clean vector itself has no gradient there, so that few steps find little."""
    inputs = torch.rand(6, 3, generator=torch.Generator().manual_seed(2)) + 0.5
    module = nn.Linear(3, 3, bias=False)
    module.weight.data = torch.eye(3)
    model = make_model(module, Embedding(0.8))
    for attack in ("fmn:steps=2,second=2,polish=0", "fmn:steps=8,second=12,polish=2"):
        found = standfast.metrics.CEval(attack=attack, fraction=0.34)(model, "random", inputs)
        assert bool(((found.value > 1) | found.censored).all())
        assert found.value[found.censored].tolist() == [1.0] * int(found.censored.sum())
    # to the boundary, at a right angle
    least = inputs.norm(dim=1).double() * math.sin(math.acos(0.8))
    assert found.c_empty.tolist() == pytest.approx(least.tolist(), rel=1e-3)
