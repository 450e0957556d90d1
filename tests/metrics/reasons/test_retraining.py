"""Models that are trained again: clones on resampled rows against a loop by hand, and what is said meanwhile."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import standfast
from standfast import display
from standfast.errors import ArgumentError
from standfast.reason_cards import cards, retrained_runs, retraining
from standfast.reason_cards.retrained_runs import RetrainedRuns
from standfast.reason_cards.retraining import Retraining, fit_clone
from standfast.statistics.reasons import Foresight

pd = pytest.importorskip("pandas")
linear_model = pytest.importorskip("sklearn.linear_model")
pipeline = pytest.importorskip("sklearn.pipeline")
preprocessing = pytest.importorskip("sklearn.preprocessing")
ensemble = pytest.importorskip("sklearn.ensemble")

COLUMNS = ["income", "debt", "age"]
FRAME = pd.DataFrame(np.random.default_rng(0).normal(size=(90, 3)), columns=COLUMNS)
LABELS = np.where(FRAME["income"] - FRAME["debt"] + 0.1 * FRAME["age"] > 0, "repaid", "default")


def make_pipeline() -> Any:
    return pipeline.make_pipeline(
        preprocessing.StandardScaler(), linear_model.LogisticRegression()
    ).fit(FRAME, LABELS)


def explain_by_coefficient(estimator: Any, frame: Any, targets: Any) -> Any:
    """What each column adds to the log-odds of the class."""
    signs = np.where(np.asarray(targets) == 1, 1.0, -1.0)[:, None]
    return signs * estimator[-1].coef_[0] * estimator[0].transform(frame)


def ask(model: Any, **options: Any) -> standfast.reason_cards.ReasonCards:
    fields: dict[str, Any] = {"reference": FRAME, "top": 2, "progress": False, "alone": False}
    return standfast.reasons(model, explain_by_coefficient, FRAME.iloc[:3], **{**fields, **options})


@pytest.mark.filterwarnings("ignore:.*retrained models can never show:UserWarning")
def test_clones_are_those_of_a_loop_by_hand() -> None:
    model = make_pipeline()
    cards = ask(model, retrain=True, labels=LABELS, models=5)
    clones: list[Any] = []
    for seed in range(1, 6):
        rows = np.random.default_rng(seed).integers(0, 90, size=90)
        clones.append(make_pipeline().fit(FRAME.iloc[rows], LABELS[rows]))
    for card in cards:
        row = FRAME.iloc[[card.sample]]
        answer = model.predict(row)[0]
        agreeing = [clone for clone in clones if clone.predict(row)[0] == answer]
        assert (card.models, card.deciding_otherwise) == (5, 5 - len(agreeing))
        own = explain_by_coefficient(model, row, [list(model.classes_).index(answer)])[0]
        first = np.argsort(-np.abs(own))[:2]
        for reason, feature in zip(card.reasons, first, strict=True):
            named = 0
            for clone in agreeing:
                values = explain_by_coefficient(clone, row, [list(model.classes_).index(answer)])[0]
                is_first = feature in np.argsort(-np.abs(values))[:2]
                named += bool(is_first and np.sign(values[feature]) == np.sign(own[feature]))
            assert reason.feature == feature
            assert reason.probability == pytest.approx(named / len(agreeing))


def test_the_model_itself_is_not_changed() -> None:
    model = make_pipeline()
    before = model[-1].coef_.copy()
    again = fit_clone(model, FRAME, LABELS, 3)
    assert (model[-1].coef_ == before).all()
    assert (again[-1].coef_ != before).any()
    assert (fit_clone(model, FRAME, LABELS, 3)[-1].coef_ == again[-1].coef_).all()


def test_an_open_random_state_is_the_seed() -> None:
    forest = ensemble.RandomForestClassifier(n_estimators=3, random_state=None).fit(FRAME, LABELS)
    first, second = (fit_clone(forest, FRAME, LABELS, 5) for _ in range(2))
    assert first.random_state == 5
    assert (first.predict_proba(FRAME) == second.predict_proba(FRAME)).all()
    fixed = ensemble.RandomForestClassifier(n_estimators=3, random_state=11).fit(FRAME, LABELS)
    assert fit_clone(fixed, FRAME, LABELS, 5).random_state == 11


def test_rows_of_polars_and_of_a_rare_class() -> None:
    polars = pytest.importorskip("polars")
    rare = np.array(["a"] * 88 + ["b"] * 2)
    model = linear_model.LogisticRegression().fit(FRAME, rare)
    # one of seven draws of rows has no row of the rare class
    for seed in range(1, 15):
        assert fit_clone(model, FRAME, rare, seed).classes_.tolist() == ["a", "b"]
    frame = polars.DataFrame({name: FRAME[name].to_numpy() for name in COLUMNS})
    fitted = linear_model.LogisticRegression().fit(frame, LABELS)
    rows = np.random.default_rng(1).integers(0, 90, size=90)
    by_hand = linear_model.LogisticRegression().fit(FRAME.iloc[rows], LABELS[rows])
    assert fit_clone(fitted, frame, LABELS, 1).coef_ == pytest.approx(by_hand.coef_)


@pytest.mark.parametrize(
    ("options", "argument", "words"),
    [
        ({"labels": None}, "labels", "what the model learns"),
        ({"labels": LABELS[:5]}, "labels", "one for each of the 90 rows"),
        ({"labels": "yes"}, "labels", "one for each"),
        ({"reference": None}, "reference", "training rows"),
        ({"retrain": None, "models": None}, "labels", "None without retrain=True"),
        ({"retrained": [1]}, "retrain", "both"),
        ({"model": nn.Linear(3, 2)}, "retrain", "only estimators"),
        ({"retrain": "yes", "labels": None}, "retrain", "a function of a seed, or True"),
    ],
)
def test_what_cannot_be_cloned_is_said_before_anything_is_trained(
    options: dict[str, Any], argument: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retraining, "fit_clone", lambda *arguments: pytest.fail("trained"))
    fields: dict[str, Any] = {
        "retrain": True,
        "models": 1,
        "rows": FRAME,
        "labels": LABELS,
        **options,
    }
    model = fields.pop("model", None) or make_pipeline()
    if "reference" in fields:
        fields["rows"] = fields.pop("reference")
    with pytest.raises(standfast.ArgumentError, match=words) as error:
        Retraining(**fields).plan_looks(model, 0.9, 2)
    assert error.value.argument == argument


def test_a_clone_that_cannot_be_fitted_is_one_sentence() -> None:
    model = make_pipeline()
    with pytest.raises(
        standfast.ArgumentError, match="retrain: expected an estimator whose clone can be fitted"
    ):
        fit_clone(model, FRAME.assign(age="old"), LABELS, 1)


def test_training_is_never_mute(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(display, "_SECONDS_BETWEEN_LINES", 0.01)
    model = nn.Linear(3, 2)

    def train(seed: int) -> nn.Module:
        time.sleep(0.1)
        return nn.Linear(3, 2)

    asked = Retraining(retrain=train)
    asked.make_models(model, (2,), 0, progress=True)
    said = capsys.readouterr().err
    assert "training model 1 of 2 again, 0:00 elapsed" in said
    assert "training model 2 of 2 again, 0:00 elapsed" in said
    asked.make_models(model, (2, 3, 5), 1, progress=True)
    assert "training model 3 of 3 again (5 at most), 0:00 elapsed" in capsys.readouterr().err
    asked.make_models(model, (2,), 0, progress=False)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("options", "reasons", "looks"),
    [
        ({"retrain": make_pipeline}, 4, (49, 99, 200)),
        ({"retrain": make_pipeline}, 1, (35, 63, 112, 200)),
        # of pixels none is decided alone, so there is nothing to look for
        ({"retrain": make_pipeline}, 78, (66,)),
        ({"retrain": make_pipeline, "models": 60}, 4, (60,)),
        ({"retrained": [nn.Linear(3, 2)] * 45}, 4, (45,)),
        ({}, 4, ()),
    ],
)
def test_models_are_looked_at_where_their_number_is_open(
    options: dict[str, Any], reasons: int, looks: tuple[int, ...]
) -> None:
    model = nn.Linear(3, 2)
    assert Retraining(**options).plan_looks(model, 0.9, reasons) == looks


def make_cards(*states: str, least: int | None = 60) -> list[Any]:
    """Cards of one reason each."""
    foreseen = {"undecided": Foresight(None, least, None)}
    return [
        SimpleNamespace(reasons=[SimpleNamespace(state=state, foreseen=foreseen.get(state))])
        for state in states
    ]


def run_models(looks: tuple[int, ...], **options: Any) -> tuple[RetrainedRuns, list[list[str]]]:
    """Runs of models that cost nothing, and the names of the models of each look."""
    evaluated: list[list[str]] = []

    def evaluate(models: Any, number: int) -> Any:
        assert number == len(evaluated)
        evaluated.append(list(models))
        return f"results {number}"

    model = nn.Linear(3, 2)
    retraining = Retraining(retrain=lambda seed: nn.Linear(3, 2))
    return RetrainedRuns(retraining, model, looks, evaluate, progress=False, **options), evaluated


def test_models_are_trained_until_all_reasons_are_decided() -> None:
    runs, evaluated = run_models((2, 3, 5))
    assert runs.goes_on(make_cards(""))  # the first look asks no card
    runs.run_next()
    assert runs.looks == (2,)
    assert not runs.goes_on(make_cards("holds", "falls"))
    assert runs.goes_on(make_cards("holds", "undecided", least=4))
    assert not runs.goes_on(make_cards("undecided", least=6))  # 5 models do not decide it
    assert not runs.goes_on(make_cards("undecided", least=None))
    runs.run_next()
    runs.run_next()
    assert not runs.goes_on(make_cards("undecided", least=4))
    assert runs.looks == (2, 3, 5)
    numbers = [[f"retrained {seed}" for seed in seeds] for seeds in ((1, 2), (3,), (4, 5))]
    assert evaluated == numbers
    assert [runs.results[f"retrained {seed}"] for seed in (2, 3, 4)] == list(runs.batches)


@pytest.mark.parametrize("looks", [(5, 10), (5,)])
def test_a_first_look_ends_where_its_time_does(looks: tuple[int, ...]) -> None:
    runs, evaluated = run_models(looks, training_ends=0.0)
    with pytest.warns(UserWarning, match="1 of 5 models"):
        runs.run_next()
    assert evaluated == [["retrained 1"]]
    assert runs.looks == ()  # one look, whose error is not divided
    assert not runs.goes_on(make_cards("undecided", least=6))


@pytest.mark.filterwarnings("ignore:.*retrained models can never show:UserWarning")
def test_training_has_a_part_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three quarters of it are over when the last model is trained, and the rest is for the evaluation."""
    began = time.monotonic()
    ends: list[float] = []
    noted: list[float | None] = []
    evaluate = cards.evaluate

    def train_two(train: Any, start: int, stop: int, most: int, progress: bool, end: float) -> Any:
        ends.append(end)
        return [make_pipeline(), make_pipeline()]

    def note_minutes(*values: Any, minutes: float | None, **options: Any) -> Any:
        noted.append(minutes)
        return evaluate(*values, **options)

    monkeypatch.setattr(retraining, "_train_each", train_two)
    monkeypatch.setattr(cards, "evaluate", note_minutes)
    with pytest.warns(UserWarning, match="2 of 40 models were trained again"):
        found = ask(make_pipeline(), retrain=lambda seed: None, models=40, minutes=2)
    took = time.monotonic() - began
    assert {card.models for card in found} == {2}
    assert 0 <= ends[0] - began - 90 < 10
    assert noted[0] == 1
    assert 2 - took / 60 < noted[1] <= 2  # type: ignore[operator]


