"""`Embedding`: a vector, which is compared with a reference vector."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from standfast.errors import check
from standfast.records import Range
from standfast.tasks.base import Scale, Task, TaskWords, expect_tensor, tasks


@tasks.register("embedding")
@dataclass(frozen=True)
class Embedding(Task):
    """The module returns a vector for each input, `(N, D)`.

    The answer is a reference vector r: a target, such as the vector of a text, or the input's own clean vector. The
    margin is `least` minus the cosine of the two. The score is the cosine; with its own vector as the reference, an
    input has the largest cosine there is, and no gradient, so what is explained is then the part of the output along
    r. (Where scores are compared as probabilities are, it is the cosine in any case.)

    Args:
        least: the cosine above which a vector is the same, above -1 and below 1.

    Raises:
        ArgumentError: `least` is not between -1 and 1.

    >>> task, outputs = Embedding(least=0.5), torch.tensor([[3.0, 4.0]])
    >>> text = task.answer(outputs, torch.tensor([[1.0, 0.0]]))
    >>> task.score(outputs, text), task.margin(outputs, text), task.score(outputs, task.answer(outputs))
    (tensor([0.6000]), tensor([-0.1000]), tensor([5.]))
    """

    name = "embedding"
    usual = "least=0.9"
    # other numbers than those of the first version
    version = 2
    linear = False
    peaks = True
    takes_vectors = True
    words = TaskWords(
        "part along the reference",
        "cosine",
        own="the cosine with the reference",
        answer="cosine",
        fall="how far the cosine with the reference has fallen",
        kind="",
        classes=False,
    )
    scales = True
    least: Annotated[float, Range(above=-1, below=1)]

    @classmethod
    def example(cls) -> Embedding:
        """One of some cosine, for messages."""
        return cls(least=0.9)

    @property
    def kept(self) -> str:  # type: ignore[override]
        """What it means that the answer is kept."""
        return f"a cosine above {self.least:g} with the reference"

    def read(self, output: Any, count: int) -> Tensor:
        fits = isinstance(output, Tensor) and output.ndim == 2
        return expect_tensor(output, count, "vectors of shape (N, D)", fits)

    def answer(self, outputs: Tensor, targets: Tensor | None = None) -> Tensor:
        """1 where the reference is the input's own vector, and the reference of length 1, `(N, 1 + D)`."""
        vectors = outputs.detach() if targets is None else targets.to(outputs)
        got = f"shape {tuple(vectors.shape)}"
        check(
            vectors.shape == outputs.shape,
            "targets",
            f"vectors of shape {tuple(outputs.shape)}",
            got,
        )
        is_reference = torch.full(
            (len(outputs), 1), float(targets is None), dtype=outputs.dtype, device=outputs.device
        )
        return torch.cat([is_reference, normalize(vectors, dim=1)], 1)

    def score(self, outputs: Tensor, answer: Tensor, scale: Scale = "logit") -> Tensor:
        # its own cosine would be 1 everywhere near, without a gradient
        is_reference = answer[:, :1].to(outputs) if scale == "logit" else 0.0
        vectors = is_reference * outputs + (1 - is_reference) * normalize(outputs, dim=1)
        return (vectors * answer[:, 1:].to(outputs)).sum(1)

    def rivals(self, outputs: Tensor, answer: Tensor, scale: Scale = "logit") -> Tensor:
        direction = normalize(outputs, dim=1)
        cosine = (direction * answer[:, 1:].to(outputs)).sum(1)
        return (self.least - cosine)[:, None]

    def measure_drop(self, start: Tensor, scores: Tensor) -> Tensor:
        """How far the cosine has fallen."""
        return start - scores

    def describe(self, answer: Tensor) -> Tensor:
        """0 for all: a vector has no number."""
        return torch.zeros(len(answer), dtype=torch.int64, device=answer.device)
