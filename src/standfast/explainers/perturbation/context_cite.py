"""ContextCite: a sparse linear surrogate of how probable an answer is without some of its sources."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated

import numpy as np
import torch
from torch import Tensor

from standfast.errors import check
from standfast.explainers.base import explainers
from standfast.explainers.perturbation.coalitions import CoalitionExplainer, Coalitions
from standfast.explainers.perturbation.lasso import fit_lasso
from standfast.model import Model, Output
from standfast.records import AtLeastZero, Range
from standfast.tasks.base import count_parts, find_log_odds
from standfast.tensors import send


@dataclass(frozen=True)
class _Ablations(Coalitions):
    """Random coalitions, whose scores a lasso turns into attributions.

    Attributes:
        kept: which segments each has, bool `(R, m)` on the CPU, without the full one, of which the score is not fitted.
    """

    kept: Tensor

    def solve_for(self, scores: Tensor, penalty: Tensor) -> Tensor:
        """The coefficients `(n, m)` of scores `(n, R + 1)`, of which the first is that of the full coalition."""
        # together, so that the host waits once
        scores_of_copies = scores[:, 1:].double()
        columns = [scores_of_copies, penalty[:, None].double()]
        fitted = torch.cat(columns, dim=1).cpu().numpy()
        responses = np.ascontiguousarray(fitted[:, :-1].T)
        penalties = fitted[:, -1]
        coefficients = fit_lasso(self.kept.numpy().astype(np.float64), responses, penalties)
        return send(
            torch.from_numpy(np.ascontiguousarray(coefficients.T)), scores.device, scores.dtype
        )


@explainers.register("context_cite")
@dataclass(frozen=True)
class ContextCite(CoalitionExplainer):
    """Coefficients of a sparse linear surrogate of the log-odds of the answer, over which sources are there.

    Cohen-Wang, Shah, Georgiev and Madry, ContextCite: attributing model generation to context, NeurIPS 2024
    (arXiv 2409.00729): each of R ablations keeps each source with probability 1/2; of the probability p of
    the answer without the others, `g = log(p / (1 - p))` is fitted by

        argmin over w, b of  1 / (2 R) sum over ablations v of (g(v) - w v - b)^2 + penalty |w|_1

    The attributions are w. As in the authors' package, a source's column is scaled to variance 1 before the fit and its
    coefficient scaled back, and the penalty is that of the log-odds for each token of the answer: here it is
    multiplied by the number of tokens.

    It was made for `standfast.AnswerModel`, where sources are the sentences of a context. For other models the sources
    are segments, and p is the probability of the class; where the task has no probabilities, the score is fitted as it
    is. Inputs and attributions `(N, ...)`. Every pixel has its segment's coefficient.

    The ablations are drawn once for each number of segments, from `seed`, and are the same for all inputs. The cost is
    R rows for each input and one for the input itself. Not differentiable.

    Args:
        samples: ablations R; 32 to 256 in the paper, and 64 in its package.
        segments: the sources, as for `kernel_shap`; of texts and answers each unit is one.
        baseline: the values of what is left out, as for `kernel_shap`; of texts what stands in the place of a word.
        output: what is fitted: the log-odds of the probability (`"logit"`), or the `"probability"` itself.
        penalty: of the coefficients' sizes, in log-odds a token, at least 0.
        seed: of the ablations.
        segmentation, per_channel: as for `kernel_shap`.

    Raises:
        ArgumentError: an option out of range; in the call, segments that do not fit the inputs.

    >>> from standfast.model import Model, Output
    >>> module = torch.nn.Linear(4, 2, bias=False)
    >>> _ = module.weight.data.copy_(torch.tensor([[1.0, -2.0, 0.0, 4.0], [0.0, 0.0, 0.0, 0.0]]))
    >>> model = Model(module, bounds=(0.0, 1.0), device="cpu")
    >>> ContextCite(penalty=0.0)(model, torch.full((1, 4), 0.5), 0).round(decimals=3) + 0.0
    tensor([[ 0.5000, -1.0000,  0.0000,  2.0000]])
    """

    version = 2

    samples: Annotated[int, Range(least=2)] = 64
    penalty: AtLeastZero = 0.01
    name = "context_cite"
    has_signs = True
    measures = "contribution"
    dial = "samples"

    @property
    def rows_per_input(self) -> int:
        return self.samples + 1

    def draw_coalitions(self, features: int, device: torch.device) -> Coalitions:
        check(features >= 2, "segments", "at least 2 segments", features)
        return _draw_ablations(self.samples, features, self.seed, device)

    def choose_scale(self, model: Model) -> Output:
        if self.output == "logit" and not model.task.chance:
            return "logit"  # log-odds already, or a score of its own
        return "probability"

    def solve(
        self, model: Model, coalitions: Coalitions, scores: Tensor, outputs: Tensor
    ) -> Tensor:
        assert isinstance(coalitions, _Ablations)
        fitted = find_log_odds(model.task, scores) if self.output == "logit" else scores
        return coalitions.solve_for(fitted, self.penalty * count_parts(model.task, outputs))


@lru_cache(maxsize=64)
def _draw_ablations(samples: int, features: int, seed: int, device: torch.device) -> _Ablations:
    """The ablations; drawn on the CPU, so that they are the same on every device. Do not write to them."""
    generator = torch.Generator().manual_seed(seed)
    kept = torch.randint(2, (samples, features), generator=generator, dtype=torch.uint8)
    everything = torch.ones(1, features, dtype=torch.bool)
    masks = torch.cat([everything, kept.bool()]).to(device)
    order = torch.arange(len(masks), device=device)
    return _Ablations((~masks).to(torch.int32), order, torch.ones_like(order), kept)
