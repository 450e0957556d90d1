"""How scores of other packages' metrics are read."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from holdfast.presentation.base import Presentation, Reading, presentations


@presentations.register("quantus")
@presentations.register("captum")
class PeerPresentation(Presentation):
    """A score of another package, by its own direction."""

    def reading(self, options: Mapping[str, Any]) -> Reading:
        """With the least relevant first (`order`), the better direction is the opposite one."""
        package, _, title = self.metric.partition(":")
        found = super().reading(options)
        if options.get("order") == "lerf" and found.direction is not None:
            found = dataclasses.replace(found, direction="lower" if found.direction == "higher" else "higher")
        return dataclasses.replace(found, title=f"{title}, of {package.title()}", axis=f"score of {title}")
