"""What is asked of reasons: one model, one explainer, and the inputs that they take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from standfast.errors import check
from standfast.explainers import Explainer
from standfast.metrics import Metric
from standfast.question.arguments import Arguments
from standfast.question.inputs import Inputs
from standfast.results.stored_reasons import METRIC


@dataclass(frozen=True)
class Asked:
    """What is explained."""

    model: Any
    explainer: Any
    inputs: Any
    reference: Any
    decision: str | None
    targets: Any

    def read(self, changes: Sequence[Metric] = ()) -> Inputs:
        """The inputs, and the model that takes them.

        Args:
            changes: metrics whose neighbourhoods the inputs have to allow.

        Raises:
            ArgumentError: they do not fit.
        """
        check(
            not isinstance(self.model, Mapping),
            "model",
            "one; models trained again are retrained=[...]",
            "several",
        )
        is_one = isinstance(self.explainer, str | Explainer) or callable(self.explainer)
        check(
            is_one,
            "explainer",
            "one; others that would do as well are others=[...]",
            repr(self.explainer),
        )
        arguments = Arguments(
            self.model,
            self.explainer,
            self.inputs,
            METRIC,
            reference=self.reference,
            decision=self.decision,
            targets=self.targets,
        )
        return arguments.read_inputs(list(changes))