@pytest.mark.filterwarnings("ignore:.*retrained models can never show:UserWarning")
def test_models_that_are_trained_are_evaluated_in_any_case(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the rest of the time is too short for one sample, it takes longer, and nothing is lost."""
    noted: list[float | None] = []
    evaluate = cards.evaluate

    def refuse_few_minutes(*values: Any, minutes: float | None, **options: Any) -> Any:
        noted.append(minutes)
        # of the given model, with half of the time, and of the others
        if len(noted) > 1 and minutes is not None and minutes < 5:
            raise ArgumentError("minutes", "at least about 5 for one sample", minutes)
        return evaluate(*values, **options)

    monkeypatch.setattr(cards, "evaluate", refuse_few_minutes)
    found = ask(make_pipeline(), retrain=lambda seed: make_pipeline(), models=2, minutes=2)
    assert {card.models for card in found} == {2}
    assert [minutes > 5 for minutes in noted] == [False, False, False, True]  # type: ignore[operator]
    assert noted[2:] == [2 * noted[1], 4 * noted[1]]  # type: ignore[operator]


@pytest.mark.filterwarnings("ignore:.*retrained models can never show:UserWarning")
def test_too_few_minutes_are_those_that_were_given(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*values: Any, minutes: float, **options: Any) -> Any:
        raise ArgumentError("minutes", "at least about 5 for one sample", minutes)

    monkeypatch.setattr(cards, "evaluate", refuse)
    with pytest.raises(ArgumentError, match=r"about 5 for one sample in the half .*got 2 in all"):
        ask(make_pipeline(), retrain=lambda seed: make_pipeline(), models=3, minutes=2)
    with pytest.raises(ArgumentError, match=r"about 5 for one sample, got 2\.0"):
        ask(make_pipeline(), minutes=2)


def test_a_fixed_number_of_models_is_no_look_of_several() -> None:
    runs, _ = run_models((4,))
    runs.run_next()
    assert runs.looks == ()
    assert not runs.goes_on(make_cards("undecided", least=4))


def test_no_look_begins_that_would_end_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 10.0, 20.0, 20.0, 29.0, 31.0])
    monkeypatch.setattr(retrained_runs.time, "monotonic", lambda: next(clock))
    runs, _ = run_models((2, 3, 5), ends=40.0)
    runs.run_next()  # 20 seconds for two models
    assert runs.goes_on(make_cards("undecided", least=4))  # at 29, one model takes 10
    assert not runs.goes_on(make_cards("undecided", least=4))  # at 31


def test_a_search_of_counter_examples_is_never_mute(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(display, "_SECONDS_BETWEEN_LINES", 0.01)

    def explain(module: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        time.sleep(0.005)
        return inputs * torch.tensor([3.0, -2.0, 1.0])

    standfast.reasons(
        standfast.Model(nn.Linear(3, 2), (0.0, 1.0), device="cpu"),
        explain,
        torch.tensor([[0.5, 0.5, 0.5]]),
        top=1,
        draws=5,
        measurement=standfast.LinfBall(0.01),
        counter_examples=40,
    )
    assert "counter-examples: " in capsys.readouterr().err


@pytest.mark.parametrize("given", ["labels", "retrain", "retrained"])
def test_models_of_other_classes_are_refused(given: str) -> None:
    """Class 1 of a model of two classes is not class 1 of one of three: the reference may be a part of the data."""
    three = np.where(FRAME["age"] > 1, "closed", LABELS)
    model = linear_model.LogisticRegression().fit(FRAME, three)
    two = linear_model.LogisticRegression().fit(FRAME, LABELS)
    options: dict[str, Any] = {
        "labels": {"retrain": True, "labels": LABELS},
        "retrain": {"retrain": lambda seed: two},
        "retrained": {"retrained": [two] * 30},
    }[given]
    asked = Retraining(**options, models=None if given == "retrained" else 30, rows=FRAME)
    words = f"{given}.*classes.* closed, default, repaid, got default, repaid"
    with pytest.raises(ArgumentError, match=words):
        asked.make_models(model, asked.plan_looks(model, 0.9, 1), 0, progress=False)


def test_classes_may_have_other_types() -> None:
    """As numbers of a CSV file are of a model that has learned truth values."""
    model = linear_model.LogisticRegression().fit(FRAME, LABELS == "default")
    asked = Retraining(
        retrain=True, models=30, rows=FRAME, labels=(LABELS == "default").astype(int).tolist()
    )
    looks = asked.plan_looks(model, 0.9, 1)
    assert len(asked.make_models(model, looks, 0, progress=False)) == 30


def test_rows_that_are_drawn_twice_have_names_of_their_own() -> None:
    class Joined(linear_model.LogisticRegression):  # type: ignore[misc, name-defined]
        """Adds a column by the names of rows, as a step of a pipeline may."""

        def fit(self, rows: Any, labels: Any) -> Any:
            total = (rows["income"] + rows["debt"]).rename("total")
            return super().fit(rows.join(total), labels)

    assert fit_clone(Joined(), FRAME, LABELS, 1).n_features_in_ == 4
