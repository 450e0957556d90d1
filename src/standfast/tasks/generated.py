"""`GeneratedAnswer`: a language model's answer, which is fixed, and of which the probability is explained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from standfast.errors import check
from standfast.records import Count, Positive
from standfast.tasks.base import Scale, Task, TaskWords, expect_tensor, tasks

#: what a model of answers returns for each prompt: the log-probability of what is explained, the mean log-probability
#: of a token of the whole answer, how near the first tokens are to be others, and how many tokens are explained
EXPLAINED, MEAN, RIVAL, TOKENS = range(4)
COLUMNS = 4
#: by how much the mean log-probability may fall where nothing else is declared, in nats a token
USUAL_TOLERANCE = 0.5


@tasks.register("answer")
@dataclass(frozen=True)
class GeneratedAnswer(Task):
    """How probable a fixed answer is after a prompt; made for `standfast.AnswerModel`.

    The answer y with tokens y_1 ... y_T is fixed, and read by teacher forcing. The score is the log-probability of
    what is explained, all of the answer or a part S of its tokens, in nats:

        sum over t in S of log P(y_t | prompt, y_1 ... y_{t-1})

    The answer is kept in one of two ways. With `tolerance`, the mean log-probability of a token of the whole answer
    has fallen by less than that. With `first`, greedy decoding still begins with as many tokens of the answer: this is
    exact, as it does so just where each of these tokens has the largest probability after those before it.

    Args:
        tolerance: the fall of the mean log-probability of a token at which the answer counts as another, in nats, above
            0. By default 0.5, unless `first` is given.
        first: how many tokens of the greedy answer have to stay.

    Raises:
        ArgumentError: both are given.

    >>> task = GeneratedAnswer(tolerance=0.5)
    >>> clean, changed = torch.tensor([[-2.0, -0.5, -1.0, 4.0]]), torch.tensor([[-5.0, -1.25, 0.3, 4.0]])
    >>> answer = task.answer(clean)
    >>> task.score(changed, answer), task.margin(changed, answer)
    (tensor([-5.]), tensor([0.2500]))
    >>> GeneratedAnswer(first=3).margin(changed, answer)
    tensor([0.3000])
    """

    name = "answer"
    words = TaskWords(
        "log-probability of the answer (nats)",
        "log-probability of the answer (nats)",
        own="the answer's log-probability",
        answer="log-probability",
        fall="how far the answer's log-probability has fallen, in nats",
        kind="",
        classes=False,
    )
    chance = "log_probability"
    parts_column = TOKENS
    tolerance: Positive | None = None
    first: Count | None = None

    def __post_init__(self) -> None:
        # two rules could contradict each other
        is_one = self.tolerance is None or self.first is None
        check(
            is_one,
            "first",
            "None beside a tolerance, since one of the two says what is kept",
            repr(self.first),
        )

    @property
    def allowed_fall(self) -> float:
        """By how much the mean log-probability may fall, in nats a token."""
        if self.tolerance is None:
            return USUAL_TOLERANCE
        return float(self.tolerance)

    @property
    def fall_of_part(self) -> float:
        return self.allowed_fall

    @property
    def kept(self) -> str:  # type: ignore[override]
        """What it means that the answer is kept."""
        if self.first is None:
            return f"a mean log-probability of the answer's tokens that falls by less than {self.allowed_fall:g} nats"
        if self.first == 1:
            return "the same first token of the greedy answer"
        return f"the same first {self.first} tokens of the greedy answer"

    def read(self, output: Any, count: int) -> Tensor:
        fits = isinstance(output, Tensor) and output.ndim == 2 and output.shape[1] == COLUMNS
        shape = f"what AnswerModel makes of logits, of shape (N, {COLUMNS})"
        return expect_tensor(output, count, shape, fits)

    def answer(self, outputs: Tensor, targets: Tensor | None = None) -> Tensor:
        """The mean log-probability of a token at the clean prompt, behind a 0, `(N, 2)`."""
        check(
            targets is None,
            "targets",
            "None: an answer is a part of its prompt (answer=, statement=)",
            "targets",
        )
        means = outputs[:, MEAN].detach()
        # the 0 stands where other tasks have a number of what is explained
        return torch.stack([torch.zeros_like(means), means], 1)

    def score(self, outputs: Tensor, answer: Tensor, scale: Scale = "logit") -> Tensor:
        return outputs[:, EXPLAINED]

    def rivals(self, outputs: Tensor, answer: Tensor, scale: Scale = "logit") -> Tensor:
        if self.first is not None:
            return outputs[:, RIVAL, None]
        fall = answer[:, 1].to(outputs) - outputs[:, MEAN]
        return (fall - self.allowed_fall)[:, None]

    def measure_drop(self, start: Tensor, scores: Tensor) -> Tensor:
        """How far the log-probability has fallen, in nats."""
        return start - scores

    def measure_closeness(self, first: Tensor, second: Tensor) -> Tensor:
        """1 where the log-probabilities are the same, and a half where they differ by 1 nat."""
        return 1 / (1 + (first - second).abs())
