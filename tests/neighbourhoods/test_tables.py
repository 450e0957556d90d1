"""Changed rows of tables: rules that never break, distributions against plain rejection, and options in study files."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from refusals import assert_refused
from scipy import stats
from torch import Tensor, nn

import standfast
from standfast.algorithms import searches
from standfast.algorithms.searches.base import Outcome, differentiate_outcome
from standfast.errors import ArgumentError
from standfast.neighbourhoods import Compose, Feature, TableChanges, TransformedRegion
from standfast.records import Background
from standfast.study.file.options import neighbourhood_from, to_plain
from standfast.study.file.problems import StudyFieldError
from standfast.study.file.references import ReferenceReader
from standfast.tensors import Streams

COLUMNS = ("income", "debt", "age", "north", "south", "east", "total", "code")
RULES = ("debt <= 3 * income", "total == income + debt", "18 <= age", "debt - 100 * age <= 9000")
CHANGES: dict[str, Any] = {
    "income": "10%",
    "debt": (-500, 4000),
    "age": {"by": 3, "step": 1},
    "region": "category",
    "code": {"categories": "data", "rate": 0.3},
}
PRIORS = ("independent", "copula")


def make_data(rows: int = 300) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    income = torch.exp(torch.randn(rows, generator=generator) / 2 + 8)
    debt = income * 3 * torch.rand(rows, generator=generator)
    age = torch.randint(18, 70, (rows,), generator=generator).float()
    debt = torch.minimum(debt, 9000 + 100 * age)
    region = torch.multinomial(torch.tensor([0.5, 0.3, 0.2]), rows, True, generator=generator)
    code = 94105 + torch.multinomial(torch.tensor([0.2, 0.2, 0.6]), rows, True, generator=generator)
    return torch.stack(
        [income, debt, age, *nn.functional.one_hot(region, 3).float().T, income + debt, code], dim=1
    )


DATA = make_data()
MEAN, STD = DATA.mean(0), DATA.std(0)


def make_table(prior: str = "independent", **options: Any) -> TableChanges:
    groups = {"region": ("north", "south", "east")}
    common: dict[str, Any] = {
        "columns": COLUMNS,
        "one_hot": groups,
        "rules": RULES,
        "data": DATA,
        "prior": prior,
    }
    return TableChanges(**{"changes": CHANGES, **common, **options})


def around(table: TableChanges, rows: Tensor, data: Tensor = DATA) -> TransformedRegion:
    return table.around(rows, (data.amin(0), data.amax(0)))


def perturb_at_random(
    region: TransformedRegion, count: int, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """Parameters anywhere in the box, one in ten at its faces: clean rows, perturbed rows, and which are admitted."""
    generator = torch.Generator().manual_seed(seed)
    shape = (len(region), count // len(region), *region.shape)
    u = torch.rand(shape, generator=generator)
    u = torch.where(torch.rand(shape, generator=generator) < 0.1, u.round(), u)
    points = torch.lerp(region.lower[:, None].expand(shape), region.upper[:, None].expand(shape), u)
    problem = torch.arange(len(region)).repeat_interleave(shape[1])
    admitted = region.contains(points).flatten()
    return region.inputs[problem], region.perturb(points.flatten(0, 1), problem), admitted


def check_rules(clean: Tensor, rows: Tensor, slack: float = 0.0) -> None:
    """All of them, written out by hand, in float64; `slack` for what standardising rounds."""
    clean, rows = clean.double(), rows.double()
    low, high = DATA.double().amin(0), DATA.double().amax(0)
    wide = slack * (high - low)
    assert bool(((rows >= low - wide) & (rows <= high + wide)).all())
    income, debt, age, total, code = (rows[:, column] for column in (0, 1, 2, 6, 7))
    assert bool((debt <= 3 * income + slack * 1e4).all())
    assert bool((debt - 100 * age <= 9000 + slack * 1e4).all())
    # whole numbers of float32 at this size are 0.002 apart
    assert (
        float((total - income - debt - (clean[:, 6] - clean[:, 0] - clean[:, 1])).abs().max())
        < 0.003 + slack * 1e4
    )
    assert bool(((income - clean[:, 0]).abs() <= (0.1 + 1e-6) * clean[:, 0] + slack * 1e4).all())
    assert bool((debt - clean[:, 1] >= -500.001 - slack * 1e4).all())
    steps = age - clean[:, 2]
    assert bool(((steps - steps.round()).abs() <= slack * 100).all())
    assert bool((steps.abs() <= 3 + slack * 100).all())
    assert bool(((rows[:, 3:6] - rows[:, 3:6].round()).abs() <= slack).all())
    assert bool(((rows[:, 3:6].sum(1) - 1).abs() <= 3 * slack).all())
    assert bool(((code - code.round()).abs() <= slack * 1e6).all())


@pytest.mark.parametrize(
    ("prior", "draws"),
    [(prior, 5_000) for prior in PRIORS]
    + [pytest.param(prior, 1_000_000, marks=pytest.mark.slow) for prior in PRIORS],
)
def test_rules_never_break(prior: str, draws: int) -> None:
    # the last one's total is at its bound
    rows = torch.cat([DATA[:19], DATA[DATA[:, 6].argmax()][None]])
    region = around(make_table(prior, size=0.3 if prior == "copula" else 1.0), rows)
    before = rows.clone()
    for seed in range(0, draws, 100_000):
        clean, perturbed, admitted = perturb_at_random(region, min(draws, 100_000), seed)
        check_rules(clean, perturbed)
        assert 0.02 < float(admitted.double().mean()) < 0.98
        moved = (perturbed != clean).any(1)
        # what is moved back keeps a part of its changes
        assert float(moved.double().mean()) > 0.9
        assert set(perturbed[:, 7].tolist()) == {94105.0, 94106.0, 94107.0}
    assert torch.equal(rows, before)


def test_parameters_as_they_took_effect() -> None:
    """Steps, bounds and rules change what was asked for; what is reported makes the same row again."""
    rows = DATA[:20]
    table = make_table()
    region = around(table, rows)
    points = region.sample(200, region.streams(0)).flatten(0, 1)
    points[::2] = points[::2] * 3  # a search may ask for more than the ranges allow
    problem = torch.arange(20).repeat_interleave(200)
    perturbed, settled = region.perturb(points, problem), region.effective_points(points, problem)
    assert torch.allclose(region.perturb(settled, problem), perturbed, rtol=1e-6)
    shown = table.read_parameters(settled, (8,))
    change = (perturbed - rows[problem]).double()
    assert torch.allclose(shown["debt [change]"].double(), change[:, 1], atol=2e-3)
    assert torch.allclose(
        shown["income [%]"].double(), 100 * change[:, 0] / rows[problem, 0], atol=1e-3
    )
    assert torch.equal(shown["age [change]"], shown["age [change]"].round())
    assert torch.equal(shown["age [change]"], change[:, 2].float())
    for name, kept in (
        ("region [uniform number]", (change[:, 3:6] == 0).all(1)),
        ("code [uniform number]", change[:, 7] == 0),
    ):
        asked = table.read_parameters(points, (8,))[name]
        assert ((shown[name] == asked) | ((shown[name] == 0) & kept)).all()
    assert not torch.allclose(settled, points)
    both = Compose((make_table(rules=()),))
    assert torch.equal(
        around(both, rows).effective_points(points, problem),
        around(both.parts[0], rows).effective_points(points, problem),
    )


@pytest.mark.parametrize("prior", PRIORS)
def test_contract(prior: str) -> None:
    """The clean row at the centre; rows do not depend on each other; float64; parts; draws that keep the rules."""
    table, rows = make_table(prior), DATA[:6]
    for inputs in (rows, rows.double()):
        region = around(table, inputs, DATA.to(inputs.dtype))
        assert torch.equal(region.perturb(region.centre, torch.arange(6)), inputs)
        assert region.contains(region.centre[:, None]).all()
    region = around(table, rows)
    assert region.shape == (table.count_parameters((8,)),)
    assert set(table.name_parameters((8,))) == set(range(region.shape[0]))
    drawn = region.sample(40, region.streams(0))
    assert torch.equal(drawn, region.sample(40, region.streams(0)))
    assert region.contains(drawn).all()
    problem = torch.arange(6).repeat_interleave(40)
    perturbed = region.perturb(drawn.flatten(0, 1), problem)
    check_rules(rows[problem], perturbed)
    one = region.select([4])
    alone = torch.cat(
        [one.perturb(point[None], torch.zeros(1, dtype=torch.int64)) for point in drawn[4]]
    )
    assert torch.equal(alone, perturbed[160:200])
    assert torch.equal(one.sample(40, one.streams(0))[0], drawn[4])
    order = torch.randperm(240, generator=torch.Generator().manual_seed(0))
    assert torch.equal(region.perturb(drawn.flatten(0, 1)[order], problem[order]), perturbed[order])


@pytest.mark.parametrize("prior", PRIORS)
def test_standardised_rows_change_in_the_units_of_the_data(prior: str) -> None:
    standard, rows = (DATA - MEAN) / STD, (DATA[:20] - MEAN) / STD
    units = (tuple(MEAN.tolist()), tuple(STD.tolist()))
    table = make_table(prior, data=standard, units=units, size=1.0)
    region = around(table, rows, standard)
    assert torch.equal(region.perturb(region.centre, torch.arange(20)), rows)
    clean, perturbed, admitted = perturb_at_random(region, 5_000)
    check_rules(clean.double() * STD + MEAN, perturbed.double() * STD + MEAN, slack=1e-6)
    _, plain, also = perturb_at_random(around(make_table(prior, size=1.0), DATA[:20]), 5_000)
    # the same parameters make the same rows, up to rounding: that of float32, and rows at the edge of a step
    near = ((perturbed * STD + MEAN - plain).abs() <= 1e-3 * STD).all(1)
    assert float(near.double().mean()) > 0.99
    assert float((admitted == also).double().mean()) > 0.99


class Tempting:
    """A value that grows where the rules are broken: with debt, against income and age."""

    def __init__(self, region: TransformedRegion) -> None:
        self.region = region

    def __call__(self, points: Tensor, problem: Tensor) -> Outcome:
        rows = self.region.perturb(points, problem) / STD
        value = 2 * rows[:, 1] - rows[:, 0] - rows[:, 2] + rows[:, 5]
        return Outcome(value, torch.full_like(value, -1.0))

    def gradient(
        self, points: Tensor, problem: Tensor, feasible: Tensor, sharpness: float = 1.0
    ) -> Tensor:
        with torch.enable_grad():
            leaf = points.clone().requires_grad_(True)
            return differentiate_outcome(self(leaf, problem), leaf, feasible)


@pytest.mark.parametrize("name", searches.names())
def test_what_a_search_returns_keeps_the_rules(name: str) -> None:
    rows = DATA[:5]
    for prior in PRIORS:
        region = around(make_table(prior, size=0.3), rows)
        objective, kind = Tempting(region), searches[name]
        if kind.white_box:
            smooth = make_table(prior, changes={"income": "10%", "debt": (-500, 4000)}, size=0.3)
            if not smooth.differentiable:
                continue
            region = around(smooth, rows)
            objective = Tempting(region)
        gradient = objective.gradient if kind.white_box else None
        found = kind().run(objective, region, 120, 0, gradient)
        worst = region.perturb(found.inputs, torch.arange(5))
        check_rules(rows, worst)
        start = objective(region.centre, torch.arange(5)).value
        assert bool((found.value >= start).all())
        assert int((found.value > start).sum()) >= 4


def test_metrics_find_rows_that_keep_the_rules() -> None:
    """Through a model, whose bounds cut the ranges."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2)).eval()
    model = standfast.Model(
        network, (DATA.amin(0), DATA.amax(0)), preprocess=lambda x: (x - MEAN) / STD, device="cpu"
    )
    stepped = standfast.metrics.WorstCase(make_table(), search="random", budget=30)(
        model, "saliency", DATA[:2]
    )
    ages = stepped.inputs[:, 2] - DATA[:2, 2]
    assert stepped.frame()["age [change]"].to_list() == ages.tolist()
    table, rows = make_table("copula"), DATA[:3]
    worst = standfast.metrics.WorstCase(
        table, event="changed_explanation", similarity="pearson", budget=80
    )
    found = worst(model, "saliency", rows)
    check_rules(rows, found.inputs)
    rare = standfast.metrics.MisinterpretationProbability(
        table, event="changed_explanation", similarity="pearson", threshold=0.99, particles=10
    )
    assert set(rare(model, "saliency", rows).status) <= {"ok", "degenerate"}
    plausible = table.measure_plausibility(rows, found.inputs)
    assert plausible is not None
    shown = found.frame()["plausibility"].to_list()
    for place, status in enumerate(found.status):
        assert (
            shown[place] == (plausible[place].item() if status == "ok" else None) or status != "ok"
        )
    assert any(status == "ok" for status in found.status)
    assert (
        replace(table, data=None, prior="independent", changes={"age": 1}).measure_plausibility(
            rows, rows
        )
        is None
    )


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))]
)
def test_admitted_rows_are_those_of_plain_rejection(seed: int) -> None:
    """Numbers, percent, steps and categories, drawn with numpy and thrown away where a rule breaks."""
    rules = ("debt <= income", "debt + 50 * age >= 4900")
    data = torch.tensor([[2000.0, 2000.0, 60.0, 0.0], [1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]])
    changes: dict[str, Any] = {
        "x0": "10%",
        "x1": (-300, 100),
        "x2": {"by": 4.5, "step": 2},
        "x3": "category",
    }
    names = {"income": "x0", "debt": "x1", "age": "x2"}
    for word, name in names.items():
        rules = tuple(rule.replace(word, name) for rule in rules)
    table = TableChanges(changes, rules=rules, data=data)
    region = table.around(data[:1])
    points = region.sample(4000, Streams([seed], torch.device("cpu")))[0]
    ours = region.perturb(points, torch.zeros(4000, dtype=torch.int64)).double().numpy()
    random = np.random.default_rng(seed)
    n = 200_000
    theirs = np.stack(
        [
            2000 * (1 + random.uniform(-0.1, 0.1, n)),
            2000 + random.uniform(-300, 100, n),
            60 + 2 * random.integers(-2, 3, n),
            random.choice(2, n, p=[1 / 3, 2 / 3]),
        ],
        axis=1,
    )
    theirs = theirs[(theirs[:, 1] <= theirs[:, 0]) & (theirs[:, 1] + 50 * theirs[:, 2] >= 4900)]
    assert 0.3 < len(theirs) / n < 0.7
    for column in (0, 1):
        assert stats.ks_2samp(ours[:, column], theirs[:, column]).pvalue > 1e-3
    assert stats.ks_2samp(ours[:, 1] - ours[:, 0], theirs[:, 1] - theirs[:, 0]).pvalue > 1e-3
    for column in (2, 3):
        values, counts = np.unique(theirs[:, column], return_counts=True)
        observed = [(ours[:, column] == value).sum() for value in values]
        assert sum(observed) == 4000
        assert stats.chisquare(observed, counts / counts.sum() * 4000).pvalue > 1e-3


