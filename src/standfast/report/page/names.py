"""Names that can be drawn, whatever strangers call their data, models, explainers and metrics."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import polars as pl

from standfast.results import StoredResults
from standfast.study.store import COORDINATES

#: characters that end a line or a program elsewhere (a drawing with NUL ends the process), that are no text, or that
#: turn the direction of what follows
_UNSAFE = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


def show_unsafe(text: str) -> str:
    r"""A text with control characters, separators of lines and halves of pairs as the codes that Python writes.

    >>> show_unsafe("a\u2028b")
    'a\\u2028b'
    """
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def allow_breaks(name: str) -> str:
    """A name as HTML that allows a line break after every underscore, and after a colon between letters.

    >>> print(allow_breaks("randomised:input_x_gradient"))
    randomised:<wbr>input_<wbr>x_<wbr>gradient
    """
    import markupsafe

    return markupsafe.Markup("<wbr>").join(re.split(r"(?<=_)|(?<=:)(?=\S)", name))


def with_safe_names(results: StoredResults) -> StoredResults:
    """The same results, with names that can be drawn, whatever the data, models, explainers and metrics are called."""
    manifest = _show_all(results.manifest)
    samples = _rename(results.samples)
    jobs = _rename(results.jobs)
    is_same_frame = samples.equals(results.samples) and jobs.equals(results.jobs)
    if is_same_frame and manifest == results.manifest:
        return results
    checks = _rename(results.sanity_rows)
    # some have the label of a metric
    checks = checks.rename({name: show_unsafe(name) for name in checks.columns})
    return replace(results, manifest=manifest, samples=samples, jobs=jobs, sanity_rows=checks)


def _rename(frame: pl.DataFrame) -> pl.DataFrame:
    texts = [name for name in COORDINATES if frame.schema.get(name) == pl.String]
    return frame.with_columns(pl.col(texts).map_elements(show_unsafe, return_dtype=pl.String))


def _show_all(value: Any) -> Any:
    if isinstance(value, str):
        return show_unsafe(value)
    if isinstance(value, Mapping):
        return {show_unsafe(str(name)): _show_all(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_show_all(entry) for entry in value]
    return value
