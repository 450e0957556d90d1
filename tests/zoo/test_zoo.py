"""The zoo: architecture, weights, card, training."""

import math
from pathlib import Path

import pytest
import torch
from refusals import assert_refused
from torch import nn

from standfast import data, zoo
from standfast.errors import ArgumentError, ModelError, UnknownNameError
from standfast.neighbourhoods import LinfBall
from standfast.training.adversarial import Pgd, robust_accuracy
from standfast.training.classifier import (
    Epoch,
    accuracy,
    initialize,
    random_flip,
    random_shift,
    train_classifier,
)

# weights and card


def test_the_bundled_model_classifies_the_bundled_digits():
    model, digits = zoo.load("lenet5-mnist"), data.bundled("digits")
    assert not any(part.training for part in model.modules())
    assert accuracy(model, digits.inputs, digits.labels) >= 0.97


def test_loading_gives_independent_models_and_keeps_the_random_state():
    state = torch.get_rng_state()
    first, second = zoo.load("lenet5-mnist"), zoo.load("lenet5-mnist")
    assert torch.equal(torch.get_rng_state(), state)
    with torch.no_grad():
        first.features.conv1.weight.zero_()
    assert second.features.conv1.weight.abs().sum() > 0


def test_missing_or_broken_weights_are_errors(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(zoo, "files", lambda package: tmp_path.parent)
    tmp_path = tmp_path.rename(tmp_path.with_name("weights"))
    with pytest.raises(zoo.MissingWeightsError, match=r"lenet5-mnist.safetensors is missing"):
        zoo.load("lenet5-mnist")
    with pytest.raises(zoo.MissingWeightsError, match=r"lenet5-mnist.json is missing"):
        zoo.card("lenet5-mnist")
    (tmp_path / "lenet5-mnist.safetensors").write_bytes(b"not weights")
    (tmp_path / "lenet5-mnist.json").write_bytes(b"not a card")
    with pytest.raises(zoo.MissingWeightsError, match="does not fit"):
        zoo.load("lenet5-mnist")
    with pytest.raises(zoo.MissingWeightsError, match="is not JSON"):
        zoo.card("lenet5-mnist")


def test_an_unknown_model_is_refused():
    for ask in (zoo.load, zoo.card):
        with pytest.raises(UnknownNameError, match="did you mean 'lenet5-mnist'"):
            ask("lenet-mnist")


def test_the_batch_statistics_are_those_of_training():
    norms = [
        part
        for part in zoo.load("resnet18w16-cifar10").modules()
        if isinstance(part, nn.BatchNorm2d)
    ]
    assert len(norms) == 20
    for norm in norms:
        assert norm.num_batches_tracked > 1000
        assert norm.running_mean.abs().max() > 0
        assert norm.running_var.min() > 0
        assert not torch.equal(norm.running_var, torch.ones_like(norm.running_var))


# the schemes of SAFARI's Table 3, the small networks of its Table 8


def test_the_schemes_increase_robustness():
    """Within Linf 0.1, in the order of the paper: natural, gradient norm, Hessian norm, adversarial training."""
    digits = data.bundled("digits")[:100]
    attack = Pgd(LinfBall(0.1), steps=20, step=0.015, bounds=(0.0, 1.0))
    found = {}
    for name in ("plain", "hessian", "gradient-hessian", "pgd", "pgd-linf01"):
        module = zoo.load(f"lenet5-mnist-{name}")
        generator = torch.Generator().manual_seed(0)
        found[name] = robust_accuracy(
            module, digits.inputs, digits.labels, attack, generator=generator
        )
    assert found["plain"] + 0.1 < found["hessian"]
    assert found["plain"] + 0.1 < found["gradient-hessian"]
    assert found["hessian"] + 0.05 < found["pgd"]
    assert found["hessian"] + 0.05 < found["pgd-linf01"]


# networks for the synthetic waves


# training

Blobs = tuple[torch.Tensor, torch.Tensor]


@pytest.fixture
def blobs() -> Blobs:
    """Three Gaussian clouds in the plane, far apart: (300, 2) and (300,)."""
    generator = torch.Generator().manual_seed(1)
    labels = torch.arange(300) % 3
    centres = torch.tensor([[3.0, 0.0], [-2.0, 2.0], [-2.0, -2.0]])
    return centres[labels] + 0.5 * torch.randn(300, 2, generator=generator), labels


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3))