def draw_column(table: TableChanges, row: Tensor, column: int, count: int = 6000) -> Tensor:
    region = table.around(row[None])
    points = region.sample(count, Streams([3], torch.device("cpu")))[0]
    return region.perturb(points, torch.zeros(count, dtype=torch.int64))[:, column]


def test_categories_have_their_probabilities() -> None:
    codes = torch.tensor([3.0] * 10 + [5.0] * 30 + [9.0] * 60)
    data = torch.stack([codes, torch.zeros(100)], dim=1)

    def shares(row: float, **feature: Any) -> list[float]:
        with_data = {"data": data} if feature.pop("known", True) else {}
        drawn = draw_column(TableChanges({"x0": feature}, **with_data), torch.tensor([row, 0.0]), 0)
        return [float((drawn == code).double().mean()) for code in (3, 5, 9)]

    error = pytest.approx
    assert shares(5.0, categories="data") == error([0.1, 0.3, 0.6], abs=0.02)
    assert shares(5.0, categories="data", rate=0.4) == error([0.4 / 7, 0.6, 2.4 / 7], abs=0.02)
    assert shares(5.0, categories=[5, 9]) == error([0.0, 1 / 3, 2 / 3], abs=0.02)
    assert shares(9.0, categories=[3, 5, 9], known=False) == error([1 / 3] * 3, abs=0.02)
    assert shares(9.0, categories="data", rate=0.0) == [0.0, 0.0, 1.0]
    free = TableChanges({"town": "category"}, one_hot={"town": ("x0", "x1")})
    assert float(draw_column(free, torch.tensor([0.0, 1.0]), 0).mean()) == error(0.5, abs=0.02)


