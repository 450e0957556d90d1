"""Attacks on attributions in the parameters of a transformation."""

from __future__ import annotations

import pytest
import torch

import standfast
from standfast.metrics import AttributionAttack
from standfast.neighbourhoods import Brightness, Compose, Rotation


def test_a_guided_attack_searches_the_parameters(
    lenet: standfast.Model, digits: standfast.data.Dataset
) -> None:
    both = Compose([Rotation(10), Brightness(0.2)])
    attack = AttributionAttack(both, steps=3, restarts=2)
    result = attack(lenet, "saliency", digits[:2].inputs)
    assert (result.model_evaluations <= attack.cost().evaluations).all()
    angle, shift = result.parameters.values()
    assert (angle.abs() <= 10).all()
    assert (shift.abs() <= 0.2).all()
    region = both.around(digits[:2].inputs, (0.0, 1.0))
    again = region.perturb(torch.stack([angle, shift], dim=1), torch.arange(2))
    assert torch.allclose(again, result.inputs, atol=1e-6)
    assert result.label_kept.all()
    # the first similarity is that of the maps moved back, on what both see
    visible = ~result.aligned_maps.isnan()
    similarity = standfast.similarity.get("topk_intersection")
    maps = [
        similarity.of_maps(m.abs()) for m in (result.origin_maps, result.aligned_maps.nan_to_num())
    ]
    assert torch.allclose(result.value, similarity.compare_masked(*maps, visible), atol=1e-5)
    assert set(result.parameters) <= set(result.frame().columns)


def test_a_random_attack_takes_parameters_to_their_ends(
    lenet: standfast.Model, digits: standfast.data.Dataset
) -> None:
    result = AttributionAttack(Rotation((-5, 8)), "random_sign")(
        lenet, "saliency", digits[:4].inputs
    )
    (angle,) = result.parameters.values()
    assert set(angle.tolist()) <= {-5.0, 8.0}
    with pytest.raises(standfast.ArgumentError, match="step: expected None for a transformation"):
        AttributionAttack(Rotation(5), step=0.1)
