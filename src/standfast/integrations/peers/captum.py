"""The metrics of Captum as peer metrics, with Captum's options and defaults."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version as installed
from typing import Any

import torch
from torch import Tensor

from standfast.errors import MissingExtraError, check, check_integer, is_number
from standfast.integrations.peers.base import PeerMetric
from standfast.integrations.peers.sample import Sample


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


def names() -> list[str]:
    """The names of its metrics, all of which can be used here."""
    return list(metrics())


@dataclass(frozen=True)
class _CaptumMetric(PeerMetric):
    stated = "lower"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value in self.list_options().items():
            if name == "n_perturb_samples":
                check_integer(value, name)
            if name in ("noise", "perturb_radius"):
                fine = is_number(value) and 0 <= value < float("inf")
                check(fine, name, "a finite number of at least 0", repr(value))

    def list_options(self) -> dict[str, Any]:
        """The options that are not None, which stands for Captum's default."""
        of_all_peers = {field.name for field in dataclasses.fields(PeerMetric)}
        names = [field.name for field in dataclasses.fields(self) if field.name not in of_all_peers]
        options = {name: getattr(self, name) for name in names}
        return {name: value for name, value in options.items() if value is not None}


@dataclass(frozen=True)
class Infidelity(_CaptumMetric):
    """Captum has no default perturbation: without one it is normal noise with the standard deviation `noise`."""

    perturb_func: Callable[..., Any] | None = None
    n_perturb_samples: int = 10
    normalize: bool = False
    noise: float = 0.1

    def score_one(self, sample: Sample) -> object:
        options = {"perturb_func": self._perturb, **self.list_options()}
        # an option of ours, which Captum does not know
        del options["noise"]
        explained = {"inputs": sample.inputs, "attributions": sample.maps, "target": sample.targets}
        with torch.no_grad():
            return metrics()["infidelity"](sample.module, **explained, **options)

    def _perturb(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Normal noise `I`, and the input less the noise, for `E (I . a - (f(x) - f(x - I)))^2`."""
        noise = torch.randn_like(inputs) * self.noise
        return noise, inputs - noise


@dataclass(frozen=True)
class SensitivityMax(_CaptumMetric):
    """The largest change of the explanation nearby."""

    perturb_func: Callable[..., Any] | None = None
    perturb_radius: float = 0.02
    n_perturb_samples: int = 10
    norm_ord: str | float = "fro"

    def score_one(self, sample: Sample) -> object:
        def explain(inputs: Tensor | tuple[Tensor, ...]) -> Tensor | tuple[Tensor]:
            # return a tuple for a tuple: Captum would iterate over a tensor as if it were a tuple
            if isinstance(inputs, tuple):
                return (sample.explain(inputs[0], sample.targets),)
            return sample.explain(inputs, sample.targets)

        return metrics()["sensitivity_max"](explain, sample.inputs, **self.list_options())


def describe(title: str) -> tuple[type[PeerMetric], list[tuple[str, Any, Any]], dict[str, Any]]:
    """The base class of a metric, further options as dataclass fields, and class attributes: there are none."""
    return {"infidelity": Infidelity, "sensitivity_max": SensitivityMax}[title], [], {}
