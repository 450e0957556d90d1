"""`Decision`: the margin is the distance from the user's own cut-off, and maps speak for the side or against it."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

import standfast
from standfast.errors import ArgumentError, ModelError
from standfast.explainers import get as get_explainer
from standfast.study.file.names import TASKS
from standfast.study.file.options import read_configured
from standfast.study.file.problems import StudyFieldError
from standfast.study.identity import Description
from standfast.tasks import Binary, Classification, Decision, MultiLabel, get
from standfast.testing import check_task

LIMIT = math.log(0.35 / 0.65)


def linear_model(task: Any, rows: list[list[float]]) -> standfast.Model:
    """A linear network without biases, with a row of weights for each output."""
    layer = nn.Linear(len(rows[0]), len(rows), bias=False)
    layer.weight.data = torch.tensor(rows)
    return standfast.Model(nn.Sequential(layer), bounds=(-5.0, 5.0), task=task, device="cpu")


def test_the_margin_is_the_distance_from_the_cut_off() -> None:
    """A logistic regression: logit(p) - logit(0.35), or p - 0.35, and the side flips where p crosses 0.35."""
    shares = torch.tensor([0.1, 0.3499, 0.3501, 0.45, 0.9], dtype=torch.float64)
    log_odds = torch.log(shares / (1 - shares))
    outputs = torch.stack([0.7 * torch.ones_like(log_odds), 0.7 + log_odds], 1)
    for rule, sides in (("P(1) > 0.35", [0, 0, 1, 1, 1]), ("P(1) < 0.35", [1, 1, 0, 0, 0])):
        task = Decision(rule)
        read = task.read(outputs, 5)
        answer = task.answer(read)
        assert answer.tolist() == sides
        torch.testing.assert_close(-task.margin(read, answer), (log_odds - LIMIT).abs())
        torch.testing.assert_close(-task.margin(read, answer, "probability"), (shares - 0.35).abs())
        side_shares = torch.where(shares > 0.35, shares, 1 - shares)
        torch.testing.assert_close(task.score(read, answer, "probability"), side_shares)
        assert (task.margin(read, 1 - answer) > 0).all()


def test_of_several_classes_it_is_the_class_against_all_others() -> None:
    torch.manual_seed(0)
    outputs = torch.randn(50, 4, dtype=torch.float64)
    for number in range(4):
        share = outputs.softmax(1)[:, number]
        read = Decision(f"P({number}) > 0.2").read(outputs, 50)
        torch.testing.assert_close(read[:, 0], torch.log(share / (1 - share)))
        assert torch.equal(Decision(f"P({number}) > 0.2").answer(read) == 1, share > 0.2)


def test_of_one_number_and_of_labels_it_is_their_own_probability() -> None:
    outputs = torch.tensor([[-1.0], [-0.3]])
    assert Decision("P(1) > 0.35", of="binary").read(outputs, 2).tolist() == outputs.tolist()
    assert Decision("P(0) > 0.35", of="binary").read(outputs, 2).tolist() == (-outputs).tolist()
    labels = torch.tensor([[0.2, 0.4, 0.9]])
    task = Decision("P(1) > 0.3", of="multi_label:output=probability")
    read = task.read(labels, 1)
    torch.testing.assert_close(read.sigmoid(), torch.tensor([[0.4]]))
    assert task.answer(read).tolist() == [1]


@pytest.mark.parametrize(
    "name",
    [
        "input_x_gradient",
        "integrated_gradients:steps=4,baseline=0.0",
        "lrp",
        "deeplift:baseline=0.0",
        "occlusion:window=1,baseline=0.0,output=logit",
    ],
)
@pytest.mark.parametrize("sign", ["<", ">"])
def test_maps_speak_for_the_side_that_an_input_is_on(name: str, sign: str) -> None:
    """Of two linear classes z = (w1 - w0) x, a map is x (w1 - w0) above the cut-off, else minus that."""
    weights = torch.tensor([[1.0, -0.5, 0.25], [-0.5, 1.0, 0.5]])
    model = linear_model(Decision(f"P(1) {sign} 0.35"), weights.tolist())
    x = torch.tensor([[0.2, 0.9, 0.4], [1.5, 0.3, 0.1]])
    z = x @ (weights[1] - weights[0])
    assert (z > LIMIT).tolist() == [True, False]
    own = torch.tensor([[1.0], [-1.0]]) * x * (weights[1] - weights[0])
    torch.testing.assert_close(get_explainer(name)(model, x), own)


def test_a_network_without_a_decision_has_the_maps_of_its_logits() -> None:
    """A decision between two linear classes has the same map as their difference as one number."""
    torch.manual_seed(0)
    hidden = [nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2)]
    two = standfast.Model(
        nn.Sequential(*hidden), (0.0, 1.0), task="decision:rule=P(1) > 0.35", device="cpu"
    )
    difference = nn.Linear(2, 1, bias=False)
    difference.weight.data = torch.tensor([[-1.0, 1.0]])
    one = standfast.Model(
        nn.Sequential(*hidden, difference), (0.0, 1.0), task="binary:threshold=0.35", device="cpu"
    )
    x = torch.rand(5, 6)
    assert torch.equal(two.predict(x), one.predict(x))
    for name in ("saliency", "guided_backprop", "deeplift", "attn_lrp", "deep_shap"):
        explainer = get_explainer(name)
        torch.testing.assert_close(explainer(two, x), explainer(one, x), rtol=1e-4, atol=1e-6)


def test_targets_are_sides() -> None:
    model = linear_model(Decision("P(1) > 0.35"), [[0.0, 0.0], [1.0, 1.0]])
    x = torch.tensor([[1.0, 1.0], [-2.0, -1.0]])
    explainer = get_explainer("input_x_gradient")
    torch.testing.assert_close(explainer(model, x, 1), x)
    torch.testing.assert_close(explainer(model, x, 0), -x)


def test_a_function_of_the_users_is_asked_for_the_class_that_speaks_for_the_side() -> None:
    asked: list[Any] = []

    def look(module: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        asked.append(targets.tolist())
        return inputs

    x = torch.tensor([[1.0, 1.0], [-2.0, -1.0]])
    two = linear_model(Decision("P(0) > 0.5"), [[0.0, 0.0], [1.0, 1.0]])
    several = linear_model(Decision("P(0) > 0.3"), [[1.0, 1.0], [0.0, 0.0], [0.0, 0.0]])
    explainer = standfast.explainers.from_callable(look)
    assert torch.equal(explainer(two, x), x)
    assert asked[-1][:2] == [1, 0]  # rows behind them pad the batch
    # there is no class of the others, so the map of class 0 is turned
    assert torch.equal(explainer(several, x), torch.tensor([[1.0], [-1.0]]) * x)
    assert asked[-1][:2] == [0, 0]


def test_names_of_classes() -> None:
    assert Decision("P(b) > 0.2").name_classes(("a", "b")).number == 1
    assert Decision("P(1) > 0.2").name_classes(("a", "b")).number == 1
    # a name that is a number is a name
    assert Decision("P(1) > 0.2").name_classes(("1", "2")).number == 0
    assert Decision("P(paid (late)) > 0.2").name_classes(("paid (late)", "not")).number == 0
    with pytest.raises(
        ArgumentError,
        match=r"decision: expected P of one of the classes '1', '2', got 'P\(0\) > 0.2'",
    ):
        Decision("P(0) > 0.2").name_classes(("1", "2"))


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("default > 0.35", r"P\(class\) > number"),
        ("P(1) >= 0.35", r"P\(class\) > number"),
        ("P(1) > a third", r"P\(class\) > number"),
        ("P() > 0.35", r"P\(class\) > number"),
        ("P(1) > 35", "above 0 and below 1"),
        ("P(1) < 0", "above 0 and below 1"),
        ("P(1) > nan", "above 0 and below 1"),
        (0.35, r"P\(class\) > number"),
    ],
)
def test_rules_of_another_form(rule: Any, words: str) -> None:
    with pytest.raises(ArgumentError, match=f"decision: expected .*{words}"):
        Decision(rule)


def test_what_has_no_probabilities_is_refused() -> None:
    with pytest.raises(
        ArgumentError, match="of: expected a task with probabilities: classification, zero_shot"
    ):
        Decision("P(1) > 0.3", of="regression:tolerance=1")
    model = linear_model(Decision("P(7) > 0.3"), [[1.0], [0.0], [0.0]])
    with pytest.raises(ArgumentError, match="labels by its number, from 0 to 2, got"):
        model.predict(torch.ones(1, 1))
    model = linear_model(Decision("P(cat) > 0.3"), [[1.0], [0.0]])
    with pytest.raises(ArgumentError, match="from 0 to 1; the names are not known here"):
        model.predict(torch.ones(1, 1))
    with pytest.raises(ModelError, match="expected logits of shape"):
        linear_model(Decision("P(1) > 0.3"), [[1.0]]).predict(torch.ones(1, 1))


def test_probabilities_in_the_place_of_logits_are_noticed() -> None:
    module = nn.Sequential(nn.Linear(3, 2), nn.Softmax(1))
    model = standfast.Model(module, (0.0, 1.0), task=Decision("P(1) > 0.3"), device="cpu")
    with pytest.warns(UserWarning, match="look like probabilities"):
        model.predict(torch.rand(4, 3))


def test_a_file_names_the_task_below_as_any_other() -> None:
    for of in ("multi_label:labels=all", {"multi_label": {"labels": "all"}}):
        read = read_configured({"decision": {"rule": "P(1) > 0.2", "of": of}}, TASKS)
        assert read == Decision("P(1) > 0.2", of=MultiLabel(labels="all"))
    with pytest.raises(StudyFieldError, match="behind the sign, got 'P"):
        read_configured({"decision": "P(1) > 2"}, TASKS)


def test_the_contract_of_tasks() -> None:
    torch.manual_seed(0)
    check_task(Decision("P(2) < 0.3"), torch.randn(6, 4), torch.randn(6, 4))


def test_one_rule_has_one_identity_and_other_tasks_keep_theirs() -> None:
    same = [
        Decision("P(1)>.35"),
        Decision(" P( 1 ) > 0.350"),
        Decision("P(1) > 0.35", of="classification"),
    ]
    assert {Description(task).digest for task in same} == {
        Description(get("decision:rule=P(1) > 0.35")).digest
    }
    assert Description(Decision("P(1) > 0.36")).digest != Description(same[0]).digest
    # as they were before there were decisions
    assert Description(Classification()).digest == "15ebb8e7994895e3"
    assert Description(Binary(threshold=0.35)).digest == "bd51847d7596e58a"
    assert Description(MultiLabel(labels="all")).digest == "9b75de82f7041728"
