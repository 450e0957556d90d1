"""How scores of other packages' metrics are read."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from standfast.results.presentation import Presentation, ValueSpec, presentations


@presentations.register("quantus")
@presentations.register("captum")
class PeerPresentation(Presentation):
    """A score of another package."""

    def value_spec(self, options: Mapping[str, Any]) -> ValueSpec:
        """The package's own title, and its direction."""
        package, _, title = self.metric.partition(":")
        found = super().value_spec(options)
        return dataclasses.replace(found, title=f"{title}, of {package.title()}", axis=f"score of {title}")