def test_one_change_for_all_columns() -> None:
    table = make_table(changes="5%", fixed=("code",))
    assert list(table.name_parameters((8,)).values()) == [
        "income [%]",
        "debt [%]",
        "age [%]",
        "region [uniform number]",
    ]
    assert not table.differentiable
    free = TableChanges(0.5)
    assert free.differentiable
    assert not free.restricted
    assert free.around(torch.zeros(2, 3), (-0.25, 1.0)).lower.tolist() == [[-0.25] * 3] * 2
    normal = TableChanges(0.5, distribution="truncated_normal").around(torch.zeros(1, 1))
    drawn = normal.sample(4000, Streams([0], torch.device("cpu"))).flatten().double()
    assert stats.kstest(drawn.numpy(), stats.truncnorm(-2, 2, 0, 0.25).cdf).pvalue > 1e-3
    assert free.describe() == "changed in every column by -0.5 to 0.5"
    assert make_table("copula", changes={"debt": "any", "region": "category"}).describe() == (
        "changed in debt to any value of the data and given other categories of region, by a move of size 0.25 in a"
        f" Gaussian copula of the data, such that {' and '.join(RULES)}"
    )


@pytest.mark.parametrize("prior", ["independent", "copula"])
def test_gradients_are_finite_differences(prior: str) -> None:
    data = DATA.double()
    table = make_table(prior, changes={"income": "10%", "debt": (-500, 4000)}, size=0.1, data=data)
    region = table.around(data[:4])
    points = region.sample(1, Streams(range(4), torch.device("cpu")))[:, 0]
    assert torch.autograd.gradcheck(
        lambda p: region.perturb(p, torch.arange(4)) / STD,
        points.requires_grad_(True),
        eps=1e-7,
        atol=1e-4,
    )


