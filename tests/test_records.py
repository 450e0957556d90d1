"""Frozen dataclasses: plain numbers and tensors as options, and names of options that other packages have."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, fields
from inspect import signature
from typing import Annotated, Literal, get_args

import numpy as np
import pytest
import torch

from standfast.errors import SYNONYMS, ArgumentError
from standfast.explainers import Background, IntegratedGradients, explainers
from standfast.explainers import get as get_explainer
from standfast.metrics import AOPC, AttributionAttack
from standfast.metrics import get as get_metric
from standfast.metrics.base import metrics
from standfast.metrics.faithfulness.localisation import Regions
from standfast.neighbourhoods import LinfBall, neighbourhoods
from standfast.neighbourhoods.base import Distribution
from standfast.records import ConfigurationType, Count, CountOrFraction, TensorOption
from standfast.segments import LabelMap
from standfast.similarity import TopKIntersection
from standfast.study.identity import Description

OPTIONS = [
    LabelMap(torch.tensor([0, 1, 2])),
    Regions(torch.tensor([[True, False]])),
    Background(torch.rand(2, 3)),
]


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: type(option).__name__)
def test_a_tensor_as_an_option_is_a_value(option: TensorOption) -> None:
    for same in (
        copy.deepcopy(option),
        pickle.loads(pickle.dumps(option)),
        type(option)(option.tensor),
    ):
        assert (same, hash(same), repr(same)) == (option, hash(option), repr(option))
        assert torch.equal(same.tensor, option.tensor)
        assert same.tensor.dtype == option.tensor.dtype
    with pytest.raises(FrozenInstanceError):
        option.digest = "other"  # type: ignore[misc]


def test_a_tensor_as_an_option_is_copied() -> None:
    labels = torch.tensor([0, 1, 2])
    option = LabelMap(labels)
    labels[0] = 7
    assert option.tensor.tolist() == [0, 1, 2]
    assert option == LabelMap(torch.tensor([0, 1, 2]))


def test_options_of_two_kinds_are_never_equal() -> None:
    zeros = torch.zeros(1, 3, dtype=torch.int64)
    assert LabelMap(zeros).digest == TensorOption(zeros).digest
    assert LabelMap(zeros) != TensorOption(zeros)


def test_numbers_of_numpy_and_torch_become_plain_ones() -> None:
    for three in (np.int64(3), np.uint8(3), torch.tensor(3), np.array(3)):
        for made in (AOPC(steps=three), get_metric("aopc", steps=three), AOPC(steps=3)):
            assert (type(made.steps), made.steps) == (int, 3)  # type: ignore[attr-defined]
        assert AOPC(steps=three) == AOPC(steps=3)
        assert IntegratedGradients(steps=three).steps.__class__ is int
        assert get_explainer("rise", cells=(three, three)).cells == (3, 3)  # type: ignore[attr-defined]
        assert TopKIntersection(k=three)(torch.eye(4), torch.eye(4)).tolist() == [1.0] * 4
        attack = AttributionAttack(LinfBall(0.1), k=three)
        assert (attack.k, type(attack.options()["k"])) == (3, int)
    assert (LinfBall(np.float32(0.5)).radius, type(LinfBall(np.float64(0.1)).radius)) == (
        0.5,
        float,
    )
    assert Description(LinfBall(np.float64(0.1))).digest == Description(LinfBall(0.1)).digest


@pytest.mark.parametrize(
    "wrong", [True, np.bool_(True), torch.tensor(True), 3.0, np.float64(3), "3", np.array([3])]
)
def test_what_is_no_whole_number_is_still_refused(wrong: object) -> None:
    with pytest.raises(ArgumentError, match="steps: expected a whole number of at least 1, got"):
        AOPC(steps=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: IntegratedGradients(n_steps=5),
            "n_steps: .*of integrated_gradients: steps, .*=5 .*mean 'steps'",
        ),
        (lambda: get_explainer("integrated_gradients", baselines=0), "did you mean 'baseline'"),
        (lambda: get_explainer("smoothgrad:nt_samples=4"), "did you mean 'samples'"),
        (lambda: get_metric("max_sensitivity", nr_samples=4), "did you mean 'samples'"),
        (lambda: get_metric("worst_case", perturb_radius=0.1), "did you mean 'neighbourhood'"),
        (lambda: get_metric("max_sensitivity", normalize=True), "did you mean 'normalise'"),
        (
            lambda: get_explainer("lrp", internal_batch_size=4),
            r"Model\(module, bounds, batch_size=...\)",
        ),
        (lambda: LinfBall(eps=0.1), "did you mean 'radius'"),
        (lambda: get_explainer("saliency", stepz=4), "saliency"),
    ],
)
def test_names_of_other_packages_suggest_ours(make: Callable[[], object], words: str) -> None:
    with pytest.raises(ArgumentError, match=words) as caught:
        make()
    assert isinstance(caught.value, TypeError)


def test_every_synonym_suggests_an_option_or_a_choice_that_exists() -> None:
    options = {
        f.name
        for registry in (metrics, explainers)
        for kind in registry.loaded()
        for f in fields(kind)
    }
    options |= {f.name for kind in neighbourhoods.loaded() for f in fields(kind)}
    options |= {"k"} | set(get_args(Distribution))
    assert [name for name, ours in SYNONYMS.items() if not options & set(ours)] == []


def test_an_error_of_the_constructor_itself_stays_what_it_is() -> None:
    @dataclass(frozen=True)
    class Own(metaclass=ConfigurationType):
        size: int

        def __post_init__(self) -> None:
            len(self.size)  # type: ignore[arg-type]

    with pytest.raises(TypeError, match="has no len"):
        Own(3)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'size'"):
        Own()  # type: ignore[call-arg]
    assert list(signature(Own).parameters) == ["size"]


def _double(value: object, option: str) -> object:
    if value == 0:
        raise ArgumentError(option, "anything but 0", value)
    return (value, value) if isinstance(value, int) else None


@dataclass(frozen=True)
class Steps(metaclass=ConfigurationType):
    steps: Count = 3
    mode: Literal["fast", "exact"] = "fast"
    k: CountOrFraction | tuple[CountOrFraction, ...] | None = None
    twice: Annotated[object, _double] = "none"


@dataclass(frozen=True)
class MoreSteps(Steps):
    steps: int = 5


@pytest.mark.parametrize("kind", [Steps, MoreSteps])  # another default keeps its check
@pytest.mark.parametrize(
    ("option", "wrong", "words"),
    [
        ("steps", 0, "steps: expected a whole number of at least 1, got 0"),
        ("steps", 1.0, "steps: .*, got 1.0"),
        ("steps", True, "steps: .*, got True"),
        ("mode", "exakt", "mode: expected 'fast', or 'exact', got 'exakt' .did you mean 'exact'?"),
        (
            "k",
            1.5,
            "k: expected a whole number of at least 1, or a finite number above 0 and below 1, or a list, each .*",
        ),
        ("k", [1, 0], r"k: .*, or None, got \[1, 0\]"),
        ("k", (), "k: "),
        ("twice", 0, "twice: expected anything but 0, got 0"),
    ],
)
def test_a_type_says_what_an_option_may_be(
    kind: type[Steps], option: str, wrong: object, words: str
) -> None:
    with pytest.raises(ArgumentError, match=f"^{words}"):
        kind(**{option: wrong})


def test_options_are_held_as_their_checks_return_them() -> None:
    assert Steps(2, "exact", [1, torch.tensor(2), 0.5], 4) == Steps(
        2, "exact", (1, 2, 0.5), twice=4
    )
    assert Steps(twice=4).twice == (4, 4)
    assert Steps(twice="text").twice == "text"
    assert Steps(k=[3]).k == (3,)
    assert MoreSteps().steps == 5
    with pytest.raises(TypeError, match="multiple values"):
        Steps(2, steps=3)  # type: ignore[misc]
    with pytest.raises(TypeError, match="positional arguments"):
        Steps(2, "fast", 1, 2, 3)  # type: ignore[call-arg]
