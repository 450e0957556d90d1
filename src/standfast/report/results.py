"""`Results`: what `evaluate`, `run_study` and `load_results` return. They show what `StoredResults` says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from standfast.display import show_activity
from standfast.errors import check
from standfast.report.files import write_html
from standfast.report.next_steps import NextSteps, describe_steps
from standfast.report.plots import plot_results
from standfast.report.sentences import describe_verdict
from standfast.report.terminal import format_html, format_text
from standfast.results import StoredResults, Verdict
from standfast.study.store import Store

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from standfast.study.run import RunSummary


class Results(StoredResults):
    """All results that a study has so far, and what they say.

    `print` shows a table for each data set and model, and its verdict: a row per explainer, a column per metric, the
    median over samples, how good it is, and marks for the best (`to_text`). A notebook shows the same as HTML.
    """

    def __repr__(self) -> str:
        return f"{super().__repr__().removesuffix(')')}; print it for the table)"

    def __str__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        return format_html(self)

    def to_text(self, verbose: bool = False) -> str:
        """What `print` shows, in lines of 80 characters.

        Args:
            verbose: also intervals and numbers of samples, and notes on tests, controls and checks.
        """
        check(isinstance(verbose, bool), "verbose", "True or False", repr(verbose))
        with show_activity("summarising the results"):
            return format_text(self, verbose)

    def verdict(self, data: str | None = None, model: str | None = None) -> PrintedVerdict:
        """Which explanations may be shown, which not and why, and what would decide the rest; `print` says it.

        Args:
            data, model: where there are several, which of them.

        Raises:
            ArgumentError: there is no such data set or model, or there are several and none is given, or no results.
        """
        return PrintedVerdict(**vars(super().verdict(data, model)))

    def next_steps(self, data: str | None = None, model: str | None = None) -> NextSteps:
        """What to do next where the verdict leaves something open: at most three lines to run, with why and the cost.

        Those come first that may decide the most for the time that they take. There is none where nothing in the
        results supports one. `print` shows them in sentences.

        Args:
            data, model: where there are several, which of them.

        Raises:
            ArgumentError: there is no such data set or model, or there are several and none is given, or no results.
        """
        verdict = super().verdict(data, model)
        return describe_steps(self, verdict.data, verdict.model)

    def plot(self, data: str | None = None, model: str | None = None) -> list[Axes]:
        """Draw a panel for each metric with matplotlib: the median and its interval for each explainer.

        Args:
            data, model: only these; by default all, in rows.

        Returns:
            The axes, a row of panels for each data set and model.

        Raises:
            MissingExtraError: matplotlib is not installed (`pip install 'standfast[plot]'`).
        """
        return plot_results(self, data, model)

    def to_html(self, path: str | Path = "report.html") -> Path:
        """Write the report as one self-contained file, and return its path."""
        with show_activity("drawing the report"):
            return write_html(self, path)


@dataclass(frozen=True)
class PrintedVerdict(Verdict):
    """A verdict that `print` shows in sentences."""

    def __str__(self) -> str:
        return describe_verdict(self)


def load_results(
    results: str | Path | Store, run: RunSummary | None = None, jobs: Sequence[str] | None = None
) -> Results:
    """Open the results in a folder or at an fsspec address.

    Args:
        results: where they are.
        run: what the run did that has just written them.
        jobs: open these alone, which need not be of the study as it is; None for all that are.

    Raises:
        ArgumentError: there are none.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Store(folder).write_manifest({"jobs": []})
    ...     load_results(folder).samples.height
    0
    """
    return Results.load(results, run, jobs)
