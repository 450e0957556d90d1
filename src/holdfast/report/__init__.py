"""The report: stored results as one self-contained HTML file. Reads results only, and never loads a model.

>>> import tempfile
>>> from pathlib import Path
>>> from holdfast.report import Report
>>> from holdfast.study.store import Store
>>> with tempfile.TemporaryDirectory() as folder:
...     Store(folder).write_manifest({"units": [], "explainers": {}, "metrics": {}})
...     page = Report(folder).to_html(Path(folder) / "report.html").read_text(encoding="utf-8")
>>> page.rstrip().endswith("<!-- holdfast report: complete -->")
True
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from holdfast.report.html import build_html
from holdfast.study.store import Store, write_atomically

__all__ = ["Report", "build_html"]


class Report:
    """The report of a results folder.

    Args:
        results: the folder, or the store that reads it.
    """

    def __init__(self, results: str | Path | Store) -> None:
        self.store = results if isinstance(results, Store) else Store(results)

    def frame(self) -> pl.DataFrame:
        """One row per explainer, metric and sample; columns that a metric does not have are null."""
        return self.store.frame()

    def to_html(self, path: str | Path = "report.html") -> Path:
        """Write the report, one file that needs no other, and return where it is."""
        path = Path(path)
        write_atomically(path, build_html(self.store).encode())
        return path