def trained(blobs: Blobs, seed: int = 0, **options) -> nn.Sequential:
    generator = torch.Generator().manual_seed(seed)
    arguments = {"epochs": 10, "batch_size": 32, "learning_rate": 0.02} | options
    return train_classifier(
        initialize(network(), generator), *blobs, generator=generator, **arguments
    )


def weights(module: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in module.parameters()])


def test_training_leaves_data_modes_gradients_and_random_numbers(blobs):
    inputs, labels = blobs[0].clone(), blobs[1].clone()
    module = network().eval()
    module[2].train()
    state, generator = torch.get_rng_state(), torch.Generator().manual_seed(0)
    with torch.no_grad():
        returned = train_classifier(
            initialize(module, generator), *blobs, epochs=1, generator=generator
        )
    assert torch.equal(torch.get_rng_state(), state)
    assert returned is module
    assert [part.training for part in module.modules()] == [False, False, False, True, False]
    assert all(p.grad is None for p in module.parameters())
    assert torch.equal(inputs, blobs[0])
    assert torch.equal(labels, blobs[1])


def test_dropout_is_on_in_training_and_off_in_accuracy(blobs):
    modes = []
    module = network()
    module[2].register_forward_hook(lambda part, *_: modes.append(part.training))
    train_classifier(
        module, *blobs, epochs=1, batch_size=300, generator=torch.Generator().manual_seed(0)
    )
    accuracy(module, *blobs)
    assert modes == [True, False]
    assert module.training


def test_frozen_parameters_do_not_change(blobs):
    module = network()
    module[0].requires_grad_(False)
    before, head = module[0].weight.clone(), module[3].weight.detach().clone()
    train_classifier(module, *blobs, epochs=1, generator=torch.Generator().manual_seed(0))
    assert torch.equal(module[0].weight, before)
    assert not torch.equal(module[3].weight, head)


def test_the_reported_loss_is_the_mean_over_samples(blobs):
    """With a tiny learning rate, it is the initial cross-entropy for any batches."""
    module = nn.Linear(2, 3)
    expected = nn.functional.cross_entropy(module(blobs[0]), blobs[1]).item()
    reported: list[Epoch] = []
    generator = torch.Generator().manual_seed(0)
    train_classifier(
        module,
        *blobs,
        epochs=1,
        batch_size=128,
        learning_rate=1e-12,
        generator=generator,
        progress=reported.append,
    )
    assert reported[0].loss == pytest.approx(expected, rel=1e-5)
    assert reported[0].accuracy == pytest.approx(accuracy(module, *blobs))


