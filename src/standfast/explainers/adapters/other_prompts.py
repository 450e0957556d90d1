"""Controls of explained answers: the maps of another answer to the same prompt, and of an unrelated question."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from standfast.errors import check
from standfast.explainers.base import Explainer, Explanation
from standfast.explainers.perturbation.occlusion import Occlusion
from standfast.model import Model
from standfast.texts.answer_network import find_answer_box

#: what is asked in the place of the prompt
OtherPrompt = Literal["answer", "question"]


@dataclass(frozen=True)
class OtherPromptExplainer(Explainer):
    """The maps of another explainer for the same context under another prompt; a control for `standfast.AnswerModel`.

    A map that does not depend on what is explained says nothing about it. So an explainer should do better than its own
    maps of another answer to the same prompt ("I do not know."), and than those of a question that has nothing to do
    with the context ("What is two plus two?", "Four.").

    Cost: that of the explainer, and the prediction of each input.

    Args:
        explainer: whose maps to take.
        other: another `"answer"`, or another `"question"` with its answer.

    Raises:
        ArgumentError: in the call, a model of something else than answers.
    """

    explainer: Explainer = field(default=Occlusion())
    other: OtherPrompt = "answer"
    name = "other_prompt"
    control = True

    @property
    def rows_per_input(self) -> int:
        return self.explainer.rows_per_input + 1

    def count_rows_of(self, inputs: Tensor) -> int:
        return self.explainer.count_rows_of(inputs) + 1

    @property
    def label(self) -> str:
        return f"other_{self.other}:{self.explainer.label}"

    def attribute(
        self, model: Model, x: Tensor, targets: Tensor | None, *, create_graph: bool = False
    ) -> Explanation:
        self._check_graph(create_graph)
        box = find_answer_box(model)
        check(box is not None, "model", f"an AnswerModel, for {self.label}", "another one")
        assert box is not None
        with torch.no_grad():
            logits = model.forward(x.detach())
        other_model = model.with_box(box.bind_other(self.other))
        with other_model.session():
            maps = self.explainer.attribute(other_model, x, None)[0]
        return maps, logits
