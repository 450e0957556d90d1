"""Plots for scripts and notebooks, drawn with matplotlib (the extra `plot`), which is imported when one is drawn.

`show` draws maps over their inputs, or a single result; `Results.plot` draws the numbers of a study. The report draws
its charts itself.
"""

from __future__ import annotations

from standfast.report.plots.canvas import escape_text, import_pyplot
from standfast.report.plots.panels import plot_panels, plot_results
from standfast.report.plots.samples import show

__all__ = ["escape_text", "import_pyplot", "plot_panels", "plot_results", "show"]
