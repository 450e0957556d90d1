"""Audio: classifiers of raw waveforms `(N, T)`, which add the axis of channels themselves."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import standfast
from standfast.errors import ArgumentError, ModelError

SERIES = r"Give waveforms as series \(N, 1, T\), with Model\(\.\.\., forward=lambda module, x: module\(x\[:, 0\]\)\)"


class Waves(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.filters = nn.Conv1d(1, 8, 9, stride=2)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.filters(x[:, None]).relu().mean(2))


class Spectrum(nn.Module):
    """Its convolution sees times and frequencies."""

    def __init__(self) -> None:
        super().__init__()
        self.filters = nn.Conv2d(1, 4, 3)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        pieces = x.unfold(1, 32, 16)
        spectrum = torch.fft.rfft(pieces).abs()[:, None]
        return self.head(self.filters(spectrum).relu().mean((2, 3)))


class Encoder(nn.Module):
    """A transformer over the frames of a convolution whose number divides nothing, as speech encoders are."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Conv1d(1, 8, 10, stride=5)
        self.around = nn.Conv1d(8, 8, 4, padding=2)  # it makes one position more, which is cut off
        self.norm = nn.LayerNorm(8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        frames = self.features(x)
        tokens = (frames + self.around(frames)[..., :-1]).transpose(1, 2)
        read = self.norm(tokens)
        return self.head((tokens + self.attention(read, read, read)[0]).mean(1))


@pytest.fixture
def waveforms() -> Tensor:
    torch.manual_seed(0)
    return torch.randn(4, 401).mul(0.3).clamp(-2, 2)


@pytest.mark.parametrize("make", [Waves, Spectrum])
def test_rows_of_numbers_are_refused_with_the_true_reason(
    make: type[nn.Module], waveforms: Tensor
) -> None:
    model = standfast.Model(make(), bounds=(-2.0, 2.0), device="cpu")
    with pytest.raises(
        ModelError, match=rf"got \(N, 401\).*its layer 'filters'\. Inputs.*{SERIES}"
    ):
        standfast.explainers.get("gradcam")(model, waveforms)
    with pytest.raises(ArgumentError, match=SERIES):
        standfast.explainers.get("gradcam", layer="filters")(model, waveforms)
    for name in ("saliency", "input_x_gradient"):  # which need no positions
        assert standfast.explainers.get(name)(model, waveforms).shape == waveforms.shape


def test_the_way_that_the_error_names(waveforms: Tensor) -> None:
    """Grad-CAM of the convolution, by its formula."""
    network = Waves()
    series = standfast.Model(
        network, bounds=(-2.0, 2.0), device="cpu", forward=lambda module, x: module(x[:, 0])
    )
    maps = standfast.explainers.get("gradcam")(series, waveforms[:, None], 1)
    with torch.no_grad():
        output = network.filters(waveforms[:, None])
        weights = (network.head.weight[1][None, :, None] * (output > 0) / output.shape[2]).mean(
            2, keepdim=True
        )
        expected = (weights * output).sum(1, keepdim=True).relu()
        expected = nn.functional.interpolate(expected, 401, mode="linear")
    assert torch.allclose(maps, expected, atol=1e-6)
    assert float(maps.std()) > 0


def test_a_table_has_no_convolution() -> None:
    model = standfast.Model(nn.Linear(6, 2), bounds=(0.0, 1.0), device="cpu")
    with pytest.raises(ModelError, match="needs a convolution, and this Linear has none"):
        standfast.explainers.get("gradcam")(model, torch.rand(3, 6))


def test_tokens_that_cannot_be_placed_name_the_convolution(waveforms: Tensor) -> None:
    model = standfast.Model(Encoder(), bounds=(-2.0, 2.0), device="cpu")
    with pytest.raises(
        ModelError,
        match=r"expected tokens that are patches.*`layer` can name a convolution, such as",
    ):
        standfast.explainers.get("gradcam")(model, waveforms[:, None])
    maps = standfast.explainers.get("gradcam", layer="features", relu=False)(
        model, waveforms[:, None]
    )
    assert bool(maps.isfinite().all())
    assert float(maps.std()) > 0
