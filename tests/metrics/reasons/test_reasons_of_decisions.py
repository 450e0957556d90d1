"""`standfast.reasons` against shares that are computed by hand with shap."""

from __future__ import annotations

import json
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from torch import nn

import standfast
from standfast.neighbourhoods import LinfBall
from standfast.reason_cards import ReasonCards, cards, counter_examples
from standfast.reason_cards.retraining import MOST_MODELS
from standfast.report.cards import describe_card
from standfast.results.reasons.answers import read_tolerance
from standfast.statistics.reasons import decide_at_looks, schedule_models
from standfast.tasks import Regression

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture(scope="module")
def credit() -> Any:
    """The example of the documentation, as a module."""
    pytest.importorskip("lightgbm")
    pytest.importorskip("shap")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXAMPLES))
        import reasons as example  # type: ignore[import-not-found]

        yield example
        sys.modules.pop("reasons", None)


def explain_by_hand(model: Any, row: Any) -> dict[str, float]:
    """Path-dependent TreeSHAP of the probability of default of one row, by shap itself."""
    import shap

    encoded = model[:-1].transform(row)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # shap says that it has changed its form
        values = np.asarray(shap.TreeExplainer(model[-1]).shap_values(encoded))
    flat = values.reshape(-1, encoded.shape[1])[-1]
    of_default = -1.0 if list(model.classes_).index("default") == 0 else 1.0
    names = [str(name).split("__")[-1] for name in encoded.columns]
    return {name: of_default * float(value) for name, value in zip(names, flat, strict=True)}


def name_first(values: dict[str, float], count: int = 4) -> dict[str, float]:
    """The first features by size, with their signs."""
    ordered = sorted(values, key=lambda name: -abs(values[name]))[:count]
    return {name: float(np.sign(values[name])) for name in ordered}


def test_shares_of_retrained_models_are_those_of_a_loop_over_shap(credit: Any) -> None:
    frame, labels = credit.make_applicants(300)
    model = credit.train(frame, labels)
    again = [credit.train(frame, labels, seed, resample=True) for seed in range(1, 4)]
    declined = credit.find_declined(model, frame, 2)
    with pytest.warns(UserWarning, match="3 retrained models can never show"):
        found = standfast.reasons(
            model,
            "tree_shap",
            declined,
            reference=frame,
            decision=credit.RULE,
            retrained=again,
            progress=False,
        )
    for place, card in enumerate(found):
        row = declined.iloc[[place]]
        assert card.answer == "declined"
        own = name_first(explain_by_hand(model, row))
        assert {reason.name: reason.sign for reason in card.reasons} == own
        deciding = [each for each in again if len(credit.find_declined(each, row))]
        assert card.models - card.deciding_otherwise == len(deciding)
        named = [name_first(explain_by_hand(each, row)) for each in deciding]
        for reason in card.reasons:
            expected = np.mean(
                [of_model.get(reason.name) == own[reason.name] for of_model in named]
            )
            assert reason.probability == pytest.approx(expected)
        assert card.same == pytest.approx(np.mean([of_model == own for of_model in named]))


def make_data() -> tuple[standfast.Model, torch.Tensor]:
    layer = nn.Linear(3, 2).double()
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[0.0, 0.0, 0.0], [3.0, -2.0, 1.0]]))
        layer.bias.copy_(torch.tensor([0.0, 9.0]))  # always class 1
    return standfast.Model(layer, (0.0, 1.0), device="cpu"), torch.tensor(
        [[0.2, 0.4, 0.6], [0.9, 0.1, 0.5]]
    ).double()


def ask(**options: Any) -> ReasonCards:
    model, inputs = make_data()
    asked = {"explainer": "saliency", "progress": False, "top": 2, **options}
    return standfast.reasons(asked.pop("model", model), inputs=inputs, **asked)


