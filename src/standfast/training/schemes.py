"""Training schemes by name: `build(schemes, "pgd:radius=0.3,steps=7")`.

Let L(w, x, y) be the cross-entropy and H its matrix of second derivatives by x. Each scheme minimises the mean over the
data of

    natural             L(w, x, y)
    gradient_hessian    L(w, x, y) + gradient_weight ||grad_x L||_2 + hessian_weight ||H||_F
    pgd                 clean_share L(w, x, y) + (1 - clean_share) max { L(w, x + d, y) : ||d|| <= radius }
    ig_norm             L(w, x, y) + weight max { ||IG(x, x + d)||_1 : ||d||_inf <= radius }
    ig_sum_norm         max { L(w, x + d, y) + weight ||IG(x, x + d)||_1 : ||d||_inf <= radius }
    calibrated          L(w, x, y) + weight (p_1(x) - f(x))^2

where IG(x, x') are the integrated gradients of L on the segment from x to x'.

- The norms of derivatives come from `standfast.training.regularization`; that of the Hessian is estimated with
  Hutchinson's probes.
- The maximum of `pgd` is approximated by projected gradient ascent in `standfast.training.adversarial`.
- The integrated gradients, and the maxima of `ig_norm` and `ig_sum_norm`, come from
  `standfast.training.attribution_regularization`.
- p_1 is the probability of class 1 of two classes, and f its target: see `standfast.training.calibration`.

Sources: for the first three, Huang, Zhao, Jin and Huang, "SAFARI: versatile and efficient evaluations for robustness of
interpretability" (ICCV 2023), Sec. 6.5, Proposition 1 and Table 3; the paper does not give its weights, so these are
ours. For the next two, Chen, Wu, Rastogi, Liang and Jha, "Robust attribution regularization" (NeurIPS 2019), with the
weights of its experiments. For the last, Wei, Turbe and Mengaldo (2024), App. D.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import ClassVar

from torch.nn import functional as F

from standfast.errors import check, check_choice, check_integer, check_number
from standfast.neighbourhoods import Bounds, L2Ball, LinfBall
from standfast.registry import Registry
from standfast.training.adversarial import Pgd
from standfast.training.attribution_regularization import AttributionAscent, compute_loss_path
from standfast.training.calibration import Calibrated
from standfast.training.objective import LossPart, Scheme, TrainingBatch, compute_cross_entropy
from standfast.training.objective import Natural as Natural
from standfast.training.regularization import InputDerivatives

schemes: Registry[type[Scheme]] = Registry("training scheme")
schemes.add("calibrated", Calibrated)
schemes.add("natural", Natural)


@schemes.register("gradient_hessian")
@dataclass(frozen=True)
class GradientHessian(Scheme):
    """Cross-entropy plus the 2-norm of its gradient by the input and an estimate of the norm of its Hessian.

    Both norms come from one forward pass and one first derivative; a norm of weight 0 is not computed.

    Args:
        gradient_weight: of the gradient's norm, at least 0.
        hessian_weight: of the Hessian's Frobenius norm, at least 0.
        probes: Hessian-vector products per input and step; each costs about two forward and backward passes.

    >>> GradientHessian(hessian_weight=0.0).describe()
    'gradient and Hessian norm: cross-entropy + 0.1 x 2-norm of its input gradient'
    >>> GradientHessian(gradient_weight=0.0, probes=2).describe()
    'gradient and Hessian norm: cross-entropy + 0.1 x Frobenius norm of its input Hessian (2 Hutchinson probes)'
    """

    name = "gradient_hessian"
    differentiates = True
    gradient_weight: float = 0.1
    hessian_weight: float = 0.1
    probes: int = 1

    def __post_init__(self) -> None:
        check_number(self.gradient_weight, "gradient_weight", least=0)
        check_number(self.hessian_weight, "hessian_weight", least=0)
        check_integer(self.probes, "probes")

    def parts(self, batch: TrainingBatch) -> Iterator[LossPart]:
        inputs = batch.inputs.detach().requires_grad_()
        logits = batch.logits(inputs)
        derivatives = InputDerivatives(
            F.cross_entropy(logits, batch.labels, reduction="none"), inputs
        )
        # a norm of weight 0 costs derivatives for nothing
        penalties = []
        if self.gradient_weight:
            penalties.append(self.gradient_weight * derivatives.compute_gradient_norms())
        if self.hessian_weight:
            norms = derivatives.compute_hessian_norms(self.probes, batch.generator)
            penalties.append(self.hessian_weight * norms)
        yield LossPart((derivatives.losses + sum(penalties)).mean(), logits, 1.0)

    def describe(self) -> str:
        words = ["cross-entropy"]
        if self.gradient_weight:
            words.append(f"{self.gradient_weight:g} x 2-norm of its input gradient")
        if self.hessian_weight:
            plural = "s" if self.probes > 1 else ""
            probes = f"{self.probes} Hutchinson probe{plural}"
            words.append(
                f"{self.hessian_weight:g} x Frobenius norm of its input Hessian ({probes})"
            )
        return f"gradient and Hessian norm: {' + '.join(words)}"


@schemes.register("pgd")
@dataclass(frozen=True)
class Adversarial(Scheme):
    """Adversarial training: cross-entropy of inputs perturbed by projected gradient ascent (Madry et al. 2018).

    Args:
        radius: of the ball, above 0, in the units of the inputs.
        norm: "linf" or "l2".
        steps: of the ascent, at least 1.
        step: the length of each step in that norm, above 0; by default 2.5 radius / steps.
        clean_share: the share of the loss, in [0, 1], for the clean inputs.
        warm_up: epochs over which the radius and `step` grow linearly from 0. A small network that is trained with the
            full ball from the start may remain a constant function.

    >>> Adversarial(radius=0.3, steps=5, warm_up=2).attack((0.0, 1.0)).step
    0.15
    """

    name = "pgd"
    radius: float = 0.3
    norm: str = "linf"
    steps: int = 7
    step: float | None = None
    clean_share: float = 0.0
    warm_up: float = 0.0

    def __post_init__(self) -> None:
        check_choice(self.norm, "norm", ("linf", "l2"))
        _check_ascent(self.radius, self.steps, self.step, self.warm_up)
        check_number(self.clean_share, "clean_share", least=0)
        check(self.clean_share <= 1, "clean_share", "a share in [0, 1]", self.clean_share)

    def attack(self, bounds: Bounds, share: float = 1.0) -> Pgd:
        """The ascent within `share` times the radius and the bounds of the inputs."""
        kind = LinfBall if self.norm == "linf" else L2Ball
        ball = kind(share * self.radius)
        return Pgd(
            ball,
            # a smaller ball needs shorter steps
            self.steps,
            share * _choose_step_length(self.radius, self.steps, self.step),
            bounds,
        )

    def parts(self, batch: TrainingBatch) -> Iterator[LossPart]:
        attack = self.attack(batch.bounds, _compute_warm_up(self.warm_up, batch))
        with batch.autocast():
            perturbed = attack.ascend(batch.module, batch.inputs, batch.labels, batch.generator)
        # each part only where it counts, as each is a forward and a backward pass
        if self.clean_share > 0:
            yield compute_cross_entropy(batch, batch.inputs, self.clean_share)
        if self.clean_share < 1:
            yield compute_cross_entropy(batch, perturbed, 1 - self.clean_share)

    def describe(self) -> str:
        attack = self.attack((-math.inf, math.inf)).describe()
        mix = f", {self.clean_share:g} of the loss on clean ones" if self.clean_share else ""
        warm_up = _describe_warm_up(self.warm_up)
        return f"adversarial: cross-entropy of inputs after {attack}{warm_up}{mix}"


@dataclass(frozen=True)
class _AttributionScheme(Scheme):
    """Cross-entropy plus integrated gradients of its change, at perturbed inputs that make them large."""

    differentiates = True
    title: ClassVar[str]
    # whether the cross-entropy is that of the perturbed inputs, and part of the maximum
    joint: ClassVar[bool]

    radius: float = 0.3
    weight: float = 1.0
    steps: int = 7
    step: float | None = None
    points: int = 10
    points_in_attack: int = 5
    warm_up: float = 0.0

    def __post_init__(self) -> None:
        _check_ascent(self.radius, self.steps, self.step, self.warm_up)
        check_number(self.weight, "weight", least=0)
        check_integer(self.points, "points", 2)
        check_integer(self.points_in_attack, "points_in_attack", 2)

    def attack(self, bounds: Bounds, share: float = 1.0) -> AttributionAscent:
        """The ascent within `share` times the radius and the bounds of the inputs."""
        length = _choose_step_length(self.radius, self.steps, self.step)
        loss_weight, norm_weight = (1.0, self.weight) if self.joint else (0.0, 1.0)
        return AttributionAscent(
            share * self.radius,
            self.steps,
            share * length,
            self.points_in_attack,
            loss_weight,
            norm_weight,
            bounds,
        )

    def parts(self, batch: TrainingBatch) -> Iterator[LossPart]:
        """The loss in one part; the accuracy is that of the inputs whose cross-entropy is in the loss."""
        attack = self.attack(batch.bounds, _compute_warm_up(self.warm_up, batch))
        with batch.autocast():
            perturbed = attack.ascend(batch.module, batch.inputs, batch.labels, batch.generator)
        path = compute_loss_path(
            batch.logits, batch.inputs, perturbed, batch.labels, points=self.points
        )
        end = -1 if self.joint else 0
        yield LossPart(
            (path.losses[:, end] + self.weight * path.norms()).mean(), path.logits[:, end], 1.0
        )

    def describe(self) -> str:
        norm = f"{self.weight:g} x 1-norm of its integrated gradients from the inputs to"
        what = f"of perturbed inputs + {norm} them" if self.joint else f"+ {norm} perturbed ones"
        attack = self.attack((-math.inf, math.inf)).describe() + _describe_warm_up(self.warm_up)
        return f"{self.title}: cross-entropy {what} ({self.points} points); perturbed by {attack}"


@schemes.register("ig_norm")
@dataclass(frozen=True)
class IgNorm(_AttributionScheme):
    """Cross-entropy plus the 1-norm of the integrated gradients of its change, maximised nearby (Chen et al. 2019).

    Args:
        radius: of the ball in the maximum norm, above 0, in the units of the inputs.
        weight: of the norm, at least 0.
        steps: of the ascent, at least 1. Chen et al. take 40 steps of 0.01 for MNIST; a few larger steps come close.
        step: the length of each step in every feature, above 0; by default 2.5 radius / steps.
        points: on each path, including both ends, at least 2, for the loss. Chen et al. take 50.
        points_in_attack: the same for the ascent, which takes most of the time. Chen et al. take 10.
        warm_up: epochs over which the radius and `step` grow linearly from 0.

    >>> IgNorm(radius=0.3, steps=5).attack((0.0, 1.0)).step
    0.15
    """

    name = "ig_norm"
    title = "IG-NORM"
    joint = False


@schemes.register("ig_sum_norm")
@dataclass(frozen=True)
class IgSumNorm(_AttributionScheme):
    """The maximum nearby of cross-entropy plus `weight` times the 1-norm of `IgNorm` (Chen et al. 2019).

    Both terms are at the same perturbed input. Options as for `IgNorm`. With a weight of 0 it is `Adversarial`, except
    for the start of the ascent.

    >>> IgSumNorm(weight=0.5, points=8).describe()
    'IG-SUM-NORM: cross-entropy of perturbed inputs + 0.5 x 1-norm of its integrated gradients from the inputs to...'
    """

    name = "ig_sum_norm"
    title = "IG-SUM-NORM"
    joint = True
    weight: float = 0.1


def spell_scheme(scheme: Scheme) -> str:
    """The text from which `build` makes the scheme: its name, and the options that differ from their defaults.

    >>> spell_scheme(Adversarial(radius=0.1, norm="l2")), spell_scheme(Natural())
    ('pgd:radius=0.1,norm=l2', 'natural')
    """
    options = []
    for option in fields(scheme):  # type: ignore[arg-type]
        value = getattr(scheme, option.name)
        if value != option.default:
            options.append(f"{option.name}={value}")
    if not options:
        return scheme.name
    return f"{scheme.name}:{','.join(options)}"


def _check_ascent(radius: float, steps: int, step: float | None, warm_up: float) -> None:
    check_number(radius, "radius", above=0)
    check_integer(steps, "steps")
    check_number(_choose_step_length(radius, steps, step), "step", above=0)
    check_number(warm_up, "warm_up", least=0)


def _choose_step_length(radius: float, steps: int, step: float | None) -> float:
    """The length of a step; by default all steps together are a bit longer than the diameter of the ball."""
    # 2.5 times the radius, as of the ball's two sides and a little more
    return 2.5 * radius / steps if step is None else step


def _compute_warm_up(warm_up: float, batch: TrainingBatch) -> float:
    """The share of the radius for this batch."""
    return 1.0 if warm_up == 0 else min(1.0, batch.epoch / warm_up)


def _describe_warm_up(warm_up: float) -> str:
    if not warm_up:
        return ""
    plural = "s" if warm_up != 1 else ""
    return f", the radius growing over {warm_up:g} epoch{plural}"
