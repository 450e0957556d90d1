"""The control that looks at a model that has learned nothing: an explainer on the model with shuffled weights."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from standfast.errors import check
from standfast.explainers.base import Explainer, Explanation, Measure, Seed, ValueScale, explainers
from standfast.explainers.gradients.input_gradients import Saliency
from standfast.model import Model, module_name
from standfast.needs import Needs
from standfast.records import Count
from standfast.tensors import mix64, send


def _check_explainer(explainer: object, name: str) -> None:
    expected = "an explainer, such as standfast.explainers.get('saliency')"
    check(isinstance(explainer, Explainer), name, expected, repr(explainer))


@explainers.register("randomised")
@dataclass(frozen=True)
class RandomisedExplainer(Explainer):
    """The maps of another explainer for the model with shuffled weights; the logits are those of the model itself.

    Each weight and bias keeps its values, in a random order. So the network has the same architecture and weights of
    the same size, but nothing of what it has learned. An explainer whose maps score no better than these does not show
    what the model has learned. This is the test by randomised parameters of Adebayo et al., "Sanity checks for saliency
    maps" (NeurIPS 2018, Sec. 4). They draw new weights; we shuffle, which needs no knowledge of how the weights were
    initialised and keeps the scale that training gave them. As there, `layers` counts from the output on: 1 shuffles
    the last layer only, and by default the cascade has reached the input. Buffers, such as the running means of batch
    normalisation, stay.

    The model is not copied and not changed. Only while maps are computed, the parameters have other values.

    Options of a study file are `{randomised: {explainer: saliency, layers: 1}}`. As a name it is `randomised:saliency`,
    or with options of the explainer `randomised:integrated_gradients:steps=16`.

    Cost: that of the explainer, and one more forward pass for each input, for the logits.

    Args:
        explainer: whose maps to take.
        layers: how many layers to shuffle, counted from the output, in the order in which the module registers them;
            None for all.
        seed: of the shuffling.

    Raises:
        ArgumentError: in the call, a module without parameters.

    >>> from standfast.model import Model
    >>> model = Model(torch.nn.Linear(5, 2), bounds=(0.0, 1.0), device="cpu")
    >>> x = torch.rand(3, 5)
    >>> shuffled = RandomisedExplainer(Saliency())(model, x, 0)
    >>> set(shuffled[0].tolist()) <= set(model.module.weight.abs().flatten().tolist())
    True
    >>> bool((shuffled == Saliency()(model, x, 0)).all())
    False
    """

    explainer: Annotated[Explainer, _check_explainer] = field(default=Saliency())
    layers: Count | None = None
    seed: Seed = 0
    name = "randomised"
    needs = Needs(parameters=True)
    control = True

    @property
    def gateable(self) -> bool:  # type: ignore[override]
        """As of the explainer. Gates mask the shuffled weights of a layer as they mask the model's own.

        Masked weights are another thing: they are shuffled with their zeros. So an explainer that is not gateable is a
        weaker control of parameter SenC.
        """
        return self.explainer.gateable

    @property
    def has_signs(self) -> bool | None:  # type: ignore[override]
        return self.explainer.has_signs

    @property
    def measures(self) -> Measure:  # type: ignore[override]
        return self.explainer.measures

    @property
    def scale_of_values(self) -> ValueScale:
        return self.explainer.scale_of_values

    @property
    def rows_per_input(self) -> int:
        return self.explainer.rows_per_input

    def count_rows_of(self, inputs: Tensor) -> int:
        return self.explainer.count_rows_of(inputs)

    @property
    def batches(self) -> int:  # type: ignore[override]
        return self.explainer.batches

    @property
    def label(self) -> str:
        return f"{self.name}:{self.explainer.label}"

    def check_classifier(self, model: Model) -> None:
        """Raise `ArgumentError` if the model has no parameters, or the explainer does not fit it."""
        if next(model.module.parameters(), None) is None:
            super().check_classifier(model)
        self.explainer.check_classifier(model)

    def attribute(
        self, model: Model, x: Tensor, targets: Tensor | None, *, create_graph: bool = False
    ) -> Explanation:
        self._check_graph(create_graph)
        logits, classes = self._predict(model, x, targets)
        with self.shuffling(model.module):
            return self.explainer.attribute(model, x, classes)[0], logits

    def fixed_part(self, inputs: Tensor) -> Tensor | None:
        return self.explainer.fixed_part(inputs)

    def attribute_copies(
        self, model: Model, x: Tensor, targets: Tensor | None, fixed: Tensor
    ) -> Explanation:
        logits, classes = self._predict(model, x, targets)
        with self.shuffling(model.module):
            return self.explainer.attribute_copies(model, x, classes, fixed)[0], logits

    def _predict(self, model: Model, x: Tensor, targets: Tensor | None) -> tuple[Tensor, Tensor]:
        """The model's own logits, and the classes to explain."""
        with torch.no_grad():
            logits = model.forward(x.detach().clone())
        if targets is None:
            targets = model.task.answer(logits)
        return logits, targets

    @contextlib.contextmanager
    def shuffling(self, module: nn.Module) -> Iterator[None]:
        """Inside, the parameters have their shuffled values; afterwards their own, also after an exception."""
        parameters = list(_select_parameters(module, self.layers).values())
        expected = "a module with parameters to shuffle"
        check(len(parameters) > 0, "model", expected, module_name(module))
        shuffled = _shuffle(module, parameters, self.layers, self.seed)
        originals = [parameter.data for parameter in parameters]
        try:
            _set_values(parameters, shuffled)
            yield
        finally:
            try:
                _set_values(parameters, originals)
            finally:  # also after a Ctrl-C in the line above
                _set_values(parameters, originals)


