"""Metrics of other packages by name: `"quantus:MaxSensitivity"`, `"captum:infidelity"`."""

from __future__ import annotations

import dataclasses
from functools import cache
from types import ModuleType

from standfast.errors import UnknownNameError
from standfast.integrations.peers import captum, quantus
from standfast.integrations.peers.base import PeerMetric
from standfast.integrations.peers.publications import CITATIONS, bibtex

#: the packages whose metrics have names; the package comes before a colon
SOURCES: dict[str, ModuleType] = {"captum": captum, "quantus": quantus}


def peer_names(package: str) -> list[str]:
    """The names of all usable metrics of `"captum"` or `"quantus"`, with the package before a colon, sorted.

    Raises:
        UnknownNameError: there is no such package.
        MissingExtraError: the package is not installed.

    >>> peer_names("captum")
    ['captum:infidelity', 'captum:sensitivity_max']
    """
    return [f"{package}:{title}" for title in sorted(_find_source(package).names())]


@cache
def peer_class(name: str) -> type[PeerMetric]:
    """The class of a metric such as `"quantus:MaxSensitivity"` or `"captum:infidelity"`: a dataclass, like our own.

    Its options are those options of the peer's constructor or function that change a value, with the same defaults.
    Further options are:

    * `reduce`: how several numbers for a sample become one: their `"mean"`, the `"last"` one or the `"max"`. With None,
      several numbers are an error.
    * `softmax` (Quantus): whether predictions are probabilities; None for the metric's own default.
    * `noise` (`captum:infidelity`, which has no default perturbation): the standard deviation of normal noise.

    Quantus's functions can be given by name: `similarity_func: correlation_spearman`.

    Raises:
        UnknownNameError: the package has no such metric.
        ArgumentError: the metric compares samples with each other, or needs masks of objects.
        MissingExtraError: Quantus is not installed.

    >>> kind = peer_class("captum:sensitivity_max")
    >>> kind().direction, kind(n_perturb_samples=5).options()["perturb_radius"]
    ('lower', 0.02)
    """
    package, _, title = name.partition(":")
    source = _find_source(package)
    titles = source.metrics()
    if title not in titles:
        raise UnknownNameError(f"metric of {package}", title, titles)
    base, fields, attributes = source.describe(title)
    namespace = {
        "__module__": __name__,
        "__doc__": f"`{title}` of {source.version()}; the package documents its options.",
        "__post_init__": base.__post_init__,
        "name": name,
        "citation": CITATIONS.get(name, package),
        "bibtex": bibtex(name),
        "package": source.version(),
        **attributes,
    }
    kind = dataclasses.make_dataclass(
        title, fields, bases=(base,), namespace=namespace, frozen=True
    )
    assert issubclass(kind, PeerMetric)
    return kind


def _find_source(package: str) -> ModuleType:
    if package not in SOURCES:
        raise UnknownNameError("package", package, SOURCES)
    return SOURCES[package]