def test_in_a_composition_and_in_a_study_file(tmp_path: Any) -> None:
    np.savez(tmp_path / "train.npz", inputs=DATA.numpy())
    written = {
        "changes": {
            "income": "10%",
            "debt": [-500, 4000],
            "region": "category",
            "age": {"by": 3, "step": 1},
        },
        "columns": list(COLUMNS),
        "one_hot": {"region": ["north", "south", "east"]},
        "rules": list(RULES),
        "data": {"path": "train.npz"},
        "prior": "copula",
    }
    stored = neighbourhood_from({"table": written})
    again = neighbourhood_from(to_plain(stored))
    assert again == stored
    metric = standfast.metrics.MaxSensitivity(stored)
    read = ReferenceReader(tmp_path).read_in(stored)
    both = ReferenceReader(tmp_path).read_in(neighbourhood_from({"compose": [{"table": written}]}))
    changes = {name: CHANGES[name] for name in ("income", "debt", "region", "age")}
    assert read == make_table("copula", changes=changes)
    assert isinstance(metric.options()["neighbourhood"]["changes"]["age"], dict)
    (tmp_path / "train.npz").rename(tmp_path / "other.npz")
    for value in ({"table": written}, {"compose": [{"table": written}]}):
        stored = neighbourhood_from(value)
        with pytest.raises(
            StudyFieldError, match=r"table\.data\.path: expected a file or a folder"
        ):
            ReferenceReader(tmp_path).read_in(stored, "neighbourhood")
    assert both.parts[0] == read
    assert hash(read) == hash(make_table("copula", changes=changes))
    named = neighbourhood_from(
        {"table": {"changes": "5%", "data": {"data": "digits", "samples": 5}}}
    )
    assert to_plain(named)["table"]["data"] == {"data": "digits", "samples": 5}


