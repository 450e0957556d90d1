"""Explainers from the package zennit: rules of layer-wise relevance propagation, registered for each call."""

from __future__ import annotations

from dataclasses import dataclass
from inspect import Parameter
from typing import Any, ClassVar, Literal, get_args

from torch import Tensor
from torch.nn.functional import one_hot

from standfast.errors import ModelError, check, check_choice
from standfast.explainers.adapters.base import ForeignExplainer, check_own_module, find_class
from standfast.explainers.base import join_preprocessing
from standfast.model import Model

Start = Literal["one", "logit"]


@dataclass(frozen=True)
class ZennitExplainer(ForeignExplainer):
    """An explainer that calls an attributor of zennit with a composite; made by `from_zennit`."""

    composite: Any = None
    start: Start = "one"
    name: ClassVar[str] = "zennit"
    needs: ClassVar[str] = "gradients"
    package: ClassVar[str] = "zennit"
    home: ClassVar[str] = "zennit.attribution"
    built_on = (("model",), ("composite",))
    passed = ("attr_output",)

    @classmethod
    def list_parameters(cls, method: Any) -> dict[str, Parameter]:
        """None: all options are those of the constructor."""
        return {}

    @property
    def rules(self) -> Any:
        """The composite; that of a ready attributor is its own."""
        return self.composite if isinstance(self.method, type) else getattr(self.method, "composite", None)

    @property
    def label(self) -> str:
        return super().label + ("" if self.rules is None else f".{type(self.rules).__name__}")

    @property
    def uses_hooks(self) -> bool:
        return self.rules is not None

    def explain(self, model: Model, rows: Tensor, targets: Tensor) -> Tensor:
        attributor = self.method
        if isinstance(attributor, type):
            module = join_preprocessing(model)
            attributor = attributor(model=module, composite=self.composite, **self.constructor_options)
        else:
            check_own_module(self.label, attributor.model, model)

        def relevance(logits: Tensor) -> Tensor:
            mask = one_hot(targets, logits.shape[1]).to(logits)
            return mask if self.start == "one" else mask * logits.detach()

        found = attributor(rows, relevance)
        if not isinstance(found, tuple | list) or len(found) != 2 or not isinstance(found[1], Tensor):
            raise ModelError(f"{self.label}: expected (output, attributions), got {type(found).__name__}")
        return found[1]


def from_zennit(
    composite: Any = None,
    method: Any = "Gradient",
    *,
    start: Start = "one",
    rows_per_input: int = 1,
    one_at_a_time: bool | None = None,
    seed: int = 0,
    **options: Any,
) -> ZennitExplainer:
    """An explainer from a composite of zennit (such as `zennit.composites.EpsilonPlusFlat()`), or from an attributor.

    The composite is registered on the model's module (with its preprocessing) for the call, and removed after it.

    Args:
        composite: an object, a class that needs no options, the name of one, or None.
        method: a class of `zennit.attribution` or its name: `"Gradient"`, `"SmoothGrad"`, `"IntegratedGradients"`,
            ...; or an object, which must have been built on the model's own module and has its own composite.
        start: the relevance of the target that is propagated: `"one"`, as in zennit's examples, or its `"logit"`.
        rows_per_input: rows forwarded at once for one input; attributors run their iterations one after the other.
        one_at_a_time: explain each input alone, with random numbers seeded by its content; by default only if the
            explanation of a chunk has drawn random numbers.
        seed: of the random numbers. The state of the global generators is restored afterwards.
        options: of the attributor's constructor.

    Raises:
        MissingExtraError: a name is given, and zennit cannot be imported.
        ArgumentError: an option that the attributor does not have; an object of another package.

    Source: Anders et al., Software for dataset-wide XAI: from local explanations to global insights with Zennit,
    CoReLay and ViRelAy, 2021, and their package.

    >>> import torch
    >>> class Gradient:  # what zennit's attributors look like
    ...     def __init__(self, model, composite=None):
    ...         self.model = model
    ...     def __call__(self, x, relevance):
    ...         out = self.model(x.requires_grad_())
    ...         return out, torch.autograd.grad(out, x, relevance(out))[0]
    >>> module = torch.nn.Linear(2, 2)
    >>> model = Model(module, bounds=(0.0, 1.0), device="cpu")
    >>> maps = from_zennit(method=Gradient)(model, torch.ones(1, 2), 1)
    >>> bool((maps == module.weight[1]).all())
    True
    """
    if isinstance(composite, str):
        composite = find_class("zennit", "zennit.composites", composite)
    if isinstance(composite, type):
        try:
            composite = composite()
        except TypeError as error:
            raise ModelError(f"composite: expected an object, since {composite} needs options: {error}") from error
    fine = composite is None or callable(getattr(composite, "register", None))
    check(fine, "composite", "a composite of zennit (with register and remove) or None", repr(composite))
    method = ZennitExplainer.find_method(method)
    fine = composite is None or isinstance(method, type)
    check(fine, "composite", "None beside a ready attributor, which has its own", "one")
    check_choice(start, "start", get_args(Start))
    own = {"composite": composite, "start": start}
    return ZennitExplainer.make(method, options, rows_per_input, one_at_a_time, seed, **own)
