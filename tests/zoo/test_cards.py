"""Every bundled network: its weights are those of its card, and it is as accurate as the card says."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from importlib.resources import files

import pytest
import torch
from safetensors.torch import load as load_safetensors

from standfast import data, zoo
from standfast.neighbourhoods import L2Ball, LinfBall
from standfast.training.adversarial import Pgd, robust_accuracy
from standfast.training.calibration import Calibrated
from standfast.training.classifier import accuracy

#: the sets of test samples, by a part of the network's name; the first that fits
TEST_SETS = {
    "fashion-mnist": "fashion_mnist:test",
    "tanh-mnist": "mnist32:test",
    "mnist": "mnist:test",
    "cifar10": "cifar10:test",
    "gtsrb": "gtsrb:test",
}
#: how the description of a scheme begins, by the end of the network's name; the first that fits
SCHEMES = {
    "-calibrated": Calibrated(1.0).describe() + "; RAdam, ",
    "-gradient-hessian": "gradient and Hessian norm: ",
    "-gradient": "gradient norm: ",
    "-hessian": "Hessian norm: ",
    "-ig-sum-norm": "IG-SUM-NORM: ",
    "-pgd": "adversarial: ",
    "-pgd-linf01": "adversarial: ",
    "-pgd045": "adversarial: ",
    "-pgd075": "adversarial: ",
}
LEAST_ACCURACY = {
    "cifar10": 0.65,
    "gtsrb": 0.82,
    "fashion": 0.75,
    "sentences": 0.75,
    "waves": 0.9,
    "mnist": 0.95,
}
KEYS = {"data", "scheme", "epochs", "seed", "versions", "script", "licence"}
each = pytest.mark.parametrize("name", zoo.names())


def find_test_set(name: str) -> str | None:
    """The test set of a network; that of sentences is tested beside its data."""
    if "waves" in name:
        return f"{name.split('-')[1]}:test"
    return next((found for part, found in TEST_SETS.items() if part in name), None)


load = lru_cache(maxsize=4)(data.load)


def load_test_set(name: str) -> data.Dataset:
    where = find_test_set(name)
    if where is None:
        pytest.skip("tested beside its data")
    try:
        test = load(where)
    except data.MissingDataError as missing:
        pytest.skip(str(missing))
    # it comes in two sizes
    if "gtsrb" in name and f"{len(test):,} test images" not in zoo.card(name)["data"]:
        pytest.skip(f"the card's accuracy is on other data, here are {len(test)} test images")
    return test


@each
def test_the_weights_are_those_of_the_card(name: str) -> None:
    model, card = zoo.load(name), zoo.card(name)
    assert card.keys() >= KEYS
    assert set(card["versions"]) >= {"torch", "standfast"}
    assert card["name"] == name
    assert sum(p.numel() for p in model.parameters()) == card["parameters"]
    assert not any(part.training for part in model.modules())
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())
    content = (files("standfast.zoo") / "weights" / f"{name}.safetensors").read_bytes()
    assert hashlib.sha256(content).hexdigest() == card["weights_sha256"]
    assert len(content) < (120_000 if "waves" in name else 3_000_000)
    stored = load_safetensors(content)
    for key, tensor in model.state_dict().items():
        assert torch.equal(tensor, stored[key].to(tensor.dtype))
    scheme = next((start for end, start in SCHEMES.items() if name.endswith(end)), "natural: ")
    assert card["scheme"].startswith(scheme)
    assert card["test_accuracy"] > next(
        least for part, least in LEAST_ACCURACY.items() if part in name
    )


@pytest.mark.parametrize("family", ["lenet5-mnist", "lenet5-tanh-mnist"])
def test_the_schemes_of_a_table_differ_in_nothing_else(family: str) -> None:
    schemes = ("plain", "gradient", "hessian", "gradient-hessian", "pgd", "pgd-linf01")
    cards = [zoo.card(f"{family}-{scheme}") for scheme in schemes]
    for key in (
        "architecture",
        "data",
        "epochs",
        "batch_size",
        "learning_rate",
        "weight_decay",
        "seed",
        "versions",
    ):
        assert len({str(card[key]) for card in cards}) == 1, key


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.slow)])
@each
def test_the_accuracy_is_that_of_the_card(name: str, whole: bool) -> None:
    """On the first samples within four standard errors, and on all of them but for rounding on other processors."""
    test, expected = load_test_set(name), zoo.card(name)["test_accuracy"]
    count = len(test) if whole else 1000 if "lenet5" in name else 200
    measured = accuracy(zoo.load(name), test.inputs[:count], test.labels[:count])
    error = 3 / count + 1e-9 if whole else 4 * (expected * (1 - expected) / count) ** 0.5
    assert measured == pytest.approx(expected, abs=error)


ATTACKED = [
    name
    for name in zoo.names()
    if "fashion" in name or name.endswith(("ig-sum-norm", "pgd045", "pgd075"))
]


#: one of each data set; what the others would tell beside it, their weights and accuracies, has tests of its own
ATTACKED_ALWAYS = ("lenet5-fashion-mnist-pgd", "lenet5-mnist-ig-sum-norm")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in ATTACKED_ALWAYS else pytest.mark.slow)
        for name in ATTACKED
    ],
)
def test_the_accuracy_under_attack_is_that_of_the_card(name: str) -> None:
    about = zoo.card(name)["under_attack"]
    radius, expected = about["radius"], about["test_accuracy"]
    ball = L2Ball if "the L2 ball" in about["attack"] else LinfBall
    test = load_test_set(name)
    attack = Pgd(ball(radius), steps=20, step=0.15 * radius, bounds=(0.0, 1.0))
    inputs, labels = test.inputs[:250], test.labels[:250]
    found = robust_accuracy(
        zoo.load(name), inputs, labels, attack, generator=torch.Generator().manual_seed(0)
    )
    assert found == pytest.approx(
        expected, abs=min(0.05, 4 * (expected * (1 - expected) / 500) ** 0.5)
    )
