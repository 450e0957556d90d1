"""What a new metric gets from `Metric`, `Probe` and `Result`, and the errors of one that is not complete."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from refusals import assert_refused
from torch import Tensor

import standfast
from conftest import small_net
from standfast.metrics import Call, Cost, Metric, Probe, Result, ValueSpec
from standfast.metrics.base import has_neighbourhood
from standfast.metrics.base import metrics as registered
from standfast.metrics.result import COMMON_COLUMNS
from standfast.tasks import TaskWords


@dataclass(frozen=True)
class Halved(Metric):
    """How similar the explanations of an input and of half of it are."""

    name = "halved"
    direction = "higher"

    def evaluate(self, call: Any) -> Result:
        probe = Probe(call, similarity="cosine")
        return Result(**probe.common_fields(self), value=probe.query(call.inputs / 2).similarity)


@pytest.fixture
def model() -> standfast.Model:
    return standfast.Model(small_net((12,)), (0.0, 1.0), device="cpu", batch_size=16)


def rows(count: int = 3) -> Tensor:
    return torch.rand(count, 12, generator=torch.Generator().manual_seed(1))


def test_defaults_of_a_metric(model: standfast.Model) -> None:
    metric = Halved.example()
    assert metric == Halved()
    assert (metric.direction, metric.citation, metric.bibtex, metric.own_label) == (
        "higher",
        "",
        "",
        "halved",
    )
    assert metric.bind(extras={}, inputs=rows(), rows=slice(0, 1), module=model.module) is metric
    assert (metric.cost(), metric.cost(3).evaluations) == (Cost(predictions=0, explanations=1), 1)
    result = metric(model, "saliency", rows())
    assert result.frame().columns == [
        *COMMON_COLUMNS,
        "targets",
        "model_evaluations",
        "degenerate",
        "nonfinite",
    ]
    assert result.model_evaluations.tolist() == [2, 2, 2]
    assert repr(result).startswith("Result(halved, 3 samples, median")
    assert "(halved, 1 sample, median" in repr(metric(model, "saliency", rows(1)))
    maps = [
        standfast.explainers.get("saliency")(model, x, result.targets) for x in (rows(), rows() / 2)
    ]
    assert torch.equal(result.value, standfast.similarity.Cosine()(*maps))


def test_metric_is_used_without_being_registered(model: standfast.Model, tmp_path: Path) -> None:
    options: dict[str, Any] = {"controls": False, "sanity": False, "progress": False}
    found = standfast.evaluate(model, ["saliency"], rows(), [Halved()], **options)
    assert found.frame()["label"].to_list() == ["halved"] * 3
    assert "Halved" in found.to_html(tmp_path / "report.html").read_text()


def test_incomplete_metric_is_an_error_where_its_class_is_made() -> None:
    def make(name: object, **direction: object) -> object:
        return type("Mine", (Metric,), {"name": name, **direction})

    assert_refused(partial(make, direction="higher"), name=[3, ""])
    assert_refused(partial(make, "m"), direction=["up"])
    with pytest.raises(standfast.ArgumentError, match="Mine.direction: expected .*, got nothing"):
        make("m")


SPEC = ValueSpec("How much it wobbles", "wobble", "lower", decimals=1)


def make_metric(base: type = Metric, **declared: Any) -> Any:
    """A class of metrics with these attributes."""
    return type("Mine", (base,), {"name": "mine", "evaluate": lambda self, call: None, **declared})


def test_a_metric_declares_how_its_numbers_are_read() -> None:
    kind = make_metric(values=SPEC)
    assert kind().direction == "lower"
    assert kind.value_spec({}) == SPEC
    assert ValueSpec.from_stored(kind().describe_values()) == dataclasses.replace(
        SPEC, asks="other"
    )
    # a subclass has the same reading, or one of its own
    assert make_metric(kind).value_spec({}) == SPEC
    other = dataclasses.replace(SPEC, direction="higher")
    assert make_metric(kind, values=other).direction == "higher"


def test_a_metric_whose_options_decide_which_value_is_better_declares_no_direction() -> None:
    def read(own: type, options: dict[str, Any]) -> ValueSpec:
        title = "Fall of {own}, {probability} or {logit}"
        direction = "lower" if options["preset"] == "quick" else "higher"
        return dataclasses.replace(SPEC, title=title, direction=direction)

    kind = make_metric(value_spec=classmethod(read))
    assert (kind().direction, kind(preset="quick").direction) == ("higher", "lower")
    dose = TaskWords(own="the dose", logit="dose", probability="share")
    described = kind().describe_values(dose)
    assert described["title"] == "Fall of the dose, share or dose"
    assert described["direction"] == "higher"


def test_a_reading_of_an_unknown_form_is_an_error_that_names_it() -> None:
    def read(own: type, options: object, task: object = None) -> ValueSpec:
        return SPEC

    with pytest.raises(
        standfast.ArgumentError, match=r"Mine.value_spec: expected .*\(cls, options"
    ):
        make_metric(value_spec=classmethod(read))
    kind = make_metric(value_spec=classmethod(lambda own, options: {"title": "drop"}))
    with pytest.raises(standfast.ArgumentError, match="Mine.value_spec: expected a ValueSpec"):
        _ = kind().direction
    above = make_metric(
        value_spec=classmethod(lambda own, options: Metric.value_spec.__func__(own, {}))
    )  # type: ignore[attr-defined]
    with pytest.raises(standfast.ArgumentError, match="Mine.direction: expected .*, got nothing"):
        _ = above().direction


@pytest.mark.parametrize(
    "kind",
    [registered[name] for name in registered if has_neighbourhood(name, required=True)],
)
def test_a_neighbourhood_that_is_needed_is_not_none(kind: type[Metric]) -> None:
    example = kind.example()
    with pytest.raises(standfast.ArgumentError, match="^neighbourhood: expected .* got NoneType"):
        dataclasses.replace(example, **{kind.neighbourhood_option: None})  # type: ignore[arg-type]


def test_a_metric_that_declares_nothing_is_read_by_its_name_and_direction() -> None:
    kind = make_metric(name="my_metric", direction="lower")
    assert kind.value_spec({}) == ValueSpec("My metric", "my metric", "lower")


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ({"values": "lower"}, r"Mine.values: expected a ValueSpec, got 'lower'"),
        (
            {"values": SPEC, "direction": "lower"},
            r"Mine.direction: expected nothing, as values says which .*, got both",
        ),
    ],
)
def test_an_impossible_declaration_is_an_error_where_its_class_is_made(
    declared: dict[str, Any], words: str
) -> None:
    with pytest.raises(standfast.ArgumentError, match=words):
        make_metric(**declared)


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ("title", ""),
        ("axis", None),
        ("direction", "up"),
        ("decimals", -1),
        ("decimals", True),
        ("decimals", "percent"),
        ("censored", True),
        ("censored_side", "left"),
        ("only", "found"),
        ("only", (1,)),
        ("good", ""),
        ("column", ""),
        ("same", "1"),
        ("common_share", "drops"),
    ],
)
def test_an_impossible_value_spec_names_the_attribute(attribute: str, value: object) -> None:
    with pytest.raises(standfast.ArgumentError, match=f"^{attribute}: expected"):
        dataclasses.replace(SPEC, **{attribute: value})


def test_a_reading_that_contradicts_the_metric_is_an_error_before_a_study_runs() -> None:
    def read(own: type, options: object) -> object:
        return dataclasses.replace(SPEC, direction="higher")

    kind = make_metric(direction="lower", value_spec=classmethod(read))
    words = r"Mine.value_spec: expected the direction 'lower' of the metric, or None, got 'higher'"
    with pytest.raises(standfast.ArgumentError, match=words):
        kind().describe_values()


def test_evaluate_takes_a_call() -> None:
    def evaluate(
        self: Metric, model: Any, explainer: Any, inputs: Any, targets: Any, generator: Any
    ) -> Result:
        raise NotImplementedError

    with pytest.raises(
        standfast.ArgumentError,
        match=r"Mine.evaluate: expected the arguments \(self, call\), got self",
    ):
        type("Mine", (Metric,), {"name": "mine", "direction": None, "evaluate": evaluate})


def test_base_of_metrics_needs_no_direction_and_none_ranks_nothing() -> None:
    base = type("Base", (Metric,), {})
    assert type("Mine", (base,), {"name": "mine", "direction": None}).direction is None


@pytest.mark.parametrize(
    ("metric", "direction"),
    [
        (standfast.metrics.NearAffinity(), None),
        (standfast.metrics.AOPC(), "higher"),
        (standfast.metrics.AOPC(order="bottom"), "lower"),
        (standfast.metrics.CorruptionCurve(), "higher"),
        (standfast.metrics.CorruptionCurve(order=("bottom",)), "lower"),
        (standfast.metrics.WorstCase(standfast.LinfBall(0.1)), "higher"),
        (standfast.metrics.WorstCase(standfast.LinfBall(0.1), similarity="mse"), "lower"),
        (standfast.metrics.WorstCase(standfast.LinfBall(0.1), "changed_class"), "lower"),
        (standfast.metrics.WorstCase(standfast.LinfBall(0.1), "misclassification"), None),
        (standfast.metrics.MisinterpretationProbability(standfast.LinfBall(0.1)), "lower"),
        (
            standfast.metrics.MisinterpretationProbability(
                standfast.LinfBall(0.1), "misclassification"
            ),
            None,
        ),
        (
            standfast.metrics.AttributionAttack(standfast.LinfBall(0.1), similarities=("mse",)),
            "lower",
        ),
    ],
)
def test_options_decide_which_value_is_better(metric: Metric, direction: str | None) -> None:
    assert metric.direction == metric.direction_of(metric.options()) == direction


def test_options_of_a_wrong_kind_are_errors() -> None:
    assert_refused(standfast.metrics.CEvalPlot, fractions=[0.5])
    assert_refused(partial(standfast.LinfBall, 0.1), sigma=["a"])
    worst = partial(standfast.metrics.WorstCase, standfast.LinfBall(0.1))
    assert_refused(worst, threshold=["a"], track_sensitivity=["a"], search=[3])
    with pytest.raises(standfast.ArgumentError, match="starts: expected"):
        worst(search="block:starts=0")


def test_generator_is_one_of_torch(model: standfast.Model) -> None:
    with pytest.raises(
        standfast.ArgumentError, match="generator: expected a torch.Generator or None, got 3"
    ):
        Halved()(model, "saliency", rows(), generator=3)  # type: ignore[arg-type]


def test_search_with_options_in_a_text(model: standfast.Model) -> None:
    search = standfast.algorithms.searches["genetic"](population=6)
    kind = standfast.metrics.WorstCase
    text, made = (
        kind(standfast.LinfBall(0.1), search=s, budget=30) for s in ("genetic:population=6", search)
    )
    assert torch.equal(text(model, "saliency", rows()).value, made(model, "saliency", rows()).value)


def test_an_order_may_be_a_single_name() -> None:
    assert standfast.metrics.CorruptionCurve(order="bottom") == standfast.metrics.CorruptionCurve(
        order=("bottom",)
    )


def test_origins_may_be_left_out_for_one_copy_of_each(model: standfast.Model) -> None:
    x = rows()
    with model.session():
        probe = Probe(Call(model, standfast.explainers.get("saliency"), x), similarity="cosine")
        found, named = probe.query(x / 2), probe.query(x / 2, torch.arange(3))
        assert torch.equal(found.similarity, named.similarity)
        assert torch.equal(probe.query_class(x / 2).margin, found.margin)
        assert found.maps is None  # they are held only if they are asked for
        assert probe.evaluations.tolist() == [4, 4, 4]
        for query in (probe.query, probe.query_class):
            with pytest.raises(
                standfast.ArgumentError, match="origin: expected the number of each copy's origin"
            ):
                query(torch.cat([x, x]))


def test_similarity_of_a_probe_can_be_named(model: standfast.Model) -> None:
    class Same(standfast.similarity.Similarity):
        name = "same"

        def compare(self, a: Tensor, b: Tensor) -> Tensor:
            return torch.ones(len(a))

    class Strict(Same):
        def compare(self, a: Tensor, b: Tensor) -> Tensor:
            assert bool(a.isfinite().all() and b.isfinite().all())
            return torch.ones(len(a))

    with model.session():
        lost = standfast.explainers.from_callable(
            lambda _, x, y: torch.where(x < 0.3, torch.nan, x), name="lost"
        )
        x = 0.5 + rows() / 2
        found = Probe(Call(model, lost, x), similarity=Strict()).query(
            x * torch.tensor([1.0, 0.1, 1.0])[:, None]
        )
        assert found.similarity.nan_to_num(9).tolist() == [1.0, 9.0, 1.0]
        explainer = standfast.explainers.get("saliency")
        assert Probe(Call(model, explainer, rows())).similarity is None
        assert (
            Probe(Call(model, explainer, rows()), similarity=Same())
            .query(rows())
            .similarity.tolist()
            == [1.0] * 3
        )
        with pytest.raises(standfast.ArgumentError, match="did you mean 'cosine'"):
            Probe(Call(model, explainer, rows()), similarity="cosin")


def test_numbers_that_are_none_are_null_in_the_common_columns() -> None:
    zeros = torch.zeros(3, dtype=torch.int64)
    value = torch.tensor([1.0, torch.nan, 3.0])
    result = Result(
        "m",
        {},
        ("ok", "ok", "degenerate"),
        zeros,
        zeros,
        zeros,
        zeros,
        value,
        low=value - 1,
        high=value + 1,
    )
    frame = result.frame()
    assert frame.select("value", "low", "high").rows() == [
        (1.0, 0.0, 2.0),
        (None, None, None),
        (None, None, None),
    ]
    assert frame.schema["low"] == pl.Float64


@pytest.mark.parametrize("name", standfast.metrics.names())
def test_missing_options_are_named_with_an_example(name: str) -> None:
    kind = standfast.metrics.metrics[name]
    required = [
        field for field in dataclasses.fields(kind) if field.default is field.default_factory
    ]
    if not required:
        assert standfast.metrics.get(name) == kind()
        return
    with pytest.raises(
        standfast.ArgumentError, match=f"{required[0].name}: expected a value for {name}, such as "
    ):
        standfast.metrics.get(name)


@pytest.mark.parametrize("name", standfast.metrics.names())
def test_no_option_stumbles_over_a_value_of_another_kind(name: str) -> None:
    """It is accepted, or refused by name; `benchmarks/reliability/reliability.py` tries more."""
    kind = standfast.metrics.metrics[name]
    options = [field.name for field in dataclasses.fields(kind) if field.init]
    given = {"neighbourhood": standfast.LinfBall(0.1)} if "neighbourhood" in options else {}
    for option in options:
        for value in ("high", 1j, [], 10**30, torch.tensor(1.0), float("nan")):
            try:
                kind(**{**given, option: value})
            except standfast.StandfastError:
                continue


def test_a_query_in_parts_is_the_query_as_a_whole(
    model: standfast.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe = Probe(Call(model, standfast.explainers.get("saliency"), rows(5)), similarity="cosine")
    whole = probe.query(rows(5) / 2)
    monkeypatch.setattr(Probe, "choose_block_size", lambda *_: 2)
    parts = probe.query(rows(5) / 2)
    assert whole.similarity is not None
    assert parts.similarity.equal(whole.similarity)
    assert parts.margin.equal(whole.margin)
