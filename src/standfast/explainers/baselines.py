"""Control explainers that do not look at the model: random maps, the centre of the input, the input, and its edges.

Every metric compares explainers with them. A good explainer does better than all of them. `RandomisedExplainer` is the
control that looks at a model, but at one that has learned nothing. `docs/controls.md` has what controls score by each
metric.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from standfast.errors import check
from standfast.explainers.base import Explainer, Explanation, Seed, explainers, make_leaf
from standfast.explainers.shared_passes import share_pass
from standfast.model import Model
from standfast.needs import Needs
from standfast.tensors import content_keys, hashed_uniform, mix64


class ModelFreeExplainer(Explainer):
    """A control whose maps depend on the input alone: neither on the model nor on the targets.

    One forward pass for each input, for the logits.
    """

    gateable = True
    control = True

    @property
    def shared_pass(self) -> tuple[object, ...]:
        return ("prediction",)

    @abstractmethod
    def make_maps(self, x: Tensor) -> Tensor:
        """The maps of the inputs `x` `(N, ...)`, of the same shape."""

    def attribute(
        self, model: Model, x: Tensor, targets: Tensor | None, *, create_graph: bool = False
    ) -> Explanation:
        self._check_graph(create_graph)
        with torch.no_grad():
            (logits,) = share_pass(
                "prediction", model, (x,), lambda: (model.forward(x.detach().clone()),)
            )
            return self.make_maps(x.detach()), logits


@explainers.register("random")
@dataclass(frozen=True)
class RandomExplainer(ModelFreeExplainer):
    """Standard normal attributions, independent between inputs; targets are ignored.

    The numbers are a hash of the input's values and of `seed`. So equal inputs get equal maps, and the smallest change
    of an input gives an unrelated map. One forward pass for each input, for the logits.

    Args:
        seed: maps with different seeds are unrelated.

    >>> from standfast.model import Model
    >>> model = Model(torch.nn.Linear(3, 2), bounds=(0.0, 1.0), device="cpu")
    >>> x = torch.rand(4, 3)
    >>> bool((RandomExplainer()(model, x) == RandomExplainer()(model, x.flip(0)).flip(0)).all())
    True
    """

    seed: Seed = 0
    name = "random"

    def make_maps(self, x: Tensor) -> Tensor:
        return self.noise(x)

    def noise(self, x: Tensor, calls: Tensor | None = None) -> Tensor:
        """The random maps of `x` `(N, ...)`, of the same shape.

        Args:
            x: inputs.
            calls: numbers `(N,)`; maps of the same input are unrelated if their numbers differ. For metrics that
                explain the same input several times and need new noise each time (SenC).
        """
        keys = content_keys(x, self.seed)
        if calls is not None:
            keys = mix64(keys ^ mix64(calls))
        uniform = hashed_uniform(keys, x[0].numel()).double()
        # float32 rounds the largest numbers up to 1, whose normal quantile is infinite
        below_one = uniform.clamp(max=1 - 2.0**-25)
        normal = torch.special.ndtri(below_one)
        maps: Tensor = normal.to(x.dtype).reshape(x.shape)
        return maps


@explainers.register("centre")
@dataclass(frozen=True)
class CentreExplainer(ModelFreeExplainer):
    """Attributions that decrease from the centre outwards, the same for all inputs; targets are ignored.

    Pictures tend to show their object in the middle. The top positions of this map form a centred square of an image
    (the "dummy square" that c-Eval compares with: Vu et al. 2021, Fig. 2), or the middle of a series. Flat features
    have no spatial order, so there the map is of no use: it puts the middle columns first. One forward pass for each
    input, for the logits.

    >>> from standfast.model import Model
    >>> model = Model(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(9, 2)), bounds=(0.0, 1.0))
    >>> CentreExplainer()(model, torch.rand(1, 1, 3, 3))[0, 0].argmax().item()
    4
    """

    name = "centre"
    has_signs = False

    def make_maps(self, x: Tensor) -> Tensor:
        spatial = x.shape[1:] if x.ndim == 2 else x.shape[2:]
        square = torch.zeros(spatial, dtype=x.dtype, device=x.device)
        round_ = torch.zeros(spatial, dtype=x.dtype, device=x.device)
        for axis, length in enumerate(spatial):
            shape = [1] * len(spatial)
            shape[axis] = length
            positions = torch.arange(length, dtype=x.dtype, device=x.device)
            offset = positions - (length - 1) / 2
            square = torch.maximum(square, (offset.abs() / length).reshape(shape))
            round_ = round_ + (offset / length).square().reshape(shape)
        # among positions with the same distance in the maximum norm, the nearest in the 2-norm comes first
        distance = square + 1e-4 * round_.sqrt()
        return (-distance).expand(x.shape).clone()


@explainers.register("input_copy")
@dataclass(frozen=True)
class InputCopy(ModelFreeExplainer):
    """The input as its own map; the model and the targets are ignored.

    Its map changes with the input as an explanation of a good model would: a part that is switched off disappears from
    it. So a metric that compares changes of maps with changes of predictions may take it for an explanation. Whether an
    explainer does better than this control says whether its value depends on the model at all. One forward pass for
    each input, for the logits.

    >>> from standfast.model import Model
    >>> InputCopy()(Model(torch.nn.Linear(2, 2), bounds=(0.0, 1.0), device="cpu"), torch.tensor([[0.5, 1.0]]))
    tensor([[0.5000, 1.0000]])
    """

    name = "input_copy"
    differentiable = True

    def make_maps(self, x: Tensor) -> Tensor:
        return x.clone()

    def attribute(
        self, model: Model, x: Tensor, targets: Tensor | None, *, create_graph: bool = False
    ) -> Explanation:
        if not create_graph:
            return super().attribute(model, x, targets)
        leaf = make_leaf(x, create_graph)
        return leaf.clone(), model.forward(leaf.clone())


@explainers.register("edges")
@dataclass(frozen=True)
class Edges(ModelFreeExplainer):
    """The edges of the input, by Sobel's operator; the model and the targets are ignored.

    At each position the root of the sum, over the axes of space, of the squared derivative. The derivative is the
    difference of the two neighbours, smoothed by (1, 2, 1) along the other axes; beyond the border the input continues
    with its last value. For a series it is the size of the difference in time. Each channel has its own edges. Maps of
    many explainers look like edges, without depending on the model (Adebayo et al., "Sanity checks for saliency maps",
    NeurIPS 2018, Sec. 5.1). Columns of a table have no neighbours, so there are no edges of them. One forward pass for
    each input, for the logits.

    Raises:
        ArgumentError: inputs `(N, features)`, in the call.

    >>> from standfast.model import Model
    >>> model = Model(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 2)), bounds=(0.0, 1.0))
    >>> Edges()(model, torch.tensor([[[0.0, 0.0, 1.0, 1.0]]]))
    tensor([[[0., 1., 1., 0.]]])
    """

    name = "edges"
    has_signs = False
    needs = Needs(other="images or series")

    def make_maps(self, x: Tensor) -> Tensor:
        check(
            x.ndim > 2,
            "inputs",
            "images or series for edges, which need neighbours",
            f"a table {tuple(x.shape)}",
        )
        return detect_edges(x)


def detect_edges(x: Tensor) -> Tensor:
    """The size of Sobel's gradient of `x` `(N, C, ...)` at each position and channel, of the same shape.

    >>> detect_edges(torch.tensor([[[0.0, 3.0, 3.0]]]))
    tensor([[[3., 3., 0.]]])
    """
    axes = range(2, x.ndim)
    squares = torch.zeros_like(x)
    for along in axes:
        slope = x
        for axis in axes:
            before = _shift(slope, axis, 1)
            after = _shift(slope, axis, -1)
            if axis == along:
                slope = after - before
            else:
                slope = before + 2 * slope + after
        squares = squares + slope.square()
    return squares.sqrt()


def _shift(x: Tensor, axis: int, by: int) -> Tensor:
    """`x` moved by one position along an axis; the last value is repeated at the border."""
    length = x.shape[axis]
    positions = torch.arange(length, device=x.device)
    source = (positions - by).clamp(0, length - 1)
    return x.index_select(axis, source)
