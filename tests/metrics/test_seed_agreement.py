"""Seed agreement: what is the same, what differs, against slow loops; and the matrix of a study."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn

import standfast
from standfast.errors import ArgumentError
from standfast.explainers import Explainer
from standfast.metrics import SeedAgreement
from standfast.metrics.reasons.draws import reseed
from standfast.model import Model

ROWS = torch.linspace(-1, 1, 80).reshape(20, 4).double()


@dataclass(frozen=True)
class NoisyGradient(Explainer):
    """The weights of a linear model, and noise of a known size, which depends on the seed and the row."""

    noise: float = 0.1
    seed: int = 0
    name: ClassVar[str] = "noisy"

    def attribute(
        self, model: Model, x: Tensor, targets: Tensor | None, *, create_graph: bool = False
    ) -> Any:
        rows = []
        for row in x:
            key = int(1000 * float(row.sum())) % 2**31
            rows.append(
                torch.randn(4, generator=torch.Generator().manual_seed(key + 7919 * self.seed)).to(
                    x
                )
            )
        weights = torch.tensor([4.0, -3.0, 2.0, 1.0]).to(x)
        return weights + self.noise * torch.stack(rows), model.forward(x)


def make_model() -> Model:
    torch.manual_seed(0)
    return Model(nn.Linear(4, 2).double(), bounds=(-2.0, 2.0), device="cpu", reference=ROWS)


def test_a_deterministic_explainer_agrees_exactly() -> None:
    found = SeedAgreement(seeds=3)(make_model(), "saliency", ROWS)
    assert found.value.tolist() == pytest.approx([1.0] * 20)
    assert found.low is not None
    assert found.low.tolist() == found.value.tolist()
    assert found.chance.tolist() == [0.75] * 20


@pytest.mark.parametrize("noise", [0.3, 3.0])
def test_numbers_are_those_of_slow_loops(noise: float) -> None:
    model, explainer = make_model(), NoisyGradient(noise)
    found = SeedAgreement(seeds=5, top=2)(model, explainer, ROWS[:6])
    for row in range(6):
        maps = [reseed(explainer, seed)(model, ROWS[row : row + 1])[0].numpy() for seed in range(5)]
        pairs = list(combinations(maps, 2))
        assert found.value[row].item() == pytest.approx(
            np.mean([stats.spearmanr(a, b).statistic for a, b in pairs])
        )
        tau = np.mean([stats.kendalltau(a, b).statistic for a, b in pairs])
        assert found.kendall[row].item() == pytest.approx(tau)
        shared = [
            len(set(np.argsort(-abs(a))[:2]) & set(np.argsort(-abs(b))[:2])) / 2 for a, b in pairs
        ]
        assert found.overlap[row].item() == pytest.approx(np.mean(shared))
        assert found.seed_maps is not None
        np.testing.assert_allclose(found.seed_maps[row], np.stack(maps), rtol=1e-6)
    assert found.low is not None
    assert found.high is not None
    assert bool(((found.low <= found.value) & (found.value <= found.high)).all())


def test_equal_ranks_of_other_maps_are_no_certainty() -> None:
    found = SeedAgreement(seeds=5)(make_model(), NoisyGradient(1e-6), ROWS[:2])
    assert found.value.tolist() == pytest.approx([1.0, 1.0])
    assert found.low is not None
    assert found.low.tolist() == pytest.approx([0.05 ** (2 / 5)] * 2)


def test_the_background_is_drawn_again() -> None:
    """An explainer without a seed, whose references are 32 of many rows."""
    many = torch.randn(200, 4, generator=torch.Generator().manual_seed(0)).clamp(-2, 2).double()
    model = Model(make_model().module, bounds=(-2.0, 2.0), device="cpu", reference=many)
    few, explainer = model.with_reference(many), standfast.explainers.get("deep_shap")
    drawn = [few.with_background(seed).reference for seed in (0, 1)]
    assert drawn[0] is not None
    assert drawn[1] is not None
    assert drawn[0].rows.shape == drawn[1].rows.shape == (32, 4)
    assert not torch.equal(drawn[0].rows, drawn[1].rows)
    maps = explainer(few.with_background(1), many[:1])
    found = SeedAgreement(seeds=3, similarity="pearson")(model, explainer, many[:1])
    assert found.seed_maps is not None
    torch.testing.assert_close(found.seed_maps[:, 1].double(), maps, atol=1e-6, rtol=1e-5)
    assert found.value.item() < 1


def evaluate(models: Any, explainers: Any) -> standfast.Results:
    metric = SeedAgreement(seeds=4, top=2)
    return standfast.evaluate(
        models, explainers, ROWS, [metric], sanity=False, controls=False, progress=False
    )


def test_the_matrix_has_explainers_and_models() -> None:
    torch.manual_seed(1)
    models = {
        f"net#{seed}": Model(nn.Linear(4, 2).double(), (-2.0, 2.0), device="cpu")
        for seed in range(2)
    }
    found = evaluate(
        models,
        {"noisy": NoisyGradient(0.01), "wild": NoisyGradient(50.0, 100), "saliency": "saliency"},
    )
    agreement = found.agreement()
    assert len(agreement.sources) == 6
    names = list(agreement.sources)
    noisy = [names.index((model, "noisy")) for model in models]
    assert abs(noisy[0] - noisy[1]) == 1  # beside each other
    matrix = agreement.matrix()
    assert matrix[noisy[0], noisy[1]] == 1.0
    assert matrix[names.index(("net#0", "saliency")), names.index(("net#0", "saliency"))] == 1.0
    wild = names.index(("net#0", "wild"))
    pair = agreement.find(wild, noisy[0])
    assert abs(pair.median) < 0.4
    assert pair.samples == 20
    assert pair.low is not None
    assert pair.low <= pair.median
    frame = agreement.frame()
    assert frame.height == 21 * 3
    assert set(frame["measure"]) == {"kendall", "overlap", "signs"}
    table = {row["explainer"]: row for row in agreement.variance.iter_rows(named=True)}
    assert table["saliency"]["within model"] == 0
    assert table["saliency"]["between models"] > 0.1
    assert table["wild"]["trained"] == 2
    # 50 ^ 2 in each of 4 features, against 30 of the weights: nearly all of a map's length
    assert table["wild"]["within model"] == pytest.approx(1, abs=0.1)


def test_agreement_needs_stored_maps() -> None:
    found = standfast.evaluate(
        make_model(),
        "saliency",
        ROWS[:2],
        [standfast.metrics.AOPC(steps=2, samples=2)],
        sanity=False,
        progress=False,
    )
    with pytest.raises(ArgumentError, match="seed_agreement"):
        found.agreement()
    with pytest.raises(ArgumentError, match="data"):
        evaluate(make_model(), "saliency").agreement("other")


def test_the_seed_of_an_adapter_is_none_if_its_package_draws_nothing() -> None:
    """Every adapter of another package has a seed; agreement is no merit where nothing is drawn."""

    def explain(module: Any, inputs: Any, targets: Any, noise: float = 0.0) -> Any:
        return np.array([[4.0, 3.0, 2.0, 1.0 + (noise and noise * np.random.rand())]] * len(inputs))  # noqa: NPY002

    fixed, noisy = (standfast.explainers.from_quantus(explain, noise=noise) for noise in (0.0, 1.0))
    model = Model(nn.Linear(4, 2).double(), (-2.0, 2.0), device="cpu")
    assert not SeedAgreement(seeds=3)(model, fixed, ROWS).varied.any()
    assert SeedAgreement(seeds=3)(model, noisy, ROWS).varied.all()
