"""DeepSHAP is complete, and equals the mean of DeepLift over single baselines and Captum's."""

from __future__ import annotations

import warnings

import captum.attr as ca
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import standfast
from conftest import small_net
from standfast.explainers import DeepLift, DeepSHAP


def batch(shape: tuple[int, ...], count: int, seed: int = 0) -> Tensor:
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(seed))


class Ramp(nn.Module):
    """Adds a value of its own to every pixel: the images of one level would leave ties to the pooling layers."""

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.linspace(0.0, 1.0, 64, dtype=x.dtype).square().reshape(8, 8)


def mixed_net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        *(
            Ramp(),
            nn.Conv2d(1, 4, 3),
            nn.Tanh(),
            nn.MaxPool2d(3, stride=1, padding=1),
            nn.Conv2d(4, 4, 3),
            nn.GELU(),
        ),
        *(
            nn.AdaptiveMaxPool2d(3),
            nn.Flatten(),
            nn.Linear(36, 8),
            nn.ELU(inplace=True),
            nn.Linear(8, 3),
        ),
    )


class Functional(nn.Module):
    """ReLUs and pooling by functions, some in place, one layer twice."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first, self.twice, self.last = (
            nn.Conv2d(1, 4, 3, padding=1),
            nn.Conv2d(4, 4, 1),
            nn.Linear(64, 3),
        )

    def forward(self, x: Tensor) -> Tensor:
        a = F.max_pool2d(F.relu(self.first(x)), 2)
        a = torch.relu_(self.twice(a)) + a
        return self.last(torch.relu(self.twice(a)).flatten(1))  # type: ignore[no-any-return]


@pytest.mark.parametrize("net", ["mixed", "functional"])
def test_is_the_mean_of_deeplift_over_single_baselines(net: str) -> None:
    module = {"mixed": mixed_net, "functional": Functional}[net]().double()
    model, x = standfast.Model(module, (0.0, 1.0), device="cpu"), batch((1, 8, 8), 6).double()
    levels = (0.0, 0.3, 0.4, 1.0)
    references = torch.tensor(levels).reshape(4, 1, 1, 1).expand(4, 1, 8, 8)
    expected = torch.stack([DeepLift(level)(model, x, 2) for level in levels]).mean(0)
    torch.testing.assert_close(DeepSHAP(references)(model, x, 2), expected)
    torch.testing.assert_close(DeepSHAP(0.3)(model, x, 2), DeepLift(0.3)(model, x, 2))


@pytest.mark.parametrize("shape", [(1, 8, 8), (2, 16), (12,)], ids=["image", "series", "flat"])
def test_equals_captum_without_pooling(shape: tuple[int, ...]) -> None:
    torch.manual_seed(2)
    if len(shape) == 1:
        module: nn.Module = nn.Sequential(
            nn.Linear(12, 9), nn.ReLU(), nn.Linear(9, 7), nn.Tanh(), nn.Linear(7, 3)
        )
    else:
        kind = {2: nn.Conv1d, 3: nn.Conv2d}[len(shape)]
        layers = [kind(shape[0], 6, 3), nn.ReLU(), kind(6, 5, 3, stride=2), nn.Tanh(), nn.Flatten()]
        features = nn.Sequential(*layers)(torch.zeros(1, *shape)).shape[1]
        module = nn.Sequential(*layers, nn.Linear(features, 3))
    model = standfast.Model(module.eval(), (0.0, 1.0), device="cpu")
    x, references, t = batch(shape, 6), batch(shape, 10, seed=1), torch.tensor([0, 1, 2, 0, 1, 2])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = ca.DeepLiftShap(module).attribute(x, baselines=references, target=t).detach()
    ours = DeepSHAP(references)(model, x, t)
    assert float(theirs.abs().max()) > 1e-3
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


def _scale_by_values(gradient: Tensor) -> Tensor:
    """A step of a backward pass that depends on values, so that passes cannot be batched."""
    return gradient * (1.0 if gradient.sum().item() < 1e9 else 0.0)


def test_backward_passes_that_cannot_be_batched_run_one_by_one() -> None:
    class UsesNoBatch(nn.Module):
        def __init__(self, odd: bool) -> None:
            super().__init__()
            self.odd, self.layers = odd, small_net((12,))

        def forward(self, x: Tensor) -> Tensor:
            z = 2 * x
            if self.odd and z.requires_grad:
                z.register_hook(_scale_by_values)
            return self.layers(z)  # type: ignore[no-any-return]

    x, references = batch((12,), 5), batch((12,), 7, seed=1)
    maps = [
        DeepSHAP(references)(standfast.Model(UsesNoBatch(odd), (0.0, 1.0), device="cpu"), x, 1)
        for odd in (True, False)
    ]
    torch.testing.assert_close(*maps)


def test_in_place_layers_do_not_change_later_rounds() -> None:
    class InPlace(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.first, self.second, self.last = nn.Linear(12, 9), nn.Linear(9, 9), nn.Linear(9, 3)

        def forward(self, x: Tensor) -> Tensor:
            a = F.gelu(self.first(x))
            a *= 2.0
            z = self.second(a)
            b = torch.relu(z)
            z += 1.0
            return self.last(b + z)  # type: ignore[no-any-return]

    model = standfast.Model(InPlace().double(), (0.0, 1.0), device="cpu")
    x, references = batch((12,), 5).double(), batch((12,), 40, seed=1).double()
    change = model.logits(x)[:, 1] - model.logits(references)[:, 1].mean()
    torch.testing.assert_close(DeepSHAP(references)(model, x, 1).sum(1), change)


class Folded(nn.Module):
    """A module that turns time steps into rows of the first axis."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layers(x.reshape(-1, 4)).reshape(len(x), -1, 3).mean(1)
        return out


def test_errors() -> None:
    model = standfast.Model(Folded(), (0.0, 1.0), device="cpu")
    with pytest.raises(
        standfast.ModelError,
        match="deep_shap: expected activations with a row for each input .* relu",
    ):
        DeepSHAP(batch((5, 4), 3))(model, batch((5, 4), 2))
    with pytest.raises(standfast.ArgumentError, match="^epsilon: expected a finite number above 0"):
        DeepSHAP(epsilon=0)
    with pytest.raises(standfast.ArgumentError, match="^background: expected a finite number"):
        DeepSHAP(background="rows")  # type: ignore[arg-type]