@pytest.mark.parametrize("models", [45, pytest.param(200, marks=pytest.mark.slow)])
def test_retrained_linear_models_follow_the_law_of_their_weights(models: int) -> None:
    """The weights of retrained models are normal; how often two of three lead is known from many draws."""
    generator = np.random.default_rng(0)

    def retrain(seed: int) -> standfast.Model:
        layer = nn.Linear(3, 2).double()
        weights = np.array([3.0, -2.0, 1.0]) + generator.normal(size=3) * 0.5
        with torch.no_grad():
            layer.weight.copy_(torch.tensor(np.stack([np.zeros(3), weights])))
            layer.bias.copy_(torch.tensor([0.0, 9.0]))  # always class 1
        return standfast.Model(layer, (0.0, 1.0), device="cpu")

    model = retrain(0)
    inputs = torch.full((1, 3), 0.5).double()
    found = standfast.reasons(
        model,
        "input_x_gradient",
        inputs,
        top=2,
        measurement=False,
        retrain=retrain,
        models=models,
        progress=False,
    )
    card = found.card()
    law = np.abs(
        np.array([3.0, -2.0, 1.0]) + np.random.default_rng(9).normal(size=(100_000, 3)) * 0.5
    )
    expected = (np.argsort(-law, axis=1)[:, :2] == 1).any(1).mean()
    second = next(reason for reason in card.reasons if reason.feature == 1)
    assert second.probability_low < expected < second.probability_high
    assert card.models == models


def test_nothing_varies_without_sources() -> None:
    card = ask(measurement=False).card(0)
    assert card.varied == ()
    assert card.draws == 0
    assert [reason.state for reason in card.reasons] == ["", ""]


def test_a_second_call_goes_on_where_the_first_has_ended(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "measurement": LinfBall(0.05),
        "explainer": "smoothgrad:samples=2",
        "draws": 20,
    }
    first = ask(out=tmp_path, **options)
    again = ask(out=tmp_path, **options)
    assert first.results.run is not None
    assert again.results.run is not None
    assert again.results.run.done == 0
    assert first.frame().equals(again.frame())


def test_cards_are_written(tmp_path: Path) -> None:
    found = ask(measurement=LinfBall(0.05))
    content = json.loads(found.to_json(tmp_path / "card.json", 1).read_text())
    assert content["sample"] == 1
    assert found.to_html(tmp_path / "card.html", 0).read_text().startswith("<!doctype html>")
    assert [path.name for path in found.write(tmp_path / "all.html")] == [
        "all-0.html",
        "all-1.html",
    ]


def test_shares_of_many_decisions() -> None:
    found = ask(measurement=LinfBall(0.05))
    share = found.share_of_stated()
    assert (share.count, share.total) == (2, 2)  # the map of a linear model is the same everywhere
    assert found.count_doubtful() == {}
    groups = found.frame_of_groups({0: "a", 1: "b"})
    assert groups["group"].to_list() == ["a", "a", "b", "b"]


