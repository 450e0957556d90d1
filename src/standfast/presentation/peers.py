"""How scores of other packages' metrics are read."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from standfast.presentation.base import Presentation, Reading, presentations


@presentations.register("quantus")
@presentations.register("captum")
class PeerPresentation(Presentation):
    """A score of another package."""

    def reading(self, options: Mapping[str, Any]) -> Reading:
        """The package's own title, and its direction."""
        package, _, title = self.metric.partition(":")
        found = super().reading(options)
        return dataclasses.replace(found, title=f"{title}, of {package.title()}", axis=f"score of {title}")
