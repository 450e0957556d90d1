"""The host hardly waits for a card: at most once a round, and never more for more samples."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from standfast import tensors
from standfast.model import Model, count_padding
from standfast.similarity import get as get_similarity
from standfast.testing import small_net

BENCHMARK = runpy.run_path(
    str(Path(__file__).parents[1] / "benchmarks" / "on_a_card" / "synchronisations.py")
)
count_waits = BENCHMARK["count_waits"]
RUNS = {
    f"{kind}-{name}": (kind, name, *runs) for kind, name, *runs in BENCHMARK["list_runs"]((24, 48))
}


#: explainers whose equations are solved by the host: the coordinate descent of a lasso has thousands of small steps
SOLVED_ON_THE_HOST = {"explainer-context_cite"}


@pytest.mark.parametrize("which", RUNS)
def test_the_host_waits_at_most_once_a_round_and_not_for_further_samples(which: str) -> None:
    row = BENCHMARK["measure"](*RUNS[which])
    if which in SOLVED_ON_THE_HOST:
        assert row.per_round <= 2.0, row.places  # once more for each chunk of inputs
    else:
        assert row.per_round <= 1.0, row.places
        assert row.per_sample <= 0.0, row.places
    assert row.start <= 80, row.places
    mixed = [place for place in row.places if place.startswith("mixed")]
    assert mixed == [] or which == "explainer-deep_shap"  # vmap's own tensors cannot be followed


OWN_PATHS = [
    "search-block",
    "search-grid",
    "metric-data_sensitivity_consistency",
    "metric-misinterpretation_probability",
]


@pytest.mark.parametrize("which", OWN_PATHS)
def test_what_a_card_computes_in_another_way_is_the_same(which: str) -> None:
    run, x = RUNS[which][2], torch.rand(3, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    model = Model(small_net((1, 8, 8)), (0.0, 1.0), device="cpu", batch_size=64)
    usual = run(model, x).value
    with count_waits(model):
        other = run(model, x).value
    # sums have another order there
    torch.testing.assert_close(usual, other, rtol=1e-4, atol=1e-5, equal_nan=True)


def make_model() -> Model:
    return Model(small_net((12,)), (0.0, 1.0), device="cpu", batch_size=64)


def count(run: Callable[[Tensor], object]) -> dict[str, int]:
    """The waits of what is done with two rows on the card, by kind."""
    model, kinds = make_model(), dict[str, int]()
    x = torch.rand(2, 12)
    with count_waits(model) as waits:
        run(x.to(model.device, non_blocking=True))
    for (kind, _), number in waits.seen.items():
        kinds[kind] = kinds.get(kind, 0) + number
    return kinds


@pytest.mark.parametrize(
    ("run", "kinds"),
    [
        (lambda x: x.sum().item(), {"value": 1}),
        (lambda x: x.tolist(), {"value": 1}),
        (lambda x: bool((x > 2).any()), {"value": 1}),
        (lambda x: float(x[0, 0]), {"value": 1}),
        (lambda x: torch.equal(x, x), {"value": 1}),
        (lambda x: (x > 0.5).nonzero(), {"size": 1}),
        (lambda x: x[x > 0.5], {"size": 1}),
        (lambda x: torch.unique(x), {"size": 1}),
        (lambda x: x.repeat_interleave((x[:, 0] > 0).long(), dim=0), {"size": 1}),
        (lambda x: x.cpu(), {"to host": 1}),
        (lambda x: x.to("cpu").tolist(), {"to host": 1}),
        (lambda x: torch.tensor([1, 2], device=x.device), {"to card": 1}),
        (lambda x: torch.ones(3).to(x), {"to card": 1}),
        (lambda x: x[[0, 1]], {"to card": 1}),
        (lambda x: x + torch.ones(12), {"mixed": 1}),
        (lambda x: x + torch.tensor(1.0), {}),
        (lambda x: torch.ones(3).tolist(), {}),
        (lambda x: x.masked_fill(x > 0.5, 0.0).sum(1).sort(), {}),
        (lambda x: tensors.send([1, 2], x.device) + x[:, 0], {}),
        (lambda x: torch.arange(12, device=x.device) * x, {}),
        (lambda x: tensors.holds_everywhere(x >= 0), {}),
    ],
)
def test_waits_are_told_by_their_kind(
    run: Callable[[Tensor], object], kinds: dict[str, int]
) -> None:
    assert count(run) == kinds


def test_what_the_module_does_is_left_out_and_nothing_stays_behind() -> None:
    class Reading(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return small_net((12,))(x) * float(x.sum() > 0)

    found = []
    for module in (small_net((12,)), Reading()):
        model = Model(module, (0.0, 1.0), device="cpu", batch_size=64)
        with count_waits(model) as waits:
            model.logits(torch.rand(5, 12))
        assert waits.rounds == 1
        assert waits.rows == 5
        assert model.device == torch.device("cpu")
        assert tensors.is_on_host(torch.rand(2))
        found.append(waits.seen)
    assert found[0] == found[1]
    own = ("model/", "tasks/suspicions.py:")  # what the first forward pass checks, not the module
    assert all(place.startswith(own) for _, place in found[0])


def test_padding_never_exceeds_what_fits() -> None:
    card = torch.device("cuda")
    for most in range(1, 300):
        for count in range(1, most + 1):
            assert count <= count + count_padding(count, most, card) <= most
            if most >= 16:
                assert count + count_padding(count, most, card) >= 16


def test_parts_that_are_not_compared_bring_no_nan_into_a_gradient(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A card computes both ways of a comparison and keeps one."""
    monkeypatch.setattr(tensors, "is_on_host", lambda place: False)
    monkeypatch.setattr("standfast.similarity.base.is_on_host", lambda place: False)
    generator = torch.Generator().manual_seed(0)
    a, b = torch.rand(2, 2, 1, 4, 4, generator=generator)
    seen = torch.ones(2, 1, 4, 4, dtype=torch.bool)
    seen[1, :, :2] = False
    a[1, 0, 0, 0] = torch.inf  # where it is not seen
    a.requires_grad_(True)
    value = get_similarity("pearson").compare_masked(a, b, seen)
    (gradient,) = torch.autograd.grad(value[0], a)
    assert torch.isfinite(gradient).all()
