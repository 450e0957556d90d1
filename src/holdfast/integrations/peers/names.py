"""Metrics of other packages by name: `"quantus:MaxSensitivity"`, `"captum:infidelity"`."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

from holdfast.errors import ArgumentError, UnknownNameError
from holdfast.integrations.peers import captum, quantus
from holdfast.integrations.peers.base import PeerMetric, Source
from holdfast.integrations.peers.publications import CITATIONS, DIRECTIONS, bibtex

#: the packages whose metrics can be named, before a colon
SOURCES: dict[str, Source] = {"captum": captum, "quantus": quantus}  # type: ignore[dict-item]


def is_peer(name: object) -> bool:
    """Whether a name is one of a peer's metric, known or not.

    >>> is_peer("quantus:MaxSensitivity"), is_peer("max_sensitivity")
    (True, False)
    """
    return isinstance(name, str) and name.partition(":")[0] in SOURCES and ":" in name


def peer_names(package: str) -> list[str]:
    """The metrics of `"captum"` or `"quantus"` that can be named, with the package before them, sorted.

    Raises:
        UnknownNameError: no such package.
        MissingExtraError: it is not installed.

    >>> peer_names("captum")
    ['captum:infidelity', 'captum:sensitivity_max']
    """
    source = _source_of(package)
    return [f"{package}:{title}" for title in sorted(source.metrics()) if not source.refusal(title)]


@cache
def peer_class(name: str) -> type[PeerMetric]:
    """The metric called `"quantus:MaxSensitivity"` or `"captum:infidelity"`: a dataclass, like our own.

    Its options are those of the peer's constructor or function that decide about a value, with the same defaults; and

    * `reduce`, what becomes of several numbers for a sample: their `"mean"`, the `"last"` one or the `"max"`; None for
      an error.
    * `softmax` (Quantus), whether predictions are probabilities; None for the metric's own default.
    * `noise` (`captum:infidelity`, which has no perturbation of its own): the standard deviation of the normal one.

    Quantus's functions can be given by name: `similarity_func: correlation_spearman`.

    Raises:
        UnknownNameError: neither package has it.
        ArgumentError: it needs what a study does not have: other samples beside each one, or masks of objects.
        MissingExtraError: Quantus is not installed.

    >>> kind = peer_class("captum:sensitivity_max")
    >>> kind.direction, kind(n_perturb_samples=5).options()["perturb_radius"]
    ('lower', 0.02)
    """
    package, _, title = name.partition(":")
    source = _source_of(package)
    known = source.metrics()
    if title not in known:
        raise UnknownNameError(f"metric of {package}", title, known)
    if why := source.refusal(title):
        raise ArgumentError("metric", f"one of {package} that values a sample by itself", f"{title}, which {why}")
    fields, passed_on, more = source.fields_of(title)
    namespace = {
        "__module__": __name__,
        "__doc__": f"`{title}` of {source.version()}; its options are explained there.",
        "__post_init__": source.Base.__post_init__,
        "name": name,
        "direction": DIRECTIONS.get(name, source.direction_of(title)),
        "citation": CITATIONS.get(name, package),
        "bibtex": bibtex(name),
        "passed_on": passed_on,
        "origin": source.version(),
        **more,
    }
    made = dataclasses.make_dataclass(title, fields, bases=(source.Base,), namespace=namespace, frozen=True)
    assert issubclass(made, PeerMetric)
    return made


def peer(name: str, **options: Any) -> PeerMetric:
    """A configured metric of another package; see `peer_class`.

    Raises:
        ArgumentError: it has no such option, with the nearest that it has; a value that the peer refuses.

    >>> import holdfast as hf
    >>> digits = hf.data.bundled("digits")[:2]
    >>> classifier = hf.Classifier(hf.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    >>> metric = peer("captum:sensitivity_max", perturb_radius=0.1)
    >>> bool((metric(classifier, "saliency", digits.inputs).score > 0).all())
    True
    """
    kind = peer_class(name)
    known = [field.name for field in dataclasses.fields(kind)]
    for option in options:
        if option not in known:
            raise UnknownNameError(f"option of {name}", option, known)
    return kind(**options)


def _source_of(package: str) -> Source:
    if package not in SOURCES:
        raise UnknownNameError("package", package, SOURCES)
    return SOURCES[package]
