"""Charts as Vega-Lite specifications, built from plain numbers, and pictures to be drawn. No rendering here.

A specification carries data and encodings; fonts, theme and size are the renderer's. Every explainer keeps its colour,
shape and dash through the whole report, and no chart tells explainers apart by colour alone.
"""

from holdfast.charts.base import COLOURS, HOVER, INK, Chart, Gallery, GalleryRow, Interval, Line, Picture, Strip
from holdfast.charts.box_plot import GREY, Point, boxes
from holdfast.charts.heat_map import heat_table, heatmap
from holdfast.charts.lines import ecdf, lines_with_bands
from holdfast.charts.rank_plot import mean_ranks
from holdfast.charts.ridge_plot import Ridge, ridges
from holdfast.charts.strip_plot import distribution, intervals
from holdfast.charts.sweep_plot import Track, looks_of_explainers, looks_of_values, sweep
from holdfast.charts.table import Table, TableCell

#: what a section of the report is made of
Figure = Chart | Gallery | Table

__all__ = [
    "COLOURS",
    "GREY",
    "HOVER",
    "INK",
    "Chart",
    "Figure",
    "Gallery",
    "GalleryRow",
    "Interval",
    "Line",
    "Picture",
    "Point",
    "Ridge",
    "Strip",
    "Table",
    "TableCell",
    "Track",
    "boxes",
    "distribution",
    "ecdf",
    "heat_table",
    "heatmap",
    "intervals",
    "lines_with_bands",
    "looks_of_explainers",
    "looks_of_values",
    "mean_ranks",
    "ridges",
    "sweep",
]
