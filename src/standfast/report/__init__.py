"""The report: stored results as one HTML file that needs no other, and its charts as files. It never loads a model.

>>> import tempfile
>>> from pathlib import Path
>>> from standfast.report import Report
>>> from standfast.study.store import Store
>>> with tempfile.TemporaryDirectory() as folder:
...     Store(folder).write_manifest({"jobs": []})
...     page = Report(folder).to_html(Path(folder) / "report.html").read_text(encoding="utf-8")
>>> page.rstrip().endswith("<!-- standfast report: complete -->")
True
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from standfast.report import presentation  # registers the presentations of our own metrics
from standfast.study.results import Results, load_results
from standfast.study.store import Store

__all__ = ["Report", "build_html", "presentation"]


def build_html(results: str | Path | Store | Results) -> str:
    """The whole report as one HTML document that loads nothing from elsewhere. The same results give the same bytes."""
    from standfast.report.page.html import build_page

    return build_page(_open_results(results))


class Report:
    """The report of a study's results.

    Args:
        results: the folder or address of the results, the store that reads it, or the results themselves.
    """

    def __init__(self, results: str | Path | Store | Results) -> None:
        self.source = results

    def frame(self) -> pl.DataFrame:
        """One row per data, model, explainer, metric, repeat and sample."""
        return _open_results(self.source).samples

    def to_html(self, path: str | Path = "report.html") -> Path:
        """Write the report, one file that needs no other, and return its path."""
        path = Path(path)
        content = build_html(self.source).encode()
        _write(path, content)
        return path

    def figures(self, folder: str | Path = "figures") -> list[Path]:
        """Write every chart as SVG and PDF into `folder`, named after section, label, data and model."""
        from standfast.report.page.files import render_charts

        written = []
        for name, content in render_charts(_open_results(self.source)):
            path = Path(folder) / name
            _write(path, content)
            written.append(path)
        return written


def _open_results(results: str | Path | Store | Results) -> Results:
    return results if isinstance(results, Results) else load_results(results)


def _write(path: Path, content: bytes) -> None:
    from standfast.study.folders import write_atomically

    write_atomically(path, content)