def explain_incomes(**options: Any) -> ReasonCards:
    """A linear rule of a frame, whose contributions are 1.5, 1.2 and 0.9."""

    class Rule:
        classes_ = np.array([0, 1])

        def predict_proba(self, frame: Any) -> Any:
            numbers = frame.to_numpy().astype(float)
            score = 1 / (1 + np.exp(-(numbers @ np.array([0.03, 0.02, 0.01]))))
            return np.stack([1 - score, score], axis=1)

        def predict(self, frame: Any) -> Any:
            return self.predict_proba(frame).argmax(1)

    def explain(estimator: Any, frame: Any, targets: Any) -> Any:
        return frame.to_numpy() * np.array([0.03, 0.02, 0.01])

    frame = pd.DataFrame({"income": [50, 80], "debt": [60, 10], "age": [90, 10]})
    reference = pd.DataFrame({name: [0, 20, 40, 100] * 2 for name in frame.columns})
    changes = standfast.neighbourhoods.TableChanges({"income": 30, "debt": 30})
    asked = {
        "reference": reference,
        "measurement": changes,
        "counter_examples": 150,
        "draws": 20,
        "top": 2,
        "progress": False,
        **options,
    }
    return standfast.reasons(Rule(), explain, frame, **asked)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for what is evaluated and searched once, and read by the tests that ask the same of it."""
    return tmp_path_factory.mktemp("incomes")


@pytest.mark.filterwarnings("ignore:.*:UserWarning")
def test_counter_examples_are_told_in_the_words_of_the_frame(tmp_path: Path, stored: Path) -> None:
    found = explain_incomes(out=stored)
    income, debt = found.counter_examples[0]
    # 3 * 30 is no more than 90; rows are whole numbers
    assert income.changes == {"income": ("50", "30")}
    assert debt.changes == {"debt": ("60", "45")}
    sentence = "With income 30 instead of 50, income is no longer among the first 2."
    assert str(income) == sentence
    assert sentence in found.to_html(tmp_path / "card.html", 0).read_text()
    assert sentence in " ".join(str(found).split())
    content = json.loads(found.to_json(tmp_path / "card.json", 0).read_text())
    assert [example["changes"] for example in content["counter_examples"]] == [
        {"income": ["50", "30"]},
        {"debt": ["60", "45"]},
    ]
    # of the other row, 2.4 stays far above 0.2 and 0.1
    assert [example.found for example in found.counter_examples[1]] == [False, True]
    assert "none takes income out of the first 2" in " ".join(str(found).split())


@pytest.mark.filterwarnings("ignore:.*:UserWarning")
def test_units_stand_beside_values_and_in_counter_examples(tmp_path: Path, stored: Path) -> None:
    found = explain_incomes(units={"income": "EUR", "age": "%"}, out=stored)
    card = found.card(0)
    assert card.columns == {"income": "50 EUR", "debt": "60", "age": "90%"}
    assert [reason.words for reason in card.reasons] == ["income 50 EUR", "debt 60"]
    page = found.to_html(tmp_path / "card.html", 0).read_text()
    assert "income <b>50 EUR</b>" in page
    assert "With income 30 EUR instead of 50 EUR, income is" in page


@pytest.mark.parametrize(
    ("units", "words"),
    [({"incom": "EUR"}, "incom"), ({"income": 3}, "texts by names"), ("EUR", "texts by names")],
)
@pytest.mark.filterwarnings("ignore:.*:UserWarning")
def test_units_of_no_column_are_refused_before_the_run(units: Any, words: str) -> None:
    with pytest.raises(standfast.ArgumentError, match=words) as error:
        explain_incomes(units=units)
    assert error.value.argument == "units"


@pytest.mark.filterwarnings("ignore:.*:UserWarning")
def test_counter_examples_are_stored_and_not_searched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched: list[int] = []
    search = counter_examples.find_falls

    def count(call: Any, neighbourhood: Any, sought: Any, budget: int, seed: int) -> Any:
        searched.append(len(sought.rows))
        return search(call, neighbourhood, sought, budget, seed)

    monkeypatch.setattr(counter_examples, "find_falls", count)
    options: dict[str, Any] = {"out": tmp_path / "cards", "counter_examples": 60, "draws": 5}
    first = explain_incomes(**options)
    again = explain_incomes(**options, units={"income": "EUR"})
    assert searched == [4]  # two reasons of two rows, once
    for sample, examples in first.counter_examples.items():
        for one, other in zip(examples, again.counter_examples[sample], strict=True):
            assert (one.found, one.turned, one.evaluations) == (
                other.found,
                other.turned,
                other.evaluations,
            )
            assert (one.changed is None) == (other.changed is None)
            if one.changed is not None:
                assert (one.changed == other.changed).all()
    assert str(again.counter_examples[0][0]).startswith("With income 30 EUR")
    # one file is damaged, and its row alone is searched again, with the same numbers
    damaged, _ = sorted((tmp_path / "cards" / "given" / "counter_examples").iterdir())
    damaged.write_text(damaged.read_text()[:-20])
    mended = explain_incomes(**options)
    assert searched == [4, 2]
    assert mended.counter_examples == first.counter_examples
    # another search
    explain_incomes(**{**options, "counter_examples": 40})
    assert searched == [4, 2, 4]
    explain_incomes(**options, seed=1)
    assert searched == [4, 2, 4, 4]


@pytest.mark.filterwarnings("ignore:.*:UserWarning")
def test_no_counter_examples_without_a_search(tmp_path: Path, stored: Path) -> None:
    found = explain_incomes(counter_examples=0, out=stored)
    assert found.counter_examples == {}
    assert "Counter-example" not in found.to_html(tmp_path / "card.html", 0).read_text()


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"counter_examples": 100, "measurement": False}, "counter_examples"),
        ({"counter_examples": -1}, "counter_examples"),
        ({"top": 4}, "top"),
        ({"explainer": ["saliency", "random"]}, "explainer"),
        ({"retrained": []}, "retrained"),
        ({"retrained": [nn.Linear(3, 2)]}, r"retrained\[0\]"),
        ({"retrain": lambda seed: nn.Linear(3, 2), "models": 1}, "retrain"),
        ({"models": 3}, "models"),
        ({"measurement": 0.1}, "measurement"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*retrained models can never show:UserWarning")
def test_what_does_not_fit_is_refused_before_the_run(
    options: dict[str, Any], argument: str
) -> None:
    with pytest.raises(standfast.ArgumentError, match=argument):
        ask(**options)


class Weighted(nn.Module):
    """A number that is a weighted sum."""

    def __init__(self, weights: list[float]) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.tensor(weights).double())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x @ self.weights)[:, None]


@dataclass(frozen=True)
class Dose(Regression):
    """A task of a user's, whose text is not that of a regression."""

    name: ClassVar[str] = "dose"


