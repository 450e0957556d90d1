"""Charts rendered: a static SVG within the page, the specification of the interactive view, and files for papers.

The page's colours are CSS variables, so that one drawing serves light and dark mode: the colours of the palette and the
ink of a specification become `var(--s0)` ... and `currentColor` in the page.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from standfast.report.charts import COLOURS, GLYPHS, HOVER, INK, REFERENCE, SHAPES, Chart

#: width of a static drawing in CSS pixels; on a screen of 320 pixels its letters are still about 9 pixels tall
WIDTH = 400
_QUIET = {"labelColor": INK, "titleColor": INK}
CONFIG: Mapping[str, Any] = {
    "aria": False,
    "background": None,
    "font": "sans-serif",
    "view": {"stroke": None},
    "axis": {
        **_QUIET,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "titlePadding": 8,
        "labelOpacity": 0.85,
        "titleOpacity": 0.85,
        "labelPadding": 5,
        "gridColor": INK,
        "gridOpacity": 0.1,
        "domainColor": INK,
        "domainOpacity": 0.35,
        "tickColor": INK,
        "tickOpacity": 0.35,
        "tickSize": 4,
    },
    "axisQuantitative": {"tickCount": 5, "labelSeparation": 5},
    "legend": {
        **_QUIET,
        "labelFontSize": 12,
        "labelOpacity": 0.9,
        "symbolSize": 70,
        # from the left end of the names, not of the plot
        "layout": {"bottom": {"anchor": "start", "bounds": "full"}},
        "orient": "bottom",
        "columns": 2,
        "labelLimit": 175,
        "symbolStrokeWidth": 1,
        "symbolOpacity": 1,
        "rowPadding": 4,
    },
}


@dataclass(frozen=True)
class RenderedChart:
    """A chart as the page needs it: a static drawing, the specification, and texts.

    `key` has the name, the number of the colour and the shape of each explainer of the page's legend.
    """

    svg: str
    spec: str
    alt: str
    caption: str
    heading: str
    key: tuple[tuple[str, int, str], ...]


def render_for_page(chart: Chart, number: int) -> RenderedChart:
    """Render a chart for the page; `number` makes the ids of the drawing unique."""
    # the page has one legend for all charts of explainers
    legend = {"disable": bool(chart.key)}
    config = {**CONFIG, "legend": {**CONFIG["legend"], **legend}}
    static = _complete(_without_hover(chart.spec), WIDTH, config)
    svg = _draw(_themed(json.dumps(static)))
    spec = json.dumps(
        _complete(chart.spec, "container", {"legend": legend}),
        separators=(",", ":"),
        ensure_ascii=False,
    )
    colours = (*COLOURS, REFERENCE)
    key = tuple(
        (name, colours.index(style.colour), GLYPHS[SHAPES.index(style.shape)])
        for name, style in chart.key
    )
    texts = (chart.alt, chart.caption, chart.heading)
    return RenderedChart(_slim(svg, number), escape_script(_themed(spec)), *texts, key)


# a report that is written again, or packed, has the same charts
@functools.lru_cache(maxsize=32)
def _draw(spec: str) -> str:
    import vl_convert

    svg: str = vl_convert.vegalite_to_svg(spec, allowed_base_urls=[])
    return svg


def shared_config() -> str:
    """The configuration that all interactive views share, as JSON for a script element."""
    return escape_script(
        _themed(json.dumps({**CONFIG, "font": "system-ui, sans-serif"}, separators=(",", ":")))
    )


def render_files(chart: Chart) -> dict[str, bytes]:
    """Render a chart in ink on white, by file ending: SVG and PDF."""
    import vl_convert

    spec = _complete(_without_hover(chart.spec), 440, CONFIG)
    svg = vl_convert.vegalite_to_svg(spec, allowed_base_urls=[])
    return {
        "svg": _renumbered(svg, "").encode(),
        "pdf": vl_convert.vegalite_to_pdf(spec, allowed_base_urls=[]),
    }


@functools.cache
def bundle_scripts() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script that needs no other."""
    import vl_convert

    source: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    if "</script" in source.lower():
        return source.replace("</", "<\\/")
    return source


def escape_script(text: str) -> str:
    """Escape JSON so that it can stand within a script element, whatever its strings contain."""
    for letter, escaped in (("<", "\\u003c"), ("\u2028", "\\u2028"), ("\u2029", "\\u2029")):
        text = text.replace(letter, escaped)
    return text


def _complete(
    spec: Mapping[str, Any], width: int | str, config: Mapping[str, Any]
) -> dict[str, Any]:
    size = {"width": width, "autosize": {"type": "fit-x", "contains": "padding"}}
    return {
        **spec,
        **size,
        "padding": {"left": 4, "right": 10, "top": 6, "bottom": 4},
        "config": config,
    }


def _without_hover(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Without the layers for tooltips."""
    layers = [layer for layer in spec["layer"] if layer.get("name") != HOVER]
    return {**spec, "layer": layers}


def _themed(text: str) -> str:
    for number, colour in enumerate((*COLOURS, REFERENCE)):
        text = text.replace(f'"{colour}"', f'"var(--s{number})"')
    return text.replace(f'"{INK}"', '"currentColor"')


def _slim(svg: str, number: int) -> str:
    """Remove what the page does not need from a drawing, and make it as wide as its place."""

    def tag(match: re.Match[str]) -> str:
        text = re.sub(r' (?:pointer-events|class|aria-\w+|role|focusable)="[^"]*"', "", match[0])
        return re.sub(r"(\d\.\d\d)\d+", r"\1", text)

    from_tag = svg[svg.index("<svg") :]
    svg = re.sub(r"<[^>]+>", tag, _renumbered(from_tag, f"c{number}-"))
    # what Vega draws for marks and grounds without an extent
    svg = re.sub(r'<path d=""[^>]*/>|<path d="M0,0h0v0h0Z"[^>]*/>', "", svg)
    svg = re.sub(r'^<svg([^>]*?) width="[\d.]+" height="[\d.]+"', r"<svg\1", svg)
    return svg.replace("<svg", '<svg aria-hidden="true" focusable="false"', 1)


def _renumbered(svg: str, start: str) -> str:
    """Number the ids of a drawing in order of appearance, because Vega counts on from chart to chart."""
    # either a link to an id, or the id itself
    names = dict.fromkeys(re.findall(r'url\(#([^)"]+)\)|(?<= id=")([^"]+)', svg))
    new_names = {
        link or name: f"{start}clip{number}" for number, (link, name) in enumerate(names, 1)
    }

    def rename(match: re.Match[str]) -> str:
        return match[1] + new_names.get(match[2], match[2])

    def tag(match: re.Match[str]) -> str:
        return re.sub(r'( id="|url\(#|href="#)([^)"]+)', rename, match[0])

    return re.sub(r"<[^>]+>", tag, svg)
