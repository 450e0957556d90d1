"""Everything that shows results: `Results` with its outputs, and the presentations of metrics.

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

from standfast.report.files import build_html, write_figures, write_html
from standfast.report.results import Results, load_results

__all__ = ["Results", "build_html", "load_results", "write_figures", "write_html"]
