"""Training towards probabilities that say how far an input is from the boundary between two classes.

Where every training input comes with a number f in [0, 1], 0 and 1 being deep in class 0 and class 1 and 1/2 the
boundary, the loss is

    cross-entropy + weight x mean of (p_1 - f)^2

with p_1 the probability of class 1. Source: Wei, Turbe and Mengaldo, "Revisiting the robustness of post-hoc
interpretability methods" (2024), App. D, with weight 1 and f the two frequencies' sum, moved to [0, 1]. The paper has
two forms, for (p_0, 1 - f), Eq. D.1, and for (p_1, f), Eq. D.2. With two classes p_0 = 1 - p_1, so that these are the
same number: there is one scheme.

With the paper's weight the loss does not ask for p_1 = f. For a sample of class 1 it is `-log p + weight (p - f)^2`,
least at `min(1, (f + sqrt(f^2 + 2 / weight)) / 2)` (`wanted_probability`), and that is 1 for every f >= 1/2 unless the
weight is above 1 / (2 (1 - f)), so above 1 even at the boundary. Weight 1 takes away some of the pull to certainty; to
have probabilities near their places takes a weight of 10 or more.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from torch.nn import functional as F

from holdfast.errors import ModelError, check
from holdfast.zoo.training.loop import extra_of
from holdfast.zoo.training.objective import Batch, Part, Scheme


def wanted_probability(f: float, weight: float = 1.0) -> float:
    """The probability of class 1 at which the loss of a sample at `f` in [0, 1] is least; its class is 1 from 1/2 on.

    >>> [round(wanted_probability(f), 3) for f in (0.4, 0.5, 0.75)]
    [0.0, 1.0, 1.0]
    >>> [round(wanted_probability(f, 10.0), 3) for f in (0.4, 0.5, 0.75)]
    [0.326, 0.585, 0.812]
    """
    check(0 <= f <= 1, "f", "a number in [0, 1]", f)
    check(0 <= weight < math.inf, "weight", "a finite number of at least 0", weight)
    own = max(f, 1 - f)  # where the sample's own class should be
    best = 1.0 if weight == 0 else min(1.0, (own + math.sqrt(own**2 + 2 / weight)) / 2)
    return best if f >= 0.5 else 1 - best


@dataclass(frozen=True)
class Calibrated(Scheme):
    """Cross-entropy and the squared distance of class 1's probability from where it should be.

    The data set (or `Training`) must have `extras["f_norm"]`, (N,) in [0, 1], as `hf.data.synthetic_waves` does.

    Args:
        weight: of the squared distance, at least 0; 1 is the paper's, with which the least loss is still at certainty.

    Raises:
        ModelError: in training, a module with other than two classes.

    >>> Calibrated().describe()
    'calibrated: cross-entropy + 1 x squared distance of the probability of class 1 from f_norm'
    """

    name: ClassVar[str] = "calibrated"
    needs: ClassVar[tuple[str, ...]] = ("f_norm",)
    weight: float = 1.0

    def __post_init__(self) -> None:
        fine = isinstance(self.weight, int | float) and not isinstance(self.weight, bool)
        check(fine and 0 <= self.weight < math.inf, "weight", "a finite number of at least 0", repr(self.weight))

    def parts(self, batch: Batch) -> Iterator[Part]:
        """See `Scheme`."""
        logits = batch.logits(batch.inputs)
        if logits.shape[1] != 2:
            raise ModelError(f"calibrated: expected a module with two classes, got {logits.shape[1]}")
        wanted = extra_of(batch, "f_norm").to(logits.dtype)
        distance = F.mse_loss(logits.softmax(dim=1)[:, 1], wanted)
        yield Part(F.cross_entropy(logits, batch.labels) + self.weight * distance, logits, 1.0)

    def describe(self) -> str:
        """See `Scheme`."""
        distance = "squared distance of the probability of class 1 from f_norm"
        return f"calibrated: cross-entropy + {self.weight:g} x {distance}"