def test_every_epoch_sees_every_sample_once(blobs):
    seen: list[torch.Tensor] = []

    def watch(batch: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        seen.append(batch)
        return batch

    trained(blobs, epochs=2, batch_size=128, augment=watch)
    assert [len(batch) for batch in seen] == [128, 128, 44] * 2
    epochs = torch.cat(seen[:3]), torch.cat(seen[3:])
    assert not torch.equal(*epochs)
    for epoch in epochs:
        assert torch.equal(epoch.sort(dim=0).values, blobs[0].sort(dim=0).values)


def test_the_learning_rate_warms_up_and_falls_to_zero():
    """With a constant gradient, the length of a step of Adam is the learning rate."""

    # logits (w, -w), labels 0: the gradient keeps its sign and hardly changes
    class Drift(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.zeros(()))

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            path.append(self.w.item())
            return torch.stack([self.w, -self.w]).expand(len(inputs), 2)

    path: list[float] = []
    module, generator = Drift(), torch.Generator().manual_seed(0)
    data_set = torch.zeros(100, 1), torch.zeros(100, dtype=torch.int64)
    train_classifier(
        module, *data_set, epochs=1, batch_size=1, learning_rate=1e-3, generator=generator
    )
    steps = torch.tensor([*path, module.w.item()], dtype=torch.float64).diff() / 1e-3
    warm_up = torch.arange(1, 11, dtype=torch.float64) / 10
    cosine = 0.5 * (1 + torch.cos(torch.pi * torch.arange(90, dtype=torch.float64) / 90))
    torch.testing.assert_close(steps, torch.cat([warm_up, cosine]), atol=0.02, rtol=0)


def test_diverging_training_is_an_error(blobs):
    with pytest.raises(ModelError, match="training diverged: the loss of epoch 1"):
        trained((blobs[0] * math.inf, blobs[1]))


def test_training_refuses_wrong_arguments(blobs):
    def make(**change):
        arguments = {
            "module": network(),
            "inputs": blobs[0],
            "labels": blobs[1],
            "epochs": 1,
        } | change
        return train_classifier(**arguments, generator=torch.Generator())

    assert_refused(
        make, epochs=[0], batch_size=[0], learning_rate=[0.0, math.nan], weight_decay=[-1.0]
    )
    assert_refused(
        make,
        module=[nn.Identity()],
        inputs=[torch.zeros(300, 2, dtype=torch.int64), torch.zeros(0, 2)],
    )
    assert_refused(make, optimizer=["sgd"])
    assert_refused(make, labels=[torch.zeros(300), torch.zeros(299, dtype=torch.int64)])


def test_accuracy_does_not_depend_on_the_batch_size(blobs):
    module = initialize(network(), torch.Generator().manual_seed(0))
    expected = float((module.eval()(blobs[0]).argmax(dim=1) == blobs[1]).float().mean())
    for batch_size in (1, 7, 300, 1000):
        assert accuracy(module, *blobs, batch_size=batch_size) == pytest.approx(expected)


def test_random_shift_moves_whole_images():
    """Each image equals one of its (2 * pixels + 1) ** 2 moved copies, by a slow loop."""
    images = torch.rand(40, 3, 6, 5, generator=torch.Generator().manual_seed(0))
    moved = random_shift(images, torch.Generator().manual_seed(1), pixels=1)
    found = set()
    for image, result in zip(images, moved, strict=True):
        padded = nn.functional.pad(image, (1, 1, 1, 1))
        copies = {(i, j): padded[:, i : i + 6, j : j + 5] for i in range(3) for j in range(3)}
        (offset,) = [where for where, copy in copies.items() if torch.equal(copy, result)]
        found.add(offset)
    assert len(found) == 9
    assert torch.equal(moved, random_shift(images, torch.Generator().manual_seed(1), pixels=1))
    assert torch.equal(random_shift(images, torch.Generator(), pixels=0), images)
    with pytest.raises(ArgumentError, match="inputs: expected images"):
        random_shift(images[0], torch.Generator())


def test_random_flip_mirrors_whole_images_or_keeps_them():
    images = torch.rand(400, 3, 4, 5, generator=torch.Generator().manual_seed(0))
    before = images.clone()
    result = random_flip(images, torch.Generator().manual_seed(1))
    same = (result == images).flatten(1).all(1)
    mirrored = (result == images.flip(3)).flatten(1).all(1)
    assert (same ^ mirrored).all()
    assert 150 < mirrored.sum() < 250  # five standard deviations
    assert torch.equal(images, before)
    assert torch.equal(result, random_flip(images, torch.Generator().manual_seed(1)))
    assert not torch.equal(result, random_flip(images, torch.Generator().manual_seed(2)))
    with pytest.raises(ArgumentError, match="inputs: expected images"):
        random_flip(images[0], torch.Generator())
