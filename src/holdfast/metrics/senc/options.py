"""The options that both sensitivity consistencies share, checked."""

from __future__ import annotations

from typing import Protocol

from holdfast.errors import check, check_integer
from holdfast.metrics.probe import check_probe_options

CITATION = "tan2025senc"
BIBTEX = """@inproceedings{tan2025senc,
  title     = {Evaluating Sensitivity Consistency of Explanations},
  author    = {Tan, Hanxiao},
  booktitle = {Proceedings of the IEEE/CVF Winter Conference on Applications of Computer Vision (WACV)},
  year      = {2025}
}"""


class SencOptions(Protocol):
    """What is checked."""

    @property
    def masks(self) -> int: ...
    @property
    def permutations(self) -> int: ...
    @property
    def resamples(self) -> int: ...
    @property
    def keep(self) -> float: ...
    @property
    def estimator(self) -> str: ...
    @property
    def absolute(self) -> bool: ...
    @property
    def explain(self) -> str: ...
    @property
    def tolerance(self) -> float | None: ...


def check_senc_options(metric: SencOptions) -> None:
    """Raise `ArgumentError` where an option is out of its range."""
    for name, least in (("masks", 10), ("permutations", 1), ("resamples", 1)):
        value = getattr(metric, name)
        check_integer(value, name, least)
    fine = isinstance(metric.keep, int | float) and 0 < metric.keep < 1
    check(fine, "keep", "a probability between 0 and 1, exclusive", repr(metric.keep))
    check(metric.estimator in ("centred", "paper"), "estimator", "'centred' or 'paper'", repr(metric.estimator))
    check_probe_options(metric.absolute, metric.explain, "logit")
    fine = metric.tolerance is None or (isinstance(metric.tolerance, int | float) and metric.tolerance > 0)
    check(fine, "tolerance", "a number above 0, or None", repr(metric.tolerance))
