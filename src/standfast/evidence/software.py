"""The installed software as a CycloneDX list (an SBOM), from the metadata of the installed packages."""

from __future__ import annotations

import json
import platform
import re
import uuid
from importlib.metadata import Distribution, distributions
from typing import Any


def describe_software() -> str:
    """A CycloneDX 1.5 list, as JSON, of the Python packages that are installed where this runs."""
    found: dict[str, Any] = {}
    for distribution in distributions():
        name, version = distribution.metadata["Name"], distribution.version
        if name and version:
            found.setdefault(_normalise(name), _describe_package(distribution, name, version))
    components = [found[name] for name in sorted(found)]
    own = found.get("standfast", {"name": "standfast", "version": "?"})
    content = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(components))}",
        "version": 1,
        "metadata": {
            "component": {"type": "application", "name": "standfast", "version": own["version"]},
            "properties": [
                {"name": "python", "value": platform.python_version()},
                {"name": "platform", "value": platform.platform()},
            ],
        },
        "components": components,
    }
    return json.dumps(content, indent=1) + "\n"


def _describe_package(distribution: Distribution, name: str, version: str) -> dict[str, Any]:
    url = f"pkg:pypi/{_normalise(name)}@{version.replace('+', '%2B')}"
    entry: dict[str, Any] = {"type": "library", "name": name, "version": version, "purl": url, "bom-ref": url}
    licence = _find_licence(distribution)
    return {**entry, "licenses": [licence]} if licence else entry


def _find_licence(distribution: Distribution) -> dict[str, Any] | None:
    """An SPDX expression where the package gives one, else the name from its classifiers or its licence field."""
    expressions, classifiers, licences = (
        distribution.metadata.get_all(key) or [] for key in ("License-Expression", "Classifier", "License")
    )
    if expressions:
        return {"expression": expressions[0]}
    names = [text.rpartition(" :: ")[2] for text in classifiers if text.startswith("License :: OSI Approved :: ")]
    names += [text for text in licences if 0 < len(text) < 80 and "\n" not in text]
    return {"license": {"name": names[0]}} if names else None


def _normalise(name: str) -> str:
    """The name as package indexes write it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()
