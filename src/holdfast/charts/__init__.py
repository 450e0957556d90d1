"""Charts as Vega-Lite specifications, built from plain numbers, and pictures to be drawn. No rendering here.

A specification carries data and encodings; fonts, theme and size are the renderer's. Every explainer keeps its colour,
shape and dash through the whole report, and no chart tells explainers apart by colour alone.
"""

from holdfast.charts.base import COLOURS, HOVER, INK, Chart, Gallery, GalleryRow, Interval, Line, Picture, Strip
from holdfast.charts.distribution import distribution, intervals
from holdfast.charts.heatmap import heat_table, heatmap
from holdfast.charts.lines import ecdf, lines_with_bands
from holdfast.charts.sweep import Track, looks_of_explainers, looks_of_values, sweep

__all__ = [
    "COLOURS",
    "HOVER",
    "INK",
    "Chart",
    "Gallery",
    "GalleryRow",
    "Interval",
    "Line",
    "Picture",
    "Strip",
    "Track",
    "distribution",
    "ecdf",
    "heat_table",
    "heatmap",
    "intervals",
    "lines_with_bands",
    "looks_of_explainers",
    "looks_of_values",
    "sweep",
]