def test_options_that_do_not_fit() -> None:
    def make(**options: object) -> object:
        return make_table(**{"prior": "independent", **options})

    by_income = ["two %", (1, 2), (-1, "2%"), None, {"by": 1, "stepp": 1}]
    assert_refused(make, changes=[{}, {"incom": 1}, *({"income": change} for change in by_income)])
    assert_refused(make, changes=[{"region": 3}, {"north": 3}, {"total": 3}])
    assert_refused(make, prior=["normal"], size=[1.5], fixed=[("age",)])
    assert_refused(make, rules=[("debt < 3",), ("total == debt", "total == income")])
    assert_refused(
        make, rules=[("total == debt + age", "age == debt")], one_hot=[{"region": ("north",)}]
    )
    assert_refused(
        make,
        one_hot=[{"a": ("north", "east"), "b": ("east", "code")}, {"income": ("north", "east")}],
    )
    assert_refused(make, columns=[("a", "a"), ("a",) * 8], units=[((0.0,) * 8, (0.0,) * 8), 3])
    assert_refused(make, data=[torch.zeros(3, 8, dtype=torch.int64), torch.zeros(3, 8, 1), 3])
    assert_refused(make, distribution=["truncated_normal"])
    for change, argument in (
        ({"income": {"by": 1, "step": 0}}, "step"),
        ({"code": {"categories": "data", "rate": 1}}, "rate"),
        ({"code": {"categories": [1, 2]}}, "categories"),
        ({"region": {"categories": [1]}}, "categories"),
    ):
        with pytest.raises(ArgumentError, match=f"{argument}: expected"):
            make(changes=change)
    assert_refused(partial(make, changes={"income": "any"}), data=[None])
    assert_refused(partial(make, changes={"code": "category"}), data=[None])
    assert_refused(partial(make, prior="copula"), data=[None])
    assert_refused(partial(make, changes=1), fixed=[("agee",), ("total",)])


