"""`segmentation`: with the segments of which input the perturbed copies are explained."""

from __future__ import annotations

import pytest
import torch

import holdfast
from holdfast.errors import ArgumentError
from holdfast.metrics.probe import Probe
from holdfast.segments import segment

SIZE = {"lime": {"samples": 40}, "kernel_shap": {"samples": 40}, "shapley_sampling": {"permutations": 2}}


def perturb(inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Copies of the inputs in mixed order, and the number of each copy's origin."""
    origin = torch.tensor([2, 0, 1, 1, 2, 0, 0])
    noise = torch.rand(len(origin), *inputs.shape[1:], generator=torch.Generator().manual_seed(0))
    return (inputs[origin] + 0.3 * (2 * noise - 1)).clamp(0, 1), origin


@pytest.mark.parametrize("name", ["lime", "kernel_shap", "shapley_sampling"])
@pytest.mark.parametrize("explain", ["predicted", "origin"])
@pytest.mark.parametrize("rows", [7, 100_000])
def test_fixed_segments_are_those_of_the_origin(
    name: str, explain: str, rows: int, digits: holdfast.data.Dataset, lenet: holdfast.Classifier
) -> None:
    inputs = digits.inputs[:3]
    classifier = holdfast.Classifier(lenet.module, bounds=(0.0, 1.0), device="cpu", batch_size=rows)
    maps = {}
    for segmentation in ("each", "fixed"):
        explainer = holdfast.explainers.get(name, **SIZE[name], segments="quickshift", segmentation=segmentation)
        with classifier.session():
            probe = Probe(classifier, explainer, inputs, None, holdfast.similarity.get("pearson"), explain=explain)
            x, origin = perturb(inputs)
            maps[segmentation] = probe.query(x, origin, keep_maps=True).maps
            targets = probe.targets
    given = segment(inputs, "quickshift").labels
    changed = 0
    for row, whose in enumerate(origin.tolist()):
        target = int(targets[whose]) if explain == "origin" else None
        for segmentation, segments in (("fixed", given[whose]), ("each", "quickshift")):
            own = holdfast.explainers.get(name, **SIZE[name], segments=segments)
            expected = own(classifier, x[row : row + 1], target)[0]
            assert torch.allclose(maps[segmentation][row], expected, atol=1e-6), (segmentation, row)
        changed += not torch.equal(segment(x[row : row + 1], "quickshift").labels[0], given[whose])
    assert changed == len(origin), "noise this strong should change the segments of every copy"


def test_both_explain_the_input_itself_in_the_same_way(
    digits: holdfast.data.Dataset, lenet: holdfast.Classifier
) -> None:
    fixed, each = (holdfast.explainers.LIME(samples=40, segmentation=how) for how in ("fixed", "each"))
    assert torch.equal(fixed(lenet, digits.inputs[:2]), each(lenet, digits.inputs[:2]))


def test_a_fixed_segmentation_moves_less(digits: holdfast.data.Dataset, lenet: holdfast.Classifier) -> None:
    metric = holdfast.metrics.WorstCase(holdfast.LinfBall(0.1), budget=60, search="random")
    worst = {
        how: metric(lenet, f"lime:samples=50,segments=quickshift,segmentation={how}", digits.inputs[:4]).similarity
        for how in ("fixed", "each")
    }
    assert (worst["fixed"] > worst["each"] + 0.1).all()


def test_other_words_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"segmentation: expected one of each, fixed, got 'origin'"):
        holdfast.explainers.get("lime", segmentation="origin")
