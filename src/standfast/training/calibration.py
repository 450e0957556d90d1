"""Training towards probabilities that say how far an input is from the boundary between two classes.

Every training input has a number f in [0, 1]: 0 is deep in class 0, 1 deep in class 1, and 1/2 is the boundary. With
p_1 the probability of class 1, the loss is

    cross-entropy + weight x mean of (p_1 - f)^2.

Source: Wei, Turbe and Mengaldo, "Revisiting the robustness of post-hoc interpretability methods" (2024), App. D, with
weight 1 and with f the sum of the two frequencies, scaled to [0, 1]. The paper has two forms: for (p_0, 1 - f), Eq.
D.1, and for (p_1, f), Eq. D.2. With two classes p_0 = 1 - p_1, so both are the same number, and there is one scheme.

With the paper's weight, the minimum of the loss is not at p_1 = f. For a sample of class 1 the loss is
`-log p + weight (p - f)^2`. Its minimum is at `min(1, (f + sqrt(f^2 + 2 / weight)) / 2)`.
For f >= 1/2 that is 1, unless the weight is above 1 / (2 (1 - f)), which is above 1 even at the boundary. So weight 1
only reduces the pull towards certainty. Probabilities near f need a weight of 10 or more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch.nn import functional as F

from standfast.errors import ModelError, check_number
from standfast.training.objective import LossPart, Scheme, TrainingBatch


@dataclass(frozen=True)
class Calibrated(Scheme):
    """Cross-entropy plus the squared distance of the probability of class 1 from its target.

    The data set (or `Training`) must have `extras["f_norm"]`, (N,) in [0, 1], as `standfast.data.synthetic_waves` does.

    Args:
        weight: of the squared distance, at least 0. With 1, as in the paper, the minimum is still at certainty.

    Raises:
        ArgumentError: a weight out of range.
        ModelError: in training, a module that does not have two classes.

    >>> Calibrated().describe()
    'calibrated: cross-entropy + 1 x squared distance of the probability of class 1 from f_norm'
    """

    name = "calibrated"
    extras = ("f_norm",)
    weight: float = 1.0

    def __post_init__(self) -> None:
        check_number(self.weight, "weight", least=0)

    def parts(self, batch: TrainingBatch) -> Iterator[LossPart]:
        """The loss in one part."""
        logits = batch.logits(batch.inputs)
        # the target is that of one of two classes, so a third has none
        if logits.shape[1] != 2:
            raise ModelError(
                f"calibrated: expected a module with two classes, got {logits.shape[1]}"
            )
        target = batch.extra("f_norm").to(logits.dtype)
        distance = F.mse_loss(logits.softmax(dim=1)[:, 1], target)
        yield LossPart(F.cross_entropy(logits, batch.labels) + self.weight * distance, logits, 1.0)

    def describe(self) -> str:
        distance = "squared distance of the probability of class 1 from f_norm"
        return f"calibrated: cross-entropy + {self.weight:g} x {distance}"
