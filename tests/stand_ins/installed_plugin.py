"""A package with entry points, as pip would leave it beside its modules."""

from __future__ import annotations

from pathlib import Path


def install(folder: Path, name: str, points: str) -> None:
    """Write the metadata of version 1.0 of a package, with these entry points."""
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(points)
