"""The mode for second derivatives: convolutions have torch's gradients of first and second order."""

import pytest
import torch
from torch import nn

from standfast.explainers import smooth_relu
from standfast.explainers.gradients.second_order import SecondOrderMode, _Convolution

LAYERS = {
    "one channel": nn.Conv2d(1, 3, 5, padding=2),
    "wide": nn.Conv2d(2, 3, (3, 4), padding=(0, 1)),
    "series": nn.Conv1d(2, 4, 3, padding=1, bias=False),
    "same": nn.Conv2d(2, 3, 3, padding="same"),
    "stride": nn.Conv2d(2, 3, 3, stride=2, padding=1),
    "groups": nn.Conv2d(2, 4, 3, groups=2),
    "dilated": nn.Conv1d(2, 3, 3, dilation=2),
    "much padding": nn.Conv1d(2, 3, 2, padding=3),
}
FAST = ("one channel", "wide", "series")


def differentiate(layer, x, mode):
    """A smooth function of the layer, its gradient, and the gradient of the gradient's squares."""
    with mode:
        out = layer(x)
        hidden = torch.relu(out)
        (first,) = torch.autograd.grad(hidden.square().sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), x)
    return out, first, second


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_of_convolutions_are_those_of_torch(name):
    layer = LAYERS[name].double().requires_grad_(False)
    channels = layer.in_channels
    x = torch.rand(
        3, channels, *[9, 8][: layer.weight.ndim - 2], dtype=torch.float64
    ).requires_grad_()
    ours = differentiate(layer, x, SecondOrderMode(4.0))
    theirs = differentiate(layer, x, smooth_relu(4.0))
    for own, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(own, other, rtol=1e-12, atol=1e-12)
    assert bool(ours[2].any())
    assert (getattr(ours[0].grad_fn, "_forward_cls", None) is _Convolution) == (name in FAST)


def test_trained_weights_keep_their_gradients():
    layer = nn.Conv2d(1, 2, 3)
    with SecondOrderMode(4.0):
        layer(torch.rand(2, 1, 5, 5, requires_grad=True)).sum().backward()
    assert bool(layer.weight.grad.any())


def test_attention_and_capped_relus_are_replaced():
    x = torch.linspace(-1, 7, 24).reshape(1, 3, 8).requires_grad_()
    with SecondOrderMode(4.0):
        seen = torch.nn.functional.relu6(torch.nn.functional.scaled_dot_product_attention(x, x, x))
        (first,) = torch.autograd.grad(seen.sum(), x, create_graph=True)
    assert bool(torch.autograd.grad(first.square().sum(), x)[0].any())
