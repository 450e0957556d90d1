"""Frozen dataclasses: fields set while they are made, and tensors as options."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError

import pytest
import torch

from holdfast.explainers import Background
from holdfast.metrics.faithfulness.localisation import Regions
from holdfast.records import TensorOption
from holdfast.segments import LabelMap

OPTIONS = [LabelMap(torch.tensor([0, 1, 2])), Regions(torch.tensor([[True, False]])), Background(torch.rand(2, 3))]


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: type(option).__name__)
def test_a_tensor_as_an_option_is_a_value(option: TensorOption) -> None:
    for same in (copy.deepcopy(option), pickle.loads(pickle.dumps(option)), type(option)(option.tensor)):
        assert (same, hash(same), repr(same)) == (option, hash(option), repr(option))
        assert torch.equal(same.tensor, option.tensor)
        assert same.tensor.dtype == option.tensor.dtype
    with pytest.raises(FrozenInstanceError):
        option.digest = "other"  # type: ignore[misc]


def test_a_tensor_as_an_option_is_copied() -> None:
    labels = torch.tensor([0, 1, 2])
    option = LabelMap(labels)
    labels[0] = 7
    assert option.labels.tolist() == [0, 1, 2]
    assert option == LabelMap(torch.tensor([0, 1, 2]))


def test_options_of_two_kinds_are_never_equal() -> None:
    zeros = torch.zeros(1, 3, dtype=torch.int64)
    assert LabelMap(zeros).digest == TensorOption(zeros).digest
    assert LabelMap(zeros) != TensorOption(zeros)
