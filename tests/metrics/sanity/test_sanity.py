"""Sanity checks: measurements against slow formulas and closed forms, and a small army of bad explainers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from scipy.special import stdtrit
from torch import Tensor, nn

import standfast
from standfast.explainers import Explainer, get
from standfast.metrics.sanity import SanityChecks, SanityResult, scrambling
from standfast.metrics.sanity.pairs import choose_partners, compare_pairs, find_pseudo_values
from standfast.metrics.sanity.removal import ORDERS, REMOVED, Removal
from standfast.metrics.sanity.scrambling import GROUP_SIZE, GROUPS, SCRAMBLED, divide_into_groups
from standfast.results.sanity import decide_checks
from standfast.tasks import Classification
from standfast.tensors import Streams
from standfast.testing import small_net
from standfast.training.classifier import initialize, train_classifier


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def digits() -> standfast.data.Dataset:
    return standfast.data.bundled("digits")[:24]


@pytest.fixture(scope="module")
def linear() -> standfast.Model:
    module = nn.Linear(8, 3)
    with torch.no_grad():
        module.weight.copy_(torch.randn(3, 8, generator=seeded(1)))
        module.bias.zero_()
    return standfast.Model(module, bounds=(-torch.inf, torch.inf), device="cpu")


def excess_of(alike: Tensor, nearby: Tensor, classes: Tensor, same: bool) -> float:
    """The mean similarity at nearby inputs less that of all pairs of different classes, or of the same, by loops."""
    count = len(nearby)
    pairs = [
        alike[i, j]
        for i in range(count)
        for j in range(i + 1, count)
        if (classes[i] == classes[j]) == same
    ]
    return float(nearby.mean() - torch.stack(pairs).mean())


@pytest.mark.parametrize("same", [False, True])
def test_pseudo_values_of_the_excess_are_those_that_leave_one_sample_out(same: bool) -> None:
    classes = torch.tensor([0, 1, 2, 0, 1, 2, 2])
    maps = torch.randn(7, 1, 4, 5, generator=seeded(2))
    nearby = torch.rand(7, generator=seeded(3), dtype=torch.float64)
    alike = torch.from_numpy(np.corrcoef(maps.flatten(1).numpy()))
    elsewhere, pseudo = compare_pairs(maps, classes, nearby, same=same)
    whole = excess_of(alike, nearby, classes, same)
    for row in range(7):
        kept = [other for other in range(7) if other != row]
        without = excess_of(alike[kept][:, kept], nearby[kept], classes[kept], same)
        assert pseudo[row].item() == pytest.approx(7 * whole - 6 * without, abs=1e-5)
        expected = np.mean(
            [alike[row, other] for other in kept if (classes[other] == classes[row]) == same]
        )
        assert elsewhere[row].item() == pytest.approx(expected, abs=1e-5)


def test_partners_are_the_next_samples_of_another_class() -> None:
    assert choose_partners(torch.tensor([0, 0, 1, 0])).tolist() == [2, 2, 3, 2]
    assert choose_partners(torch.tensor([1, 1, 1])).tolist() == [1, 2, 0]


def draw_alike(count: int, generator: torch.Generator) -> Tensor:
    """Correlations `(count, count)` of maps with a common part, which is stronger in some samples than in others."""
    common = torch.randn(1, 50, generator=seeded(999))
    strength = 0.3 + 0.5 * torch.rand(count, 1, generator=generator)
    maps = strength * common + torch.randn(count, 50, generator=generator)
    return torch.corrcoef(maps).double()


def test_the_interval_of_the_excess_covers_the_truth() -> None:
    many = draw_alike(3000, seeded(12345))
    truth, count = 0.9 - float((many.sum() - 3000) / (3000 * 2999)), 24
    nearby, (first, second), missed = (
        torch.full((count,), 0.9).double(),
        torch.triu_indices(count, count, 1),
        0,
    )
    for trial in range(1000):
        alike = draw_alike(count, seeded(trial))
        _, pseudo = find_pseudo_values(alike[first, second], first, second, nearby)
        half = stdtrit(count - 1, 0.995) * float(pseudo.std()) / count**0.5
        missed += abs(float(pseudo.mean()) - truth) > half
    # 10 are expected of intervals of 99%; more than 23 have a probability of 0.0001
    assert missed <= 23


def test_removal_counts_the_removals_that_lower_the_margin_less(lenet: standfast.Model) -> None:
    """Again by loops over samples, shares and donors, with the same random orders."""
    x, seed = standfast.data.bundled("digits")[:5].inputs, 7
    maps, scrambled = torch.randn(2, 5, 1, 28, 28, generator=seeded(4))
    with torch.no_grad():
        classes = lenet.module(x).argmax(1)
    with lenet.session():
        shares, gains, copies = Removal(lenet, x, classes).compare([maps, scrambled], seed)
    assert copies == (2 + ORDERS) * len(REMOVED) * 3
    shuffles = Streams.for_rows(x, seed).uniform((1 + ORDERS, 784), torch.float64).argsort(dim=2)

    def margin_without(row: int, order: Tensor, share: float) -> float:
        gone, margins = order[: round(share * 784)], []
        for shift in (1, 2, 3):  # 1 + donor * 4 // 3
            copy = x[row].flatten().clone()
            copy[gone] = x[(row + shift) % 5].flatten()[gone]
            with torch.no_grad():
                logits = lenet.module(copy.reshape(1, 1, 28, 28))
            margins.append(float(Classification().margin(logits, classes[row : row + 1])))
        return float(np.mean(margins))

    for row in range(5):
        own = maps[row].flatten().argsort(descending=True)
        others = [*shuffles[row, 1:], scrambled[row].flatten().argsort(descending=True)]
        for place, order in enumerate(others):
            margins = [
                (margin_without(row, own, share), margin_without(row, order, share))
                for share in REMOVED
            ]
            assert shares[place, row].item() == pytest.approx(
                np.mean([first > second for first, second in margins])
            )
            first, second = margins[0]  # of the smallest share
            assert gains[place, row].item() == pytest.approx(first - second, abs=1e-5)


def test_each_group_of_samples_has_scrambled_models_of_its_own(
    table: tuple[standfast.Model, Tensor],
) -> None:
    model, x = table
    explainer = get("input_x_gradient")
    found = SanityChecks()(model, explainer, x, generator=seeded())
    groups = 24 // GROUP_SIZE
    assert found.group.tolist() == [row % groups for row in range(24)]
    own, classes = explainer(model, x), model.predict(x)
    for group in range(groups):
        rows = range(group, 24, groups)
        sizes = []
        for place in range(SCRAMBLED):
            shuffled = standfast.explainers.RandomisedExplainer(
                explainer, seed=group * SCRAMBLED + place
            )
            maps = shuffled(model, x, classes)
            sizes.append(
                [abs(np.corrcoef(own[row].numpy(), maps[row].numpy())[0, 1]) for row in rows]
            )
        torch.testing.assert_close(
            found.scrambled[list(rows)], torch.tensor(np.mean(sizes, 0)), atol=1e-5, rtol=1e-5
        )


def test_few_samples_and_those_of_large_models_are_few_groups() -> None:
    def count_groups(samples: int, weights: int = 1000) -> int:
        return len(set(divide_into_groups(torch.zeros(samples, 3), weights).tolist()))

    assert divide_into_groups(torch.zeros(21, 3), weights=0).tolist() == [0, 1] * 10 + [0]
    assert [count_groups(samples) for samples in (1, 19, 20, 24, 40, 100, 200)] == [
        1,
        1,
        2,
        2,
        4,
        GROUPS,
        GROUPS,
    ]
    sizes = [500_000, 10**6, 10**7, 10**9]
    assert [count_groups(100, weights) for weights in sizes] == [10, 5, 1, 1]


def test_a_large_model_is_scrambled_three_times(
    table: tuple[standfast.Model, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x = table
    monkeypatch.setattr(scrambling, "PLACES", 1)
    found = SanityChecks()(model, "input_x_gradient", x, generator=seeded())
    assert found.group.tolist() == [0.0] * 24
    assert found.gains.isfinite().all()
    assert set(found.model_evaluations.tolist()) == {SanityChecks(flat=True).cost().evaluations}


def test_a_model_that_cannot_be_scrambled_has_no_gains(
    table: tuple[standfast.Model, Tensor],
) -> None:
    factor = nn.Linear(1, 1, bias=False)  # one weight has no other order
    module = nn.Sequential(nn.Unflatten(1, (8, 1)), factor, nn.Flatten(), nn.Softsign())
    model = standfast.Model(module, (-torch.inf, torch.inf), device="cpu")
    found = SanityChecks()(model, "input_x_gradient", table[1], generator=seeded())
    assert found.gains.isnan().all()
    assert found.group.isnan().all()
    assert decide_checks(found.frame()).find("learned").state == "untested"


def test_a_model_that_refuses_values_between_samples_is_untested_and_no_failure() -> None:
    def predict(rows: np.ndarray) -> np.ndarray:
        if (rows != rows.round()).any():
            raise ValueError("no such code")
        return np.stack([rows.sum(1), 3 - rows.sum(1)], 1)

    model = standfast.Model.from_callable(predict, bounds=(0.0, 3.0), output="logit")
    x = torch.randint(0, 4, (12, 5), generator=seeded(3)).float()
    found = SanityChecks()(
        model, lambda module, inputs, targets: inputs * 2 - 3, x, generator=seeded()
    )
    assert found.value.isnan().all()  # nothing lies nearby
    assert found.removal.isfinite().any()  # rows mixed of two samples have codes
    assert found.status.count("ok") >= 10


def test_a_map_that_is_the_same_everywhere_has_no_excess_and_a_copy_does_not_see_the_model(
    lenet: standfast.Model, digits: standfast.data.Dataset
) -> None:
    centre = SanityChecks()(lenet, "centre", digits.inputs, generator=seeded())
    copy = SanityChecks()(lenet, "input_copy", digits.inputs, generator=seeded())
    assert centre.value.abs().max() < 1e-5
    assert not copy.negative.any()  # although it has zeros
    assert centre.within[centre.within.isfinite()].abs().max() < 1e-5
    for found in (centre, copy):
        torch.testing.assert_close(found.scrambled, torch.ones(24, dtype=torch.float64))
        assert found.learned.isnan().all()  # the same sets are no comparison
        torch.testing.assert_close(found.other_class, torch.ones(24, dtype=torch.float64))


def test_a_linear_model_is_seen_and_its_gradient_is_exempt_from_the_question_of_the_input(
    linear: standfast.Model,
) -> None:
    x = torch.randn(24, 8, generator=seeded(5))
    found = SanityChecks()(linear, "saliency:absolute=false", x, generator=seeded())
    assert bool(found.linear.all())
    torch.testing.assert_close(found.nearby, torch.ones(24, dtype=torch.float64))
    assert decide_checks(found.frame()).find("input").state in ("exempt", "passed")
    curved = nn.Sequential(initialize(nn.Linear(8, 3), seeded(11)), nn.Tanh())
    bent = standfast.Model(curved, (-torch.inf, torch.inf), device="cpu")
    assert not SanityChecks()(bent, "saliency", x, generator=seeded()).linear.any()


@dataclass(frozen=True)
class Changed(Explainer):
    """Gradient times input for the class `shift` further on, times `sign`, with features moved along by `rolled`."""

    shift: int = 0
    sign: float = 1.0
    rolled: int = 0
    name: ClassVar[str] = "changed"
    differentiable: ClassVar[bool] = False

    def attribute(
        self,
        model: standfast.Model,
        x: Tensor,
        targets: Tensor | None,
        *,
        create_graph: bool = False,
    ) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            logits = model.forward(x.clone())
        classes = logits.argmax(1) if targets is None else targets
        maps, _ = get("input_x_gradient").attribute(
            model, x, (classes + self.shift) % logits.shape[1]
        )
        return self.sign * maps.flatten(1).roll(self.rolled, 1).view_as(maps), logits


@pytest.fixture(scope="module")
def table() -> tuple[standfast.Model, Tensor]:
    """A network that has learned the sign of a sum of products, and 24 rows."""
    x = torch.randn(1500, 8, generator=seeded(6))
    score = x[:, 0] * x[:, 1] + 2 * x[:, 2] - 1.5 * x[:, 3] + torch.sin(2 * x[:, 4])
    module = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 2))
    initialize(module, seeded(7))
    train_classifier(
        module, x, (score > 0).long(), epochs=12, learning_rate=0.02, generator=seeded(8)
    )
    return standfast.Model(module, (-torch.inf, torch.inf), device="cpu"), x[:24]


BAD = ["centre", "input_copy", "random", "randomised:input_x_gradient"]
BAD += [Changed(shift=1), Changed(sign=-1.0), Changed(rolled=3)]
GOOD = ["input_x_gradient", "integrated_gradients:steps=8", "deeplift"]


@pytest.mark.parametrize("kind", ["images", "table"])
def test_bad_explainers_do_not_pass_and_good_ones_do_not_fail(
    kind: str,
    lenet: standfast.Model,
    digits: standfast.data.Dataset,
    table: tuple[standfast.Model, Tensor],
) -> None:
    model, x = (lenet, digits.inputs[:30]) if kind == "images" else table

    def decide(explainer: str | Explainer) -> str:
        return decide_checks(SanityChecks()(model, explainer, x, generator=seeded()).frame()).state

    assert "passed" not in [decide(explainer) for explainer in BAD]
    assert "failed" not in [decide(explainer) for explainer in GOOD]
    assert decide("input_x_gradient") == "passed" if kind == "images" else True


def test_measurements_do_not_depend_on_the_batch_size(
    table: tuple[standfast.Model, Tensor],
) -> None:
    model, x = table
    found: list[SanityResult] = []
    for size in (8, 64):
        sized = standfast.Model(
            model.module, (-torch.inf, torch.inf), device="cpu", batch_size=size
        )
        found.append(SanityChecks()(sized, "integrated_gradients:steps=8", x, generator=seeded()))
    assert found[0].frame().equals(found[1].frame())


def test_pairs_and_classes_move_with_the_order_of_the_samples(
    table: tuple[standfast.Model, Tensor],
) -> None:
    model, x = table
    order = torch.randperm(24, generator=seeded(9))
    own = SanityChecks()(model, "input_x_gradient", x, generator=seeded())
    moved = SanityChecks()(model, "input_x_gradient", x[order], generator=seeded())
    # the others depend on who stands next to whom, or in which group
    for name in (
        "elsewhere",
        "other_class",
    ):
        torch.testing.assert_close(getattr(moved, name), getattr(own, name)[order])


def test_labels_give_the_accuracy_and_a_function_reads_permuted_columns(
    linear: standfast.Model,
) -> None:
    x = torch.randn(24, 8, generator=seeded(10))
    right = linear.predict(x)
    labels = right.clone()
    labels[:6] = (labels[:6] + 1) % 3
    found = SanityChecks(labels=labels)(linear, "input_x_gradient", x, generator=seeded())
    assert found.correct.tolist() == [0.0] * 6 + [1.0] * 18
    weight = linear.module.weight.detach().numpy()
    box = standfast.Model.from_callable(
        lambda rows: rows @ weight.T, bounds=(-torch.inf, torch.inf), output="logit"
    )
    occluded = SanityChecks()(box, "occlusion:output=logit", x, generator=seeded())
    copied = SanityChecks()(box, "input_copy", x, generator=seeded())
    # with its columns permuted, another column has each weight
    assert occluded.scrambled.mean() < 0.7
    torch.testing.assert_close(copied.scrambled, torch.ones(24, dtype=torch.float64))


@pytest.mark.parametrize("several", [True, False])
def test_maps_of_other_inputs_stand_under_one_name_each(
    linear: standfast.Model, several: bool
) -> None:
    x = torch.randn(40, 8, generator=seeded(11))
    classes = linear.predict(x)
    x, classes = (
        (x[:9], classes[:9])
        if several
        else (x[classes == classes[0]][:5], classes[classes == classes[0]][:5])
    )
    distance = standfast.metrics.get(
        "max_sensitivity", neighbourhood=standfast.LinfBall(0.1), normalise=False
    )
    # the first compares no maps
    references = {
        "none": standfast.metrics.get("aopc"),
        "far": distance,
    }
    found = SanityChecks(references=references)(linear, "input_x_gradient", x, generator=seeded())
    assert torch.equal(found.within.nan_to_num(9), found.value.nan_to_num(9)) != several
    maps = standfast.explainers.get("input_x_gradient")(linear, x).flatten(1)
    apart, count = torch.cdist(maps, maps), len(x)
    same = classes[:, None] == classes
    pairs = {"unrelated far": ~same, "same class far": same & ~torch.eye(count, dtype=torch.bool)}
    if not several:
        pairs = {"unrelated far": ~torch.eye(count, dtype=torch.bool)}
    assert {
        name for name in found.references if not name.startswith(("identical", "scrambled"))
    } == set(pairs)
    for name, chosen in pairs.items():
        expected = torch.stack([apart[row, chosen[row]].mean() for row in range(count)]).double()
        torch.testing.assert_close(
            found.references[name], expected, atol=1e-5, rtol=1e-5, equal_nan=True
        )


@pytest.mark.parametrize("shape", [(1, 8, 8), (12,)])
def test_the_cost_is_what_a_sample_takes_and_what_the_page_says(shape: tuple[int, ...]) -> None:
    model = standfast.Model(small_net(shape), (0.0, 1.0), device="cpu", batch_size=64)
    inputs = torch.rand(14, *shape, generator=seeded(4))
    checks = SanityChecks().bind(inputs=inputs)
    result = checks(model, "saliency", inputs)
    assert set(result.model_evaluations.tolist()) == {checks.cost().evaluations}
    page = (Path(__file__).parents[3] / "docs" / "sanity.md").read_text()
    assert (
        str(checks.cost().predictions)
        in page.partition("## Cost")[2].partition("\n\n")[2].partition(". ")[0]
    )
