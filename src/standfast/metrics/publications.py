"""The publications of metrics: `publications.bib` has their BibTeX entries."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files


@cache
def read_publications() -> Mapping[str, str]:
    """The entries of `publications.bib`, by their keys.

    >>> read_publications()["vu2021ceval"].splitlines()[0]
    '@inproceedings{vu2021ceval,'
    """
    entries = (
        (files("standfast.metrics") / "publications.bib").read_text("utf-8").strip().split("\n\n")
    )
    publications = {}
    for entry in entries:
        _, key, *_ = re.split("[{,]", entry, maxsplit=2)
        publications[key] = entry
    return publications
