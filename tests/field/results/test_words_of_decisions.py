"""A user says "declined", and not "not P(default) > 0.35": what a card calls the answer that it explains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import standfast
from standfast.errors import ArgumentError
from standfast.neighbourhoods import LinfBall
from standfast.study.identity import Description
from standfast.tasks import Binary, Decision, MultiLabel, Regression, Task
from standfast.tasks.decision import is_rule

RULE = "P(default) > 0.35"


@pytest.mark.parametrize(
    ("text", "answers"),
    [
        (RULE, (f"not {RULE}", RULE)),
        (f"declined: {RULE}", ("not declined", "declined")),
        (f" declined ,else  approved :{RULE} ", ("approved", "declined")),
        (f"Declined, Else Approved: {RULE}", ("Approved", "Declined")),
        (f"sent, elsewhere: {RULE}", ("not sent, elsewhere", "sent, elsewhere")),
        (
            "see below: declined: P(a: P(b) > 1) < 0.5",
            ("not see below: declined", "see below: declined"),
        ),
    ],
)
def test_a_rule_says_what_its_sides_are_called(text: str, answers: tuple[str, str]) -> None:
    decision = Decision(text)
    assert decision.words.answers == answers
    assert decision.rule.startswith("P(")
    assert decision.words.rule == decision.rule


def test_names_of_sides_are_no_part_of_what_a_job_is_known_by() -> None:
    plain, named = Decision(RULE), Decision(f"declined, else approved: {RULE}")
    assert Description(plain).digest == Description(named).digest
    assert named == Decision(RULE, made="declined", otherwise="approved")
    assert Description(Decision("P(default) > 0.36")).digest != Description(named).digest


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("declined: default > 0.35", {}, "P(class) > number"),
        (f": {RULE}", {}, "P(class) > number"),
        (f"declined, else declined: {RULE}", {}, "another word"),
        (f"declined, else : {RULE}", {}, "what the other side is called"),
        (RULE, {"otherwise": "approved"}, "what the side is called"),
        (RULE, {"made": 3}, "what a side is called"),
    ],
)
def test_a_side_without_a_name_is_one_clear_sentence(
    text: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ArgumentError) as error:
        Decision(text, **options)
    assert message in str(error.value)


def test_an_option_of_a_task_is_no_name_of_a_side() -> None:
    """`standfast init --task` takes a rule, or the name of a task with its options."""
    assert not is_rule(f"decision:rule=declined: {RULE}")
    assert is_rule(f"declined: {RULE}")


@pytest.fixture
def applicants() -> Any:
    """A classifier that declines some applicants, and the applicants."""
    pd = pytest.importorskip("pandas")
    linear_model = pytest.importorskip("sklearn.linear_model")
    frame = pd.DataFrame(
        np.random.default_rng(0).normal(size=(80, 3)), columns=["income", "debt", "age"]
    )
    labels = np.where(
        frame["income"] * 3 - frame["debt"] * 2 + frame["age"] > 0, "repaid", "default"
    )
    return linear_model.LogisticRegression().fit(frame, labels), frame, labels


def explain(model: Any, inputs: Any, **options: Any) -> standfast.reason_cards.ReasonCards:
    explainer = options.pop("explainer", "kernel_shap:samples=64")
    return standfast.reasons(
        model, explainer, inputs, draws=3, top=1, alone=False, progress=False, **options
    )


def test_a_card_calls_the_decision_as_its_user_does(applicants: Any, tmp_path: Path) -> None:
    model, frame, _ = applicants
    risks = model.predict_proba(frame)[:, 0]
    rows = [int(risks.argmax()), int(risks.argmin())]
    options = {"reference": frame, "out": tmp_path / "cards"}
    named = explain(model, frame.iloc[rows], decision=f"declined, else approved: {RULE}", **options)
    assert [card.answer for card in named] == ["declined", "approved"]
    assert [card.rule for card in named] == [RULE, RULE]
    text = named.to_text(0)
    share = f"{100 * risks[rows[0]]:.0f}%".replace("100%", "over 99%")
    assert f"Decision: declined (P(default) is {share}, the cut-off 35%)" in text
    # the same draws under other words are not made again
    plain = explain(model, frame.iloc[rows], decision=RULE, **options)
    assert [card.answer for card in plain] == [RULE, f"not {RULE}"]
    assert set(plain.results.jobs["job"]) == set(named.results.jobs["job"])


def test_sides_of_a_threshold_have_the_names_of_the_classes(applicants: Any) -> None:
    selection = pytest.importorskip("sklearn.model_selection")
    if not hasattr(selection, "FixedThresholdClassifier"):
        pytest.skip("this scikit-learn has no classifiers with thresholds of their own")
    model, frame, labels = applicants
    strict = selection.FixedThresholdClassifier(model, threshold=0.8, pos_label="repaid").fit(
        frame, labels
    )
    cards = explain(strict, frame.iloc[:4], reference=frame)
    assert [card.answer for card in cards] == strict.predict(frame.iloc[:4]).tolist()


def explain_linear(
    task: Task, weight: list[list[float]], **options: Any
) -> standfast.reason_cards.ReasonCards:
    """The card of one row by a linear layer."""
    layer = nn.Linear(2, len(weight))
    layer.load_state_dict({"weight": torch.tensor(weight), "bias": torch.zeros(len(weight))})
    model = standfast.Model(layer, bounds=(0.0, 1.0), task=task, device="cpu")
    inputs = options.pop("inputs", torch.tensor([[0.6, 0.3]]))
    return explain(
        model, inputs, explainer="input_x_gradient", measurement=LinfBall(0.01), **options
    )


def name_rows(*classes: str) -> standfast.data.Dataset:
    return standfast.data.Dataset("rows", torch.tensor([[0.6, 0.3]]), torch.tensor([0]), classes)


def test_sides_of_one_number_have_the_names_of_the_data() -> None:
    found = explain_linear(Binary(), [[-2.0, 1.0]], inputs=name_rows("healthy", "ill"))
    assert found.card().answer == "healthy"
    found = explain_linear(Binary(), [[-2.0, 1.0]])
    assert found.card().answer == "side 0"


@pytest.mark.parametrize(("target", "label"), [(None, "cat"), (2, "dog")])
def test_a_card_names_the_label_that_is_explained(target: int | None, label: str) -> None:
    weight = [[-3.0, 1.0], [5.0, 1.0], [2.0, 1.0]]
    named = explain_linear(
        MultiLabel(), weight, inputs=name_rows("bird", "cat", "dog"), targets=target
    )
    number = ["bird", "cat", "dog"].index(label)
    share = torch.tensor(weight[number]).dot(torch.tensor([0.6, 0.3])).sigmoid().item()
    assert f"Decision: label {label} (probability {100 * share:.0f}%)" in named.to_text()
    without_names = explain_linear(MultiLabel(), weight, targets=target)
    assert without_names.card().answer == f"label {number}"


def test_a_predicted_number_is_said_once() -> None:
    found = explain_linear(Regression(tolerance=1.0), [[-2.0, 1.0], [5.0, 2.0]])
    assert "Decision: predicted value −0.90\n" in found.to_text()
    assert found.card().score == pytest.approx(-0.9)
    second = explain_linear(Regression(tolerance=1.0), [[-2.0, 1.0], [5.0, 2.0]], targets=1)
    assert "Decision: predicted value 3.60 (output 1)\n" in second.to_text()