def test_what_does_not_fit_into_a_composition() -> None:
    for parts in (
        (make_table(), TableChanges("1%")),
        (TableChanges("1%"), Compose((make_table("copula"),))),
    ):
        with pytest.raises(
            ArgumentError, match="parts: expected no part with rules or a prior from data"
        ):
            Compose(parts)
    with pytest.raises(ArgumentError, match="distribution: expected uniform, for categories"):
        Compose((make_table(rules=()),), distribution="truncated_normal")


def test_rows_that_do_not_fit() -> None:
    table = make_table()
    broken = DATA[:3].clone()
    broken[1, 1] = 4 * broken[1, 0]
    expected = (
        r"rows that keep the rule 'debt <= 3 \* income', got 1 of 3 rows that break it; the"
        r" first is row 1: income"
    )
    with pytest.raises(ArgumentError, match=expected):
        table.around(broken)
    moved = DATA[:3].clone()
    moved[2, 6] += 1
    with pytest.raises(ArgumentError, match="rows that keep the rule 'total == income . debt'"):
        table.around(moved)
    unknown = DATA[:3].clone()
    unknown[0, 7] = 94104
    with pytest.raises(
        ArgumentError, match=r"inputs: expected rows with a known category of 'code', got row 0"
    ):
        table.around(unknown)
    with pytest.raises(ArgumentError, match="inputs: expected rows of 8 columns, got rows of 3"):
        table.around(torch.zeros(2, 3))
    with pytest.raises(
        ArgumentError, match=r"inputs: expected rows of a table .N, F., got inputs of shape"
    ):
        TableChanges(1).around(torch.zeros(2, 3, 4))
    with pytest.raises(
        ArgumentError, match="bounds: expected all categories of 'region' within the bounds"
    ):
        table.around(
            DATA[:1],
            (torch.minimum(DATA.amin(0), DATA[0]), torch.where(torch.arange(8) == 5, DATA[0], 1e6)),
        )


def test_features() -> None:
    assert Feature("2%").percent
    assert TableChanges("2%", columns=("by", "step")).features == {"every column": Feature("2%")}
    # which are the names of the columns here
    named = TableChanges({"by": 3, "step": 1}, columns=("by", "step"))
    assert named.features == {"by": Feature(3), "step": Feature(1)}
    assert Feature(("-5 %", "+2%")).limits == (-5.0, 2.0)
    assert Feature(3, step=1).describe("age") == "age by -3 to 3 in steps of 1"
    with pytest.raises(ArgumentError, match="either by, for a number, or categories"):
        Feature()
    data = Background(DATA)
    assert make_table(data=data) == make_table()