@pytest.mark.parametrize("task", [Regression(tolerance=0.3), Dose(tolerance=0.3)])
def test_a_retrained_regressor_decides_otherwise_beyond_the_tolerance(task: Regression) -> None:
    def make_model(weights: list[float]) -> standfast.Model:
        return standfast.Model(Weighted(weights), (0.0, 1.0), device="cpu", task=task)

    inputs = torch.tensor([[0.5, 0.5, 0.5]]).double()
    with pytest.warns(UserWarning, match="2 retrained models can never show"):
        found = standfast.reasons(
            make_model([1.0, -2.0, 0.5]),
            "input_x_gradient",
            inputs,
            top=2,
            measurement=False,
            retrained=[make_model([1.0, -2.0, 0.6]), make_model([1.0, -2.0, 5.0])],
            progress=False,
        )
    card = found.card()
    assert (card.models, card.deciding_otherwise, card.draws) == (2, 1, 1)


@pytest.mark.parametrize(
    ("about", "tolerance"),
    [
        ({"task": "Dose(tolerance=0.3)", "same within": 0.3}, 0.3),
        ({"task": "Classification()", "same within": None}, np.inf),
        # manifests of earlier versions
        ({"task": "Regression(tolerance=0.3)"}, 0.3),
        ({"task": "Classification()"}, np.inf),
        ({}, np.inf),
    ],
)
def test_what_is_the_same_number_is_read_from_old_and_new_manifests(
    about: dict[str, Any], tolerance: float
) -> None:
    assert read_tolerance(about) == tolerance


def test_a_retrained_model_without_reasons_names_none_and_decides_the_same() -> None:
    def make_model(scale: float) -> standfast.Model:
        layer = nn.Linear(3, 2).double()
        with torch.no_grad():
            layer.weight.copy_(scale * torch.tensor([[0.0, 0.0, 0.0], [3.0, -2.0, 1.0]]))
            layer.bias.copy_(torch.tensor([0.0, 9.0]))
        return standfast.Model(layer, (0.0, 1.0), device="cpu")

    with pytest.warns(UserWarning, match="2 retrained models can never show"):
        found = ask(
            model=make_model(1.0), measurement=False, retrained=[make_model(1.1), make_model(0.0)]
        )
    for card in found:
        assert (card.models, card.deciding_otherwise, card.draws) == (2, 0, 2)
        assert [reason.probability for reason in card.reasons] == [0.5, 0.5]


