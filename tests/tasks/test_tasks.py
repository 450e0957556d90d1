"""Scores and margins of every task against loops from their definitions, and against finite differences."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import standfast
from standfast.errors import ArgumentError, ModelError
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
    find_output,
    get,
)
from standfast.tasks.base import expand_targets, measure_margin, measure_score
from standfast.testing import check_task

COUNT = 6


def sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value))


def softmax(values: list[float]) -> list[float]:
    total = sum(math.exp(value) for value in values)
    return [math.exp(value) / total for value in values]


def cosine(first: list[float], second: list[float]) -> float:
    product = sum(a * b for a, b in zip(first, second, strict=True))
    return product / math.sqrt(sum(a * a for a in first)) / math.sqrt(sum(b * b for b in second))


def box_overlap(first: list[float], second: list[float]) -> float:
    width = min(first[2], second[2]) - max(first[0], second[0])
    height = min(first[3], second[3]) - max(first[1], second[1])
    both = max(width, 0) * max(height, 0)
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (first, second)]
    return both / (sum(areas) - both)


# for each task: score and margin of one row of raw outputs, given the clean row and the scale


def by_hand_classes(clean: list[float], row: list[float], scale: str) -> tuple[float, float]:
    own = clean.index(max(clean))
    values = row if scale == "logit" else softmax(row)
    return values[own], max(value for number, value in enumerate(values) if number != own) - values[
        own
    ]


def by_hand_binary(clean: list[float], row: list[float], scale: str) -> tuple[float, float]:
    limit, sign = math.log(0.3 / 0.7), 1 if sigmoid(clean[0]) >= 0.3 else -1
    if scale == "logit":
        return sign * row[0], -sign * (row[0] - limit)
    return sigmoid(sign * row[0]), -sign * (sigmoid(row[0]) - 0.3)


def by_hand_labels(which: str) -> Callable[..., tuple[float, float]]:
    def by_hand(clean: list[float], row: list[float], scale: str) -> tuple[float, float]:
        own = clean.index(max(clean))
        values = row if scale == "logit" else [sigmoid(value) for value in row]
        limit = 0.0 if scale == "logit" else 0.5
        margins = [
            -(v - limit) if c >= 0 else v - limit for c, v in zip(clean, values, strict=True)
        ]
        return values[own], margins[own] if which == "own" else max(margins)

    return by_hand


def by_hand_regression(clean: list[float], row: list[float], scale: str) -> tuple[float, float]:
    return row[0], abs(row[0] - clean[0]) - 0.25


def by_hand_segments(clean: Any, row: Any, scale: str) -> tuple[float, float]:
    pixels = range(len(row[0]))
    label = lambda values, pixel: max(range(len(values)), key=lambda c: values[c][pixel])  # noqa: E731
    areas = [sum(label(clean, p) == c for p in pixels) for c in range(len(clean))]
    own = max(range(1, len(areas)), key=lambda c: areas[c])
    mask = [p for p in pixels if label(clean, p) == own]
    here = [p for p in pixels if label(row, p) == own]
    values = [row[own][p] if scale == "logit" else softmax([c[p] for c in row])[own] for p in mask]
    union = len({*mask, *here})
    return sum(values) / len(values), 0.5 - (len({*mask} & {*here}) / union if union else 0.0)


def by_hand_boxes(clean: Any, row: Any, scale: str) -> tuple[float, float]:
    strength = lambda box, label: box[4] * box[5 + label]  # noqa: E731
    best = max(clean, key=lambda box: box[4] * max(box[5:]))
    label = max(range(len(best) - 5), key=lambda c: best[5 + c])
    found = []
    for box in row:  # a box counts with the label for which it is best
        own = max(range(len(box) - 5), key=lambda c: box[5 + c])
        found.append((box_overlap(box, best), strength(box, own) if own == label else 0.0))
    near = max((overlap * score for overlap, score in found if overlap >= 0.5), default=0.0)
    return max(overlap * score for overlap, score in found), 0.2 - near


def by_hand_vectors(clean: list[float], row: list[float], scale: str) -> tuple[float, float]:
    length = math.sqrt(sum(value * value for value in clean))
    along = sum(a * b for a, b in zip(row, clean, strict=True)) / length
    return along if scale == "logit" else cosine(row, clean), 0.9 - cosine(row, clean)


def make_boxes(generator: torch.Generator, clean: Tensor | None = None) -> Tensor:
    if clean is not None:
        return clean + 0.15 * torch.rand(clean.shape, generator=generator, dtype=torch.float64)
    corner = torch.rand(COUNT, 3, 2, generator=generator, dtype=torch.float64)
    rest = torch.rand(COUNT, 3, 3, generator=generator, dtype=torch.float64) / 2 + 0.5
    return torch.cat([corner, corner + 1.5, rest], 2)


def normal(*shape: int) -> Callable[..., Tensor]:
    def make(generator: torch.Generator, clean: Tensor | None = None) -> Tensor:
        noise = torch.randn(COUNT, *shape, generator=generator, dtype=torch.float64)
        return noise if clean is None else clean + 0.7 * noise

    return make


VECTORS = torch.randn(4, 5, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
CASES: dict[str, tuple[Task, Callable[..., Tensor], Callable[..., tuple[float, float]]]] = {
    "classification": (Classification(), normal(4), by_hand_classes),
    "binary": (Binary(threshold=0.3), normal(1), by_hand_binary),
    "multi_label own": (MultiLabel(), normal(4), by_hand_labels("own")),
    "multi_label all": (MultiLabel(labels="all"), normal(4), by_hand_labels("all")),
    "regression": (Regression(tolerance=0.25), normal(3), by_hand_regression),
    "segmentation": (Segmentation(), normal(3, 5), by_hand_segments),
    "detection": (Detection(least=0.2, most=4), make_boxes, by_hand_boxes),
    "embedding": (Embedding(least=0.9), normal(5), by_hand_vectors),
    "zero_shot": (
        ZeroShot(VECTORS, temperature=3.0),
        normal(5),
        lambda clean, row, scale: by_hand_classes(
            *([3 * cosine(each, vector) for vector in VECTORS.tolist()] for each in (clean, row)),
            scale,
        ),
    ),
}


@pytest.fixture(params=CASES)
def case(
    request: pytest.FixtureRequest,
) -> tuple[Task, Tensor, Tensor, Callable[..., tuple[float, float]]]:
    """The task, raw clean outputs, raw outputs nearby, and the definitions."""
    task, make, by_hand = CASES[request.param]
    generator = torch.Generator().manual_seed(3)
    clean = make(generator)
    return task, clean, make(generator, clean), by_hand


@pytest.mark.parametrize("scale", ["logit", "probability"])
def test_scores_and_margins_are_those_of_their_definitions(case: Any, scale: Any) -> None:
    task, clean, changed, by_hand = case
    before, after = task.read(clean, COUNT), task.read(changed, COUNT)
    answer = task.answer(before)
    expected = torch.tensor(
        [by_hand(*rows, scale) for rows in zip(clean.tolist(), changed.tolist(), strict=True)]
    )
    found = torch.stack(
        [measure_score(task, after, answer, scale), measure_margin(task, after, answer, scale)], 1
    )
    torch.testing.assert_close(found, expected.double(), rtol=1e-5, atol=1e-6)


def test_every_task_keeps_the_contract(case: Any) -> None:
    task, clean, changed, _ = case
    check_task(task, clean[:5], changed[:5])
    check_task(task, clean[:2], changed[:2])
    # batches of models have at least 16 rows and a multiple of 8, so that a row has the same bits in each
    rows = torch.cat([clean] * 24)
    assert torch.equal(task.read(rows[:16], 16), task.read(rows[:24], 24)[:16])


def test_gradients_are_those_of_finite_differences(case: Any) -> None:
    task, clean, changed, _ = case
    answer = task.answer(task.read(clean, COUNT))
    # boxes stay where they are: their overlap has no gradient
    fixed = 4 if isinstance(task, Detection) else 0
    leaf = changed[..., fixed:].clone().requires_grad_(True)
    for scale in ("logit", "probability"):
        for function in (task.score, task.guide):

            def run(x: Tensor, function: Any = function, scale: str = scale) -> Tensor:
                outputs = task.read(torch.cat([changed[..., :fixed], x], -1), COUNT)
                found: Tensor = function(outputs, answer, scale)
                return found

            assert torch.autograd.gradcheck(run, (leaf,))


def test_outputs_that_are_not_finite_have_no_score(case: Any) -> None:
    task, clean, _, _ = case
    outputs = task.read(clean, COUNT)
    answer = task.answer(outputs)
    broken = outputs.clone()
    broken[1] = torch.nan
    score = measure_score(task, broken, answer, "probability")
    assert score.isnan().tolist() == [row == 1 for row in range(COUNT)]


def test_targets_choose_what_is_explained() -> None:
    outputs = torch.tensor([[2.0, -1.0, 0.5], [0.0, 3.0, 1.0]])
    chosen = torch.tensor([2, 1])
    assert Classification().answer(outputs, chosen).tolist() == [2, 1]
    assert Regression(1.0).answer(outputs, chosen).tolist() == [[2, 0.5], [1, 3.0]]
    labels = MultiLabel()
    answer = labels.answer(outputs, torch.tensor([1, 1]))
    assert labels.exists(outputs, answer).tolist() == [False, True]  # the first one is off
    vectors = torch.tensor([[0.0, 0.0, 2.0], [0.0, 1.0, 0.0]])
    assert Embedding(0.5).score(outputs, Embedding(0.5).answer(outputs, vectors))[
        0
    ] == pytest.approx(0.5 / 5.25**0.5)
    with pytest.raises(ArgumentError, match="classes from 0 to 2"):
        Classification().answer(outputs, torch.tensor([3, 0]))
    with pytest.raises(ArgumentError, match="vectors of shape"):
        Embedding(0.5).answer(outputs, vectors[:, :2])


def test_answers_that_are_not_there() -> None:
    empty = torch.tensor([[[5.0, 5.0], [0.0, 0.0]]])  # all background
    segments = Segmentation()
    assert segments.exists(empty, segments.answer(empty)).tolist() == [False]
    boxes = Detection(least=0.5)
    weak = boxes.read(
        [{"boxes": torch.rand(0, 4), "labels": torch.zeros(0).long(), "scores": torch.rand(0)}], 1
    )
    assert boxes.exists(weak, boxes.answer(weak)).tolist() == [False]


def test_boxes_of_dictionaries_are_those_of_tensors() -> None:
    dense = make_boxes(torch.Generator().manual_seed(1))
    task = Detection(least=0.2)
    entries = []
    for rows in dense:
        scores, labels = (rows[:, 4:5] * rows[:, 5:]).max(1)
        entries.append({"boxes": rows[:, :4], "labels": labels, "scores": scores})
    assert torch.equal(task.read(entries, COUNT), task.read(dense, COUNT))
    assert task.answer(task.read(dense, COUNT), torch.ones(COUNT).long()).shape == (COUNT, 5)


@pytest.mark.parametrize("most", [3, 9])
def test_boxes_are_kept_by_score_for_each_input_alone(most: int) -> None:
    generator = torch.Generator().manual_seed(2)
    entries = []
    for count in (0, 5, 1, 8, 0, 3):
        # some are equal: the first comes first
        scores = torch.randint(4, (count,), generator=generator) / 4
        labels, boxes = torch.arange(count), torch.rand(count, 4, generator=generator)
        entries.append({"boxes": boxes, "labels": labels, "scores": scores})
    found = Detection(most=most).read(entries, len(entries))
    for entry, rows in zip(entries, found.tolist(), strict=True):
        parts = zip(
            entry["boxes"].tolist(), entry["labels"].tolist(), entry["scores"].tolist(), strict=True
        )
        expected = [
            [*box, label, score] for box, label, score in sorted(parts, key=lambda part: -part[2])
        ]
        assert rows == (expected + [[0.0] * 6] * most)[:most]


@pytest.mark.parametrize(
    ("output", "where", "expected"),
    [
        ({"logits": torch.ones(1), "loss": torch.zeros(1)}, None, 1.0),
        ({"out": torch.ones(1), "aux": torch.zeros(1)}, None, 1.0),
        ((torch.ones(1),), None, 1.0),
        ({"a": torch.zeros(1), "b": torch.ones(1)}, "b", 1.0),
        ((torch.zeros(1), torch.ones(1)), 1, 1.0),
        ([torch.zeros(1), torch.ones(1)], lambda output: output[-1], 1.0),
        (type("Output", (), {"logits": torch.ones(1), "other": 3})(), None, 1.0),
        (type("Output", (), {"logits": torch.zeros(1), "other": torch.ones(1)})(), "other", 1.0),
    ],
)
def test_the_answer_is_found_in_what_a_module_returns(
    output: Any, where: Any, expected: float
) -> None:
    assert find_output(output, where).tolist() == [expected]


def test_outputs_without_an_answer_are_described() -> None:
    with pytest.raises(
        ModelError, match=r"a dict with a: a tensor of shape \(2,\), b: a tensor of shape \(3,\)"
    ):
        find_output({"a": torch.ones(2), "b": torch.ones(3)})
    with pytest.raises(ArgumentError, match="output: expected a part of what the module returns"):
        find_output({"a": torch.ones(2)}, "b")
    for task, raw in (
        (Regression(1.0), torch.ones(2, 3, 4)),
        (Binary(), torch.ones(2, 3)),
        (Detection(), [{}, {}]),
    ):
        with pytest.raises(ModelError, match="module: expected"):
            task.read(raw, 2)


def test_sure_probabilities_have_logits() -> None:
    for task in (Binary(output="probability"), MultiLabel(output="probability")):
        raw = torch.tensor([[1.0], [0.0], [0.75]])
        found = task.read(raw, 3)[:, 0].double()
        expected = torch.tensor(
            [-math.log(1e-12), math.log(1e-12), math.log(3)], dtype=torch.float64
        )
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
        assert task.exists(task.read(raw, 3), task.answer(task.read(raw, 3)))[0]


def test_boxes_of_whole_numbers_and_many_labels() -> None:
    entry = {
        "boxes": torch.tensor([[0, 0, 2, 2]]),
        "labels": torch.tensor([3001]),
        "scores": torch.tensor([0.75]),
    }
    task = Detection()
    assert task.read([entry], 1)[0, 0].tolist() == [0, 0, 2, 2, 3001, 0.75]
    half = {
        **entry,
        "boxes": entry["boxes"].to(torch.bfloat16),
        "scores": entry["scores"].to(torch.bfloat16),
    }
    outputs = task.read([half], 1)
    assert task.describe(task.answer(outputs)).tolist() == [3001]


def test_tasks_by_name_and_bad_options() -> None:
    assert get("binary:threshold=0.3,output=probability") == Binary(0.3, "probability")
    assert Binary(output="probability").read(torch.tensor([0.25]), 1).item() == pytest.approx(
        -math.log(3)
    )
    for make in (
        lambda: Regression(0.0),
        lambda: Binary(threshold=1.0),
        lambda: MultiLabel(labels="some"),  # type: ignore[arg-type]
        lambda: Segmentation(iou=0.0),
        lambda: Detection(most=0),
        lambda: Embedding(least=1.0),
        lambda: ZeroShot(torch.zeros(2, 3)),
        lambda: get(3),  # type: ignore[arg-type]
    ):
        with pytest.raises(ArgumentError):
            make()
    assert expand_targets(2, 3).tolist() == [2, 2, 2]
    assert expand_targets(torch.ones(4), 3).shape == (3, 4)
    for bad in (torch.ones(2, 4), torch.tensor([1, 2]), "cat"):
        with pytest.raises(ArgumentError, match="targets"):
            expand_targets(bad, 3)


BOX = {
    "boxes": torch.tensor([[1.0, 1.0, 3.0, 4.0]]),
    "labels": torch.tensor([2]),
    "scores": torch.tensor([0.9]),
}


class Returns(nn.Module):
    """Returns for a batch what a function makes of it."""

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


@pytest.mark.parametrize(
    ("task", "function", "named"),
    [
        ("binary:output=probability", lambda x: 4 * x[:, 0], "above 1"),
        ("multi_label:output=probability", lambda x: x - 0.5, "below 0"),
        ("detection", lambda x: [{**BOX, "scores": torch.tensor([1.8])} for _ in x], "above 1"),
        (
            "detection",
            lambda x: [{**BOX, "boxes": torch.tensor([[3.0, 1, 1, 4]])} for _ in x],
            "end before they begin",
        ),
        ("detection", lambda x: [{**BOX, "labels": torch.tensor([1, 2])} for _ in x], "2 labels"),
        (
            "detection",
            lambda x: [{"boxes": BOX["boxes"], "labels": BOX["labels"]} for _ in x],
            "scores, one .*scores",
        ),
        ("classification", lambda x: [BOX for _ in x], "task='detection'"),
        ("classification", lambda x: {"a": x, "b": x}, r"a: a tensor of shape \(N, 3\)"),
        (
            "classification",
            lambda x: type("Out", (), {"score": x})(),
            r"score: a tensor of shape \(N, 3\)",
        ),
        ("regression:tolerance=1", lambda x: x.argmax(1), r"float\(\)"),
    ],
)
def test_outputs_that_a_task_cannot_mean_are_refused(
    task: str, function: Callable[[Tensor], Any], named: str
) -> None:
    model = standfast.Model(Returns(function), bounds=(0.0, 1.0), device="cpu", task=task)
    with pytest.raises(ModelError, match=named) as found:
        model.predict(torch.linspace(0.1, 0.9, 12).reshape(4, 3))
    assert ",," not in str(found.value)
    assert "16" not in str(found.value)


def test_probabilities_and_boxes_in_their_ranges_pass() -> None:
    x = torch.tensor([[0.0, 1.0], [1.0, 0.5]])
    for task, function in (
        ("multi_label:output=probability", lambda x: x),
        ("detection", lambda x: [BOX for _ in x]),
    ):
        assert (
            len(standfast.Model(Returns(function), (0.0, 1.0), device="cpu", task=task).predict(x))
            == 2
        )


def test_an_input_without_boxes_has_no_answer() -> None:
    def detect(x: Tensor) -> list[dict[str, Tensor]]:
        none = {
            "boxes": torch.zeros(0, 4),
            "labels": torch.zeros(0).long(),
            "scores": torch.zeros(0),
        }
        return [
            {**BOX, "scores": (each @ torch.tensor([0.2, 0.3, 0.5])).reshape(1)}
            if each.mean() > 0.5
            else none
            for each in x
        ]

    model = standfast.Model(Returns(detect), bounds=(0.0, 1.0), device="cpu", task="detection")
    metric = standfast.metrics.MaxSensitivity(standfast.LinfBall(0.05), samples=3)
    for rows, status in ((torch.full((2, 3), 0.2), "no_answer"), (torch.full((2, 3), 0.8), "ok")):
        assert metric(model, "saliency", rows).status == (status, status)


def test_a_missing_tolerance_is_shown_by_example() -> None:
    with pytest.raises(ArgumentError, match="tolerance=2.5"):
        get("regression")
    with pytest.raises(ArgumentError, match="the class Binary"):
        get(Binary)  # type: ignore[arg-type]


def test_vectors_of_texts_come_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("texts.npy", 2 * np.eye(3, dtype=np.float32)[:2])
    np.save("objects.npy", np.array([{}]), allow_pickle=True)
    model = standfast.Model(
        Returns(lambda x: x), (0.0, 1.0), device="cpu", task="zero_shot:vectors=texts.npy"
    )
    x = torch.tensor([[0.6, 0.8, 0.0]])
    assert model.logits(x)[0].tolist() == pytest.approx([60, 80])
    assert model.task == ZeroShot(torch.eye(3)[:2])
    for name in ("objects.npy", "none.npy", "texts.txt"):
        with pytest.raises(ArgumentError, match=r"vectors: expected .*\.npy file"):
            standfast.Model(
                Returns(lambda x: x), (0.0, 1.0), device="cpu", task=f"zero_shot:vectors={name}"
            )
