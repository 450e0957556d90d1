"""The report and its charts as files."""

from __future__ import annotations

from pathlib import Path

from standfast.files import write_atomically
from standfast.results import StoredResults


def build_html(results: StoredResults) -> str:
    """The whole report as one HTML document that loads nothing from elsewhere. The same results give the same bytes."""
    from standfast.report.page.html import build_page

    return build_page(results)


def write_html(results: StoredResults, path: str | Path = "report.html") -> Path:
    """Write the report, one file that needs no other, and return its path."""
    return _write(Path(path), build_html(results).encode())


def write_figures(results: StoredResults, folder: str | Path = "figures") -> list[Path]:
    """Write every chart as SVG and PDF into `folder`, named after section, label, data and model."""
    from standfast.report.page.files import render_charts

    return [_write(Path(folder) / name, content) for name, content in render_charts(results)]


def _write(path: Path, content: bytes) -> Path:
    write_atomically(path, content)
    return path
