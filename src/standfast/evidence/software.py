"""The installed software as a CycloneDX list (an SBOM), from the metadata of the installed packages."""

from __future__ import annotations

import json
import platform
import re
import uuid
from importlib.metadata import distributions
from typing import Any


def describe_software() -> str:
    """A CycloneDX 1.5 list, as JSON, of the Python packages that are installed where this runs."""
    packages: dict[str, Any] = {}
    for distribution in distributions():
        name = distribution.metadata["Name"]
        version = distribution.version
        if name and version:
            # the first one found is the one that Python imports
            packages.setdefault(_normalise(name), _describe_package(name, version))
    components = [packages[name] for name in sorted(packages)]
    standfast = packages.get("standfast", {"version": "?"})
    content = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        # from the content, so that the same software has the same number
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(components))}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "name": "standfast",
                "version": standfast["version"],
            },
            "properties": [
                {"name": "python", "value": platform.python_version()},
                {"name": "platform", "value": platform.platform()},
            ],
        },
        "components": components,
    }
    return json.dumps(content, indent=1) + "\n"


def _describe_package(name: str, version: str) -> dict[str, Any]:
    # a local version follows a plus sign
    address_of_version = version.replace("+", "%2B")
    url = f"pkg:pypi/{_normalise(name)}@{address_of_version}"
    return {"type": "library", "name": name, "version": version, "purl": url, "bom-ref": url}


def _normalise(name: str) -> str:
    """The name as package indexes write it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()