def _set_values(parameters: list[nn.Parameter], values: list[Tensor]) -> None:
    for parameter, new_values in zip(parameters, values, strict=True):
        parameter.data = new_values


def _select_parameters(module: nn.Module, layers: int | None) -> dict[str, nn.Parameter]:
    """The floating-point parameters of the last `layers` layers that have some, by name; shared ones once."""
    owners: dict[str, list[str]] = {}
    by_name = {
        n: p for n, p in module.named_parameters() if p.is_floating_point() or p.is_complex()
    }
    for name in by_name:
        owners.setdefault(name.rpartition(".")[0], []).append(name)
    chosen = list(owners.values())
    if layers is not None:
        chosen = chosen[-layers:]
    return {name: by_name[name] for names in chosen for name in names}


#: the orders of the values of each parameter that are shuffled, for each module, number of layers and seed
_ORDERS: WeakKeyDictionary[nn.Module, dict[tuple[int | None, int], list[Tensor]]] = (
    WeakKeyDictionary()
)


def _shuffle(
    module: nn.Module, parameters: list[nn.Parameter], layers: int | None, seed: int
) -> list[Tensor]:
    """The shuffled values of the parameters.

    Each parameter has an order of its own, from the seed and its place, counted from the output. So a longer cascade
    shuffles the last layers as a shorter one does.
    """
    orders_of_module = _ORDERS.setdefault(module, {})
    orders = orders_of_module.get((layers, seed), [])
    sizes = [(parameter.numel(), parameter.device) for parameter in parameters]
    if [(order.numel(), order.device) for order in orders] != sizes:
        # the same numbers whatever the device
        numbers = torch.arange(len(parameters), 0, -1)
        mixed_seed = mix64(torch.tensor([seed]))
        keys = mix64(mixed_seed + numbers).tolist()
        orders = []
        for key, parameter in zip(keys, parameters, strict=True):
            generator = torch.Generator().manual_seed(key & ((1 << 63) - 1))
            orders.append(
                send(torch.randperm(parameter.numel(), generator=generator), parameter.device)
            )
        orders_of_module[layers, seed] = orders
    pairs = zip(parameters, orders, strict=True)
    return [
        parameter.data.reshape(-1)[order].reshape(parameter.shape) for parameter, order in pairs
    ]
