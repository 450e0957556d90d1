"""What identifies the parts of a card: hashes of the model, the data and the explainer, versions of the software."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from standfast.study.store import digest

#: what values of explanations may depend on, beside our own code, Python and torch
_PACKAGES = (
    "numpy",
    "scipy",
    "captum",
    "shap",
    "lime",
    "scikit-learn",
    "lightgbm",
    "xgboost",
    "catboost",
)


def read_digests(
    manifest: Mapping[str, Any],
    names: Mapping[str, str],
    retrained: Mapping[str, Mapping[str, Any]],
) -> dict[str, str]:
    """What identifies the parts of a card, by name; the same hashes are in an evidence pack.

    Args:
        manifest: of the results.
        names: the names of the model, the data and the explainer, by `"model"`, `"data"` and `"explainer"`.
        retrained: of models that were trained again, by name, the manifest that has them.

    >>> manifest = {"models": {"net": {"digest": "ab"}}, "environment": {"standfast": "1.0", "packages": {"shap": "2"}}}
    >>> read_digests(manifest, {"model": "net", "data": "rows", "explainer": "lime"}, {})
    {'model': 'ab', 'software': 'standfast 1.0, shap 2'}
    """
    digests: dict[str, str] = {}
    for part, section in (("model", "models"), ("data", "data")):
        described = (manifest.get(section) or {}).get(names[part]) or {}
        if described.get("digest"):
            digests[part] = str(described["digest"])
    again = [
        ((its_manifest.get("models") or {}).get(name) or {}).get("digest")
        for name, its_manifest in retrained.items()
    ]
    if again and all(again):
        digests["retrained models"] = digest(again)
    explainers = manifest.get("explainers") or {}
    if names["explainer"] in explainers:
        digests["explainer"] = digest(explainers[names["explainer"]])
    software = _list_software(manifest.get("environment") or {})
    if software:
        digests["software"] = software
    return digests


def _list_software(environment: Mapping[str, Any]) -> str:
    """The versions of what has computed the draws."""
    versions = {name: environment.get(name) for name in ("standfast", "python", "torch")}
    packages = environment.get("packages") or {}
    versions.update((name, packages.get(name)) for name in _PACKAGES)
    return ", ".join(f"{name} {version}" for name, version in versions.items() if version)
