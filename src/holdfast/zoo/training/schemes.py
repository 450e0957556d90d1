"""Training schemes by name: `build(schemes, "pgd:radius=0.3,steps=7")`.

With L(w, x, y) the cross-entropy and H its matrix of second derivatives with respect to x, each minimises the mean over
the data of

    natural             L(w, x, y)
    gradient_norm       L(w, x, y) + weight ||grad_x L||_2
    hessian_norm        L(w, x, y) + weight ||H||_F
    gradient_hessian    L(w, x, y) + gradient_weight ||grad_x L||_2 + hessian_weight ||H||_F
    pgd                 clean_share L(w, x, y) + (1 - clean_share) max { L(w, x + d, y) : ||d|| <= radius }
    ig_norm             L(w, x, y) + weight max { ||IG(x, x + d)||_1 : ||d||_inf <= radius }
    ig_sum_norm         max { L(w, x + d, y) + weight ||IG(x, x + d)||_1 : ||d||_inf <= radius }
    calibrated          L(w, x, y) + weight (p_1(x) - f(x))^2

with IG(x, x') the integrated gradients of L on the segment from x to x'. The norms of derivatives are those of
`holdfast.zoo.training.regularization` (the Hessian's by Hutchinson's probes), integrated gradients those of
`holdfast.zoo.training.attribution_regularization`; the maxima are what projected gradient ascent finds, there for
these two
and in `holdfast.zoo.training.adversarial`. p_1 is the probability of class 1 of two, and f where it should be: see
`holdfast.zoo.training.calibration`.

Sources: Huang, Zhao, Jin and Huang, "SAFARI: versatile and efficient evaluations for robustness of interpretability"
(ICCV 2023), Sec. 6.5, Proposition 1 and Table 3, for the first five; the weights are ours: the paper does not print its
own. Chen, Wu, Rastogi, Liang and Jha, "Robust attribution regularization" (NeurIPS 2019), for the next two, with the
weights of its experiments. Wei, Turbe and Mengaldo (2024), App. D, for the last.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from torch import Tensor
from torch.nn import functional as F

from holdfast.errors import check, check_integer
from holdfast.neighbourhood import Bounds, L2Ball, LinfBall
from holdfast.registry import Registry
from holdfast.zoo.training.adversarial import Pgd
from holdfast.zoo.training.attribution_regularization import AttributionAscent, loss_path
from holdfast.zoo.training.calibration import Calibrated
from holdfast.zoo.training.objective import Batch, Mixed, Part, Scheme
from holdfast.zoo.training.regularization import InputDerivatives

schemes: Registry[type[Scheme]] = Registry("training scheme")
schemes.add("calibrated", Calibrated)


@schemes.register("natural")
@dataclass(frozen=True)
class Natural(Scheme):
    """Cross-entropy, and nothing else.

    >>> Natural().describe()
    'natural: cross-entropy'
    """

    name: ClassVar[str] = "natural"

    def parts(self, batch: Batch) -> Iterator[Part]:
        """See `Scheme`."""
        yield from Mixed().parts(batch)

    def describe(self) -> str:
        """See `Scheme`."""
        return "natural: cross-entropy"


class _Penalised(Scheme):
    """Cross-entropy and norms of its derivatives: one forward pass and one first derivative for all of it."""

    differentiates: ClassVar[bool] = True

    def parts(self, batch: Batch) -> Iterator[Part]:
        """See `Scheme`."""
        inputs = batch.inputs.detach().requires_grad_()
        logits = batch.logits(inputs)
        derivatives = InputDerivatives(F.cross_entropy(logits, batch.labels, reduction="none"), inputs)
        yield Part((derivatives.losses + self._penalties(derivatives, batch)).mean(), logits, 1.0)

    def _penalties(self, derivatives: InputDerivatives, batch: Batch) -> Tensor:
        """`(N,)`, to add to the losses."""
        raise NotImplementedError


@schemes.register("gradient_norm")
@dataclass(frozen=True)
class GradientNorm(_Penalised):
    """Cross-entropy and the 2-norm of its gradient with respect to the input.

    Args:
        weight: of the norm, at least 0.
        squared: take the norm's square instead.

    >>> GradientNorm(weight=0.1).describe()
    'gradient norm: cross-entropy + 0.1 x 2-norm of its input gradient'
    """

    name: ClassVar[str] = "gradient_norm"
    weight: float = 0.1
    squared: bool = False

    def __post_init__(self) -> None:
        _check_weight("weight", self.weight)
        _check_flag("squared", self.squared)

    def _penalties(self, derivatives: InputDerivatives, batch: Batch) -> Tensor:
        return self.weight * derivatives.gradient_norms(squared=self.squared)

    def describe(self) -> str:
        """See `Scheme`."""
        return f"gradient norm: cross-entropy + {self.weight:g} x {_power(self.squared)}2-norm of its input gradient"


@schemes.register("hessian_norm")
@dataclass(frozen=True)
class HessianNorm(_Penalised):
    """Cross-entropy and an estimate of the Frobenius norm of its Hessian with respect to the input.

    Args:
        weight: of the norm, at least 0.
        probes: Hessian-vector products per input and step; each costs about two forward and backward passes.
        squared: take the norm's square instead, whose estimate is unbiased.

    >>> HessianNorm(weight=0.1, probes=2).describe()
    'Hessian norm: cross-entropy + 0.1 x Frobenius norm of its input Hessian (2 Hutchinson probes)'
    """

    name: ClassVar[str] = "hessian_norm"
    weight: float = 0.1
    probes: int = 1
    squared: bool = False

    def __post_init__(self) -> None:
        _check_weight("weight", self.weight)
        _check_count("probes", self.probes)
        _check_flag("squared", self.squared)

    def _penalties(self, derivatives: InputDerivatives, batch: Batch) -> Tensor:
        return self.weight * derivatives.hessian_norms(self.probes, batch.generator, squared=self.squared)

    def describe(self) -> str:
        """See `Scheme`."""
        norm = f"{_power(self.squared)}Frobenius norm of its input Hessian ({_probes(self.probes)})"
        return f"Hessian norm: cross-entropy + {self.weight:g} x {norm}"


@schemes.register("gradient_hessian")
@dataclass(frozen=True)
class GradientHessian(_Penalised):
    """Cross-entropy and both norms, as `GradientNorm` and `HessianNorm` have them, for the price of the latter.

    >>> GradientHessian(gradient_weight=0.1, hessian_weight=0.2).describe()
    'gradient and Hessian norm: cross-entropy + 0.1 x 2-norm of its input gradient + 0.2 x Frobenius norm of its...'
    """

    name: ClassVar[str] = "gradient_hessian"
    gradient_weight: float = 0.1
    hessian_weight: float = 0.1
    probes: int = 1
    squared: bool = False

    def __post_init__(self) -> None:
        _check_weight("gradient_weight", self.gradient_weight)
        _check_weight("hessian_weight", self.hessian_weight)
        _check_count("probes", self.probes)
        _check_flag("squared", self.squared)

    def _penalties(self, derivatives: InputDerivatives, batch: Batch) -> Tensor:
        gradient = derivatives.gradient_norms(squared=self.squared)
        hessian = derivatives.hessian_norms(self.probes, batch.generator, squared=self.squared)
        return self.gradient_weight * gradient + self.hessian_weight * hessian

    def describe(self) -> str:
        """See `Scheme`."""
        power = _power(self.squared)
        return (
            f"gradient and Hessian norm: cross-entropy + {self.gradient_weight:g} x {power}2-norm of its input gradient"
            f" + {self.hessian_weight:g} x {power}Frobenius norm of its input Hessian ({_probes(self.probes)})"
        )


@schemes.register("pgd")
@dataclass(frozen=True)
class Adversarial(Scheme):
    """Cross-entropy of the inputs that projected gradient ascent finds (Madry et al. 2018).

    Args:
        radius: of the ball, above 0, in the units of the inputs.
        norm: "linf" or "l2".
        steps: of the ascent, at least 1.
        step: the length of each in that norm, above 0; 2.5 radius / steps by default.
        clean_share: of the loss, in [0, 1], for the inputs as they are.
        warm_up: epochs over which the radius (and `step` with it) grows linearly from 0; a small network that meets
            the full ball at once may never leave the constant function.

    >>> Adversarial(radius=0.3, steps=5, warm_up=2).attack((0.0, 1.0)).step
    0.15
    """

    name: ClassVar[str] = "pgd"
    radius: float = 0.3
    norm: str = "linf"
    steps: int = 7
    step: float | None = None
    clean_share: float = 0.0
    warm_up: float = 0.0

    def __post_init__(self) -> None:
        check(self.norm in ("linf", "l2"), "norm", "linf or l2", repr(self.norm))
        _check_ascent(self.radius, self.steps, self.step, self.warm_up)
        share = _is_number(self.clean_share) and 0 <= self.clean_share <= 1
        check(share, "clean_share", "a share in [0, 1]", self.clean_share)

    def attack(self, bounds: Bounds, share: float = 1.0) -> Pgd:
        """The ascent in this share of the radius, within the bounds of the inputs."""
        ball = LinfBall(share * self.radius) if self.norm == "linf" else L2Ball(share * self.radius)
        return Pgd(ball, self.steps, share * _length(self.radius, self.steps, self.step), bounds)

    def parts(self, batch: Batch) -> Iterator[Part]:
        """See `Scheme`."""
        return Mixed(self.attack(batch.bounds, _warmth(self.warm_up, batch)).ascent, self.clean_share).parts(batch)

    def describe(self) -> str:
        """See `Scheme`."""
        attack = self.attack((-math.inf, math.inf)).describe()
        mix = f", {self.clean_share:g} of the loss on clean ones" if self.clean_share else ""
        return f"adversarial: cross-entropy of inputs after {attack}{_growth(self.warm_up)}{mix}"


class _Attributed(Scheme):
    """Cross-entropy and the integrated gradients of its change, at perturbed inputs where they are large."""

    differentiates: ClassVar[bool] = True
    title: ClassVar[str]
    joint: ClassVar[bool]  # whether the cross-entropy is that of the perturbed inputs, and part of the maximum

    radius: float
    weight: float
    steps: int
    step: float | None
    points: int
    points_in_attack: int
    warm_up: float

    def __post_init__(self) -> None:
        _check_ascent(self.radius, self.steps, self.step, self.warm_up)
        _check_weight("weight", self.weight)
        for option in ("points", "points_in_attack"):
            value = getattr(self, option)
            check_integer(value, option, 2)

    def attack(self, bounds: Bounds, share: float = 1.0) -> AttributionAscent:
        """The ascent in this share of the radius, within the bounds of the inputs."""
        length = _length(self.radius, self.steps, self.step)
        loss_weight, norm_weight = (1.0, self.weight) if self.joint else (0.0, 1.0)
        return AttributionAscent(
            share * self.radius, self.steps, share * length, self.points_in_attack, loss_weight, norm_weight, bounds
        )

    def parts(self, batch: Batch) -> Iterator[Part]:
        """See `Scheme`; the accuracy is that of the inputs whose cross-entropy is in the loss."""
        attack = self.attack(batch.bounds, _warmth(self.warm_up, batch))
        with batch.autocast():
            perturbed = attack.ascent(batch.module, batch.inputs, batch.labels, batch.generator)
        path = loss_path(batch.logits, batch.inputs, perturbed, batch.labels, points=self.points)
        end = -1 if self.joint else 0
        yield Part((path.losses[:, end] + self.weight * path.norms()).mean(), path.logits[:, end], 1.0)

    def describe(self) -> str:
        """See `Scheme`."""
        norm = f"{self.weight:g} x 1-norm of its integrated gradients from the inputs to"
        what = f"of perturbed inputs + {norm} them" if self.joint else f"+ {norm} perturbed ones"
        attack = self.attack((-math.inf, math.inf)).describe() + _growth(self.warm_up)
        return f"{self.title}: cross-entropy {what} ({self.points} points); perturbed by {attack}"


@schemes.register("ig_norm")
@dataclass(frozen=True)
class IgNorm(_Attributed):
    """Cross-entropy and the greatest 1-norm nearby of the integrated gradients of its change (Chen et al. 2019).

    Args:
        radius: of the ball in the maximum norm, above 0, in the units of the inputs.
        weight: of the norm, at least 0.
        steps: of the ascent, at least 1. Chen et al. take 40 of 0.01 for MNIST, which few larger ones come close to.
        step: the length of each in every feature, above 0; 2.5 radius / steps by default.
        points: on each path, both ends among them, at least 2, for the loss. Chen et al. take 50.
        points_in_attack: the same in the ascent, where most of the time goes. Chen et al. take 10.
        warm_up: epochs over which the radius (and `step` with it) grows linearly from 0.

    >>> IgNorm(radius=0.3, steps=5).attack((0.0, 1.0)).step
    0.15
    """

    name: ClassVar[str] = "ig_norm"
    title: ClassVar[str] = "IG-NORM"
    joint: ClassVar[bool] = False
    radius: float = 0.3
    weight: float = 1.0
    steps: int = 7
    step: float | None = None
    points: int = 10
    points_in_attack: int = 5
    warm_up: float = 0.0


@schemes.register("ig_sum_norm")
@dataclass(frozen=True)
class IgSumNorm(_Attributed):
    """The greatest nearby of cross-entropy and `weight` times that 1-norm, at the same perturbed input (Chen et al.).

    Options as for `IgNorm`. A weight of 0 is `Adversarial`, but for the start of the ascent.

    >>> IgSumNorm(weight=0.5, points=8).describe()
    'IG-SUM-NORM: cross-entropy of perturbed inputs + 0.5 x 1-norm of its integrated gradients from the inputs to...'
    """

    name: ClassVar[str] = "ig_sum_norm"
    title: ClassVar[str] = "IG-SUM-NORM"
    joint: ClassVar[bool] = True
    radius: float = 0.3
    weight: float = 0.1
    steps: int = 7
    step: float | None = None
    points: int = 10
    points_in_attack: int = 5
    warm_up: float = 0.0


def spelled(scheme: Scheme) -> str:
    """The text that builds the scheme, with the options that are not the default.

    >>> spelled(Adversarial(radius=0.1, norm="l2")), spelled(Natural())
    ('pgd:radius=0.1,norm=l2', 'natural')
    """
    options: dict[str, Any] = {}
    for each in fields(scheme):  # type: ignore[arg-type]
        value = getattr(scheme, each.name)
        if value != each.default:
            options[each.name] = value
    return scheme.name + (":" + ",".join(f"{key}={value}" for key, value in options.items()) if options else "")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check_weight(option: str, value: float) -> None:
    check(_is_number(value) and 0 <= value < math.inf, option, "a finite number of at least 0", repr(value))


def _check_count(option: str, value: int) -> None:
    check_integer(value, option)


def _check_flag(option: str, value: bool) -> None:
    check(isinstance(value, bool), option, "True or False", repr(value))


def _check_ascent(radius: float, steps: int, step: float | None, warm_up: float) -> None:
    check(_is_number(radius) and 0 < radius < math.inf, "radius", "a finite number above 0", radius)
    _check_count("steps", steps)
    usable = step is None or (_is_number(step) and 0 < step < math.inf)
    check(usable, "step", "a finite number above 0", step)
    check(_is_number(warm_up) and 0 <= warm_up < math.inf, "warm_up", "epochs, at least 0", warm_up)


def _length(radius: float, steps: int, step: float | None) -> float:
    """Of a step, so that all of them together can cross the ball and come back a little."""
    return 2.5 * radius / steps if step is None else step


def _warmth(warm_up: float, batch: Batch) -> float:
    """The share of the radius that this batch is perturbed by."""
    return 1.0 if warm_up == 0 else min(1.0, batch.epoch / warm_up)


def _growth(warm_up: float) -> str:
    return f", the radius growing over {warm_up:g} epoch{'s' if warm_up != 1 else ''}" if warm_up else ""


def _power(squared: bool) -> str:
    return "squared " if squared else ""


def _probes(count: int) -> str:
    return f"{count} Hutchinson probe{'s' if count > 1 else ''}"