def test_retrained_models_are_asked_for_the_samples_that_a_limit_of_time_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[dict[str, Any]] = []

    def leave_out(*arguments: Any, **options: Any) -> Any:
        """As `evaluate` with a limit of time that left out the first sample."""
        asked.append(options)
        found = standfast.evaluate(*arguments, **{**options, "minutes": None})
        found.__dict__["samples"] = found.samples.filter(pl.col("sample") == 1)
        return found

    monkeypatch.setattr(cards, "evaluate", leave_out)
    with pytest.warns(UserWarning, match="1 retrained models can never show"):
        ask(measurement=False, retrained=[make_data()[0]], minutes=4.0)
    of_given, of_models = (options["minutes"] for options in asked)
    # half for the given model, and all that is left for the others
    assert of_given == 2.0
    assert 2.0 < of_models < 4.0
    assert asked[1]["targets"].tolist() == [0, 1]


def test_a_counter_example_of_a_text_is_explained_by_hand() -> None:
    reader = standfast.TextModel(
        standfast.zoo.load("transformer-sentences"), standfast.data.word_vectors()
    )
    text = "a good and fine film with a nice but dull end for many people who think"
    typos = standfast.neighbourhoods.Typos(rate=0.3)
    found = standfast.reasons(
        reader,
        "occlusion",
        [text],
        measurement=typos,
        top=2,
        counter_examples=40,
        draws=5,
        progress=False,
    )
    dull, good = found.counter_examples[0]
    assert (dull.found, good.found) == (False, True)
    words = text.split()
    for place, (before, after) in good.changes.items():
        number = int(place.removeprefix("word ")) - 1
        assert repr(words[number]) == before
        words[number] = after.strip("'")
    ((*explained,),) = standfast.explain(reader, "occlusion", [" ".join(words)])
    sizes = {word: abs(value) for word, value in explained}
    assert "good" not in sorted(sizes, key=sizes.__getitem__)[-2:]


def explain_applicants(index: list[Any], explainer: Any = None, **options: Any) -> ReasonCards:
    """A logistic rule of two columns, of rows with these labels."""
    linear_model = pytest.importorskip("sklearn.linear_model")
    generator = np.random.default_rng(0)
    train = pd.DataFrame(generator.normal(size=(80, 2)), columns=["income", "debt"])
    labels = np.where(train["income"] > train["debt"], "repaid", "default")
    model = linear_model.LogisticRegression().fit(train, labels)
    rows = train.iloc[: len(index)].set_axis(index)
    return standfast.reasons(
        model,
        explainer or "kernel_shap:samples=16",
        rows,
        reference=train,
        top=1,
        draws=4,
        alone=False,
        progress=False,
        **options,
    )


@pytest.mark.filterwarnings("ignore:.*:UserWarning")
def test_a_card_is_named_by_the_label_of_its_row_and_says_unit_and_changes(tmp_path: Path) -> None:
    changes = standfast.neighbourhoods.TableChanges({"income": "2%", "debt": "2%"})
    rule = "declined: P(default) > 0.35"
    found = explain_applicants(["C-7", "C-9"], measurement=changes, decision=rule)
    card = found.card(1)
    assert (card.name, card.unit) == ("C-9", "log-odds")
    assert card.changes == "income and debt by up to 2% of their value"
    text = " ".join(found.to_text(1).split())
    assert ", row C-9, model" in text
    assert "the input (income and debt by up to 2% of their value)" in text
    content = json.loads(found.to_json(tmp_path / "card.json", 1).read_text())
    assert (content["name"], content["unit"], content["changes"]) == (
        "C-9",
        "log-odds",
        card.changes,
    )
    # a part of a frame keeps its numbers; those from 0 are the numbers of the samples already
    assert ", row 17, model" in explain_applicants([17]).to_text()
    # names are no part of what is stored
    explain_applicants([17], out=tmp_path / "stored")
    renamed = explain_applicants(["C-7"], out=tmp_path / "stored")
    assert renamed.results.run is not None
    assert renamed.results.run.done == 0
    assert renamed.card().name == "C-7"
    numbered = explain_applicants([0])
    assert numbered.card().name == ""
    assert ", row 0, model" in numbered.to_text()


