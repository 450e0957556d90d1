"""Everything that shows results. Importing it registers the outputs of `Results`, and our presentations of metrics.

>>> import tempfile
>>> from pathlib import Path
>>> from standfast.report import load_results
>>> from standfast.study.store import Store
>>> with tempfile.TemporaryDirectory() as folder:
...     Store(folder).write_manifest({"jobs": []})
...     page = load_results(folder).to_html(Path(folder) / "report.html").read_text(encoding="utf-8")
>>> page.rstrip().endswith("<!-- standfast report: complete -->")
True
"""

from __future__ import annotations

from pathlib import Path

from standfast.report import presentation
from standfast.report.plots import plot_results
from standfast.report.sentences import describe_verdict
from standfast.report.terminal import format_html, format_text
from standfast.results import Results, load_results
from standfast.results.outputs import outputs

__all__ = ["Results", "build_html", "load_results", "presentation", "write_figures", "write_html"]


def build_html(results: Results) -> str:
    """The whole report as one HTML document that loads nothing from elsewhere. The same results give the same bytes."""
    from standfast.report.page.html import build_page

    return build_page(results)


def write_html(results: Results, path: str | Path = "report.html") -> Path:
    """Write the report, one file that needs no other, and return its path."""
    return _write(Path(path), build_html(results).encode())


def write_figures(results: Results, folder: str | Path = "figures") -> list[Path]:
    """Write every chart as SVG and PDF into `folder`, named after section, label, data and model."""
    from standfast.report.page.files import render_charts

    return [_write(Path(folder) / name, content) for name, content in render_charts(results)]


def _write(path: Path, content: bytes) -> Path:
    from standfast.files import write_atomically

    write_atomically(path, content)
    return path


outputs.add("text", format_text)
outputs.add("notebook", format_html)
outputs.add("verdict", describe_verdict)
outputs.add("plot", plot_results)
outputs.add("page", write_html)
