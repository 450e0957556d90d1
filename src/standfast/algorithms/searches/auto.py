"""The search that suits the region: among candidates, on a grid of few parameters, else by gradients and blocks.

Problem: `max value(x) subject to violation(x) <= 0` over the region.

- In a region whose parameters choose among candidates, such as words or categories, this is the choice search.
- In others of at most `few` parameters, such as the angle of a rotation, this is the grid search.
- In others with a gradient objective, the gradient search gets the share `white` of the budget. Block search spends the
  rest on small changes of the best point: the smoothed objective leads near an optimum of the true one, and block
  search asks the true one only.
- Without a gradient objective, and where the model turns out to have no second derivatives, this is block search.

Source: see `choices`, `grid`, `gradient` and `block`.

Cost: `budget` evaluations for each problem.
"""

from __future__ import annotations

from dataclasses import dataclass

from standfast.algorithms.searches.base import FEW, Search, SearchRun, searches
from standfast.algorithms.searches.block import BlockSearch
from standfast.algorithms.searches.choices import ChoiceSearch
from standfast.algorithms.searches.gradient import GradientSearch
from standfast.algorithms.searches.grid import GridSearch
from standfast.errors import NoGradientsError, SecondDerivativeError
from standfast.records import CountFromZero, Share
from standfast.tensors import Streams


@searches.register("auto")
@dataclass(frozen=True)
class AutoSearch(Search):
    """Choice search among candidates; grid search for few parameters; else gradient and then block search.

    Without gradients it is block search alone.

    Args:
        white: share of the budget that the gradient search gets where there are gradients.
        start: share of the features in the first blocks after it.
        few: the most parameters for which it is the grid search.
        drafts: whether who has the objective may search with drafts instead (`draft`), where these were shown to find
            better points and the other options are at their defaults.
    """

    white: Share = 0.85
    start: Share = 0.02
    few: CountFromZero = FEW
    drafts: bool = True
    name = "auto"
    takes_gradient = True

    def search(self, run: SearchRun, streams: Streams) -> None:
        """Search among candidates, or a grid; or follow gradients, and change blocks of what they led to."""
        if run.region.choices is not None:
            return ChoiceSearch().search(run, streams)
        if run.region.shape.numel() <= self.few:
            return GridSearch().search(run, streams)
        block = BlockSearch()
        if not run.white_box:
            return block.search(run, streams)
        try:
            evaluations = max(1, round(self.white * run.left))
            GradientSearch().ascend(run, streams, evaluations)
        except (
            NoGradientsError,
            SecondDerivativeError,
        ):
            # such as a frozen backbone, and a compiled model
            return block.search(run, streams)
        return block.refine(run, streams, self.start)