def test_units_are_those_of_what_is_explained() -> None:
    units = {
        explainer: ask(explainer=explainer, measurement=False).card(0).unit
        for explainer in (
            "input_x_gradient",
            "occlusion",
            "saliency",
            "guided_backprop",
            "lrp",
        )
    }
    assert units == {
        "input_x_gradient": "logit",
        "occlusion": "probability",
        "saliency": "logit for each unit of the feature",
        "guided_backprop": "",
        "lrp": "",
    }


def test_the_sign_of_a_gradient_says_what_raising_the_feature_does() -> None:
    model, inputs = make_data()
    found = ask(explainer="saliency:absolute=False", measurement=LinfBall(0.05), top=3)
    text = " ".join(found.to_text(0).split())
    card = found.card(0)
    words = describe_card(card)
    for feature, reason in enumerate(words.holding):
        raised = inputs[:1].clone()
        number = card.reasons[feature].feature
        raised[0, number] += 0.1
        effect = (
            "raises" if model.logits(raised)[0, 1] > model.logits(inputs[:1])[0, 1] else "lowers"
        )
        assert reason.speaks == f"raising feature {number} {effect} the score of class 1"
    assert len(words.holding) == 3
    assert "gives gradients" in text


def test_an_image_is_named_by_its_file(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    digits = standfast.data.bundled("digits")[:3]
    for number, name in enumerate(["no/a.png", "yes/b.png", "no/c.png"]):
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = (255 * digits.inputs[number, 0]).round().byte().numpy()
        image.fromarray(pixels).save(path)
    photos = standfast.data.from_file(tmp_path / "photos")
    assert photos.sample_names == ("no/a.png", "yes/b.png", "no/c.png")
    assert photos[1:].sample_names == ("yes/b.png", "no/c.png")
    assert photos.take([2, 0]).sample_names == ("no/c.png", "no/a.png")
    model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    found = standfast.reasons(
        model,
        "saliency",
        photos[1:2],
        measurement=LinfBall(4 / 255),
        top=3,
        draws=2,
        progress=False,
    )
    card = found.card()
    assert card.name == "yes/b.png"
    assert card.changes == "each pixel by up to 4/255 of its range"
    assert "photos, yes/b.png, model" in found.to_text()


def test_models_are_trained_until_the_reason_is_decided(tmp_path: Path) -> None:
    trained: list[int] = []

    def retrain(seed: int) -> standfast.Model:
        """Two of the first 15 models name another feature first, and one decides otherwise."""
        trained.append(seed)
        weights = [1.0, -2.0, 9.0] if seed in (3, 5) else [3.0, -2.0, 1.0]
        layer = nn.Linear(3, 2).double()
        with torch.no_grad():
            layer.weight.copy_(torch.tensor([[0.0, 0.0, 0.0], weights]))
            layer.bias.copy_(torch.tensor([0.0, -9.0 if seed == 4 else 9.0]))
        return standfast.Model(layer, (0.0, 1.0), device="cpu")

    model, inputs = make_data()
    options: dict[str, Any] = {
        "inputs": inputs[:1],
        "top": 1,
        "demand": 0.7,
        "measurement": False,
        "retrain": retrain,
        "progress": False,
        "out": tmp_path,
    }
    found = standfast.reasons(model, "saliency", **options)
    first, second, *further = schedule_models(MOST_MODELS, 0.7)
    assert first < second
    assert further
    assert trained == list(range(1, second + 1))
    card = found.card()
    assert (card.models, card.deciding_otherwise) == (second, 1)
    assert [reason.state for reason in card.reasons] == ["holds"]
    hits = np.array([seed not in (3, 5) for seed in trained if seed != 4], dtype=int)
    ones = np.ones_like(hits)
    counts = [(hits[None, : first - 1], ones[: first - 1]), (hits[None], ones)]
    assert card.reasons[0].probability_low == decide_at_looks(counts, 0.7)[0].low
    assert len(found.retrained) == 2
    again = standfast.reasons(model, "saliency", **options)
    assert [batch.run.done for batch in again.retrained if batch.run is not None] == [0, 0]
    assert again.frame().equals(found.frame())
