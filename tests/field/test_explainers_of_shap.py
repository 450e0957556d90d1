"""Explainers of shap whose constructor and whose call both take further options, as those of permutations do."""

from __future__ import annotations

import pytest
import torch

import standfast


@pytest.mark.parametrize(
    "name",
    [
        *("KernelExplainer", "SamplingExplainer", "PermutationExplainer", "ExactExplainer"),
        *("PartitionExplainer", "GradientExplainer", "DeepExplainer"),
    ],
)
def test_each_is_made_without_options(name: str) -> None:
    pytest.importorskip("shap")
    explainer = standfast.explainers.from_shap(name, background=torch.rand(5, 6))
    assert name in explainer.label
