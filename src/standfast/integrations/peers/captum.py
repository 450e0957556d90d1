"""The metrics of Captum as a `Source` of peer metrics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version as installed
from typing import Any, ClassVar

import torch
from torch import Tensor

from standfast.errors import MissingExtraError, check, check_integer
from standfast.integrations.peers.base import PeerMetric, read_options
from standfast.integrations.peers.sample import Sample

#: arguments that we set, or that have no effect on the value of a single sample
_OURS = frozenset(
    {
        "explanation_func",
        "forward_func",
        "inputs",
        "attributions",
        "additional_forward_args",
        "target",
        "max_examples_per_batch",
    }
)


def version() -> str:
    """The name of the package and its version."""
    return f"captum {installed('captum')}"


def metrics() -> dict[str, Callable[..., Any]]:
    """Captum's metrics by name."""
    try:
        from captum.metrics import infidelity, sensitivity_max
    except ImportError as error:
        raise MissingExtraError(f"a metric of Captum ({error})", "peers") from error
    return {"infidelity": infidelity, "sensitivity_max": sensitivity_max}


def explain_refusal(title: str) -> str:
    """The empty string: all metrics of Captum can be used here."""
    return ""


def find_direction(title: str) -> None:
    """None: Captum does not state directions."""


def make_fields(title: str) -> tuple[list[tuple[str, Any, Any]], tuple[str, ...], dict[str, Any]]:
    """The options as dataclass fields, the names of those passed to Captum, and further class attributes."""
    own = read_options(metrics()[title], _OURS)
    if title == "infidelity":
        return [*own, ("noise", float, field(default=0.1))], tuple(name for name, *_ in own), {"with_noise": True}
    # Captum's default is a function, which a study file cannot contain: None stands for it
    own = [(name, Any, field(default=None)) if name == "perturb_func" else (name, *rest) for name, *rest in own]
    return own, tuple(name for name, *_ in own), {}


@dataclass(frozen=True)
class Base(PeerMetric):
    """A metric of Captum."""

    with_noise: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        samples = getattr(self, "n_perturb_samples", 1)
        check_integer(samples, "n_perturb_samples")
        for name in ("noise", "perturb_radius"):
            value = getattr(self, name, 1.0)
            fine = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf")
            check(fine, name, "a finite number of at least 0", repr(value))

    def score_one(self, sample: Sample) -> object:
        """Captum's value of one sample."""
        options = {name: getattr(self, name) for name in self.peer_options if getattr(self, name) is not None}
        function = metrics()[self.name.partition(":")[2]]
        if not self.with_noise:

            def explain(inputs: Tensor | tuple[Tensor, ...]) -> Tensor | tuple[Tensor]:
                # return a tuple for a tuple: Captum would iterate over a tensor as if it were a tuple
                if isinstance(inputs, tuple):
                    return (sample.explain(inputs[0], sample.targets),)
                return sample.explain(inputs, sample.targets)

            return function(explain, sample.inputs, **options)
        options.setdefault("perturb_func", self._perturb)
        with torch.no_grad():
            return function(
                sample.module,
                inputs=sample.inputs,
                attributions=sample.maps,
                target=sample.targets,
                **options,
            )

    def _perturb(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Normal noise `I`, and the input less the noise, for `E (I . a - (f(x) - f(x - I)))^2`."""
        noise = torch.randn_like(inputs) * self.noise  # type: ignore[attr-defined]
        return noise, inputs - noise
