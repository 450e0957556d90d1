"""Probabilities of two sides and of labels have the same bits in every batch; those of `torch.sigmoid` have not."""

from __future__ import annotations

import pytest
import torch

from standfast.tasks import Binary, MultiLabel, Task


@pytest.mark.parametrize("task", [Binary(), MultiLabel()])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_score_depends_on_its_row_alone(task: Task, dtype: torch.dtype) -> None:
    logits = torch.linspace(-9, 9, 1001, dtype=dtype)[:, None]
    answers = task.answer(logits)
    together = task.score(logits, answers, "probability")
    # parts that fill no register of a processor
    parts = zip(logits.split(7), answers.split(7), strict=True)
    apart = torch.cat([task.score(*part, "probability") for part in parts])
    assert torch.equal(apart, together)
