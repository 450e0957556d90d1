"""How many packages `pip install standfast` brings, and how many MB they take on disk.

    python benchmarks/installation/install_size.py [--extra NAME ...] [--site-packages DIR]

Reads the metadata of an environment in which standfast is installed, by default the one that runs this script.
It needs no network. Install without `-e`: an editable installation has no files of its own to measure.

- *Direct* packages are those of `dependencies` in `pyproject.toml` (and of each `--extra`).
  *All* adds what those require.
- The size of a package is the sum of the files in its `RECORD`, on disk, in MB of 10^6 bytes.
  This includes the bytecode (`.pyc`) that pip compiles when it installs.
- torch and what torch itself requires are listed apart: whoever has a model has them already.
  The total is what the other packages add. standfast itself is not in the total either.
- `alone` is what the environment would save without that direct package:
  its own files, and those that nothing else needs.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from importlib.metadata import Distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT, HOST = "standfast", "torch"
Installed = dict[str, Distribution]


def find_installed(folder: Path | None) -> Installed:
    """The distributions of an environment by normalised name."""
    found = distributions(path=[str(folder)]) if folder else distributions()
    return {canonicalize_name(each.metadata["Name"]): each for each in found}


def requirements_of(
    installed: Installed, name: str, extras: Iterable[str] = ()
) -> dict[str, set[str]]:
    """What a package requires here and now: names, each with the extras that are asked for."""
    found: dict[str, set[str]] = {}
    for line in installed[name].requires or ():
        needed = Requirement(line)
        if any(
            needed.marker is None or needed.marker.evaluate({"extra": extra})
            for extra in ("", *extras)
        ):
            found.setdefault(canonicalize_name(needed.name), set()).update(needed.extras)
    return found


def closure(installed: Installed, start: dict[str, set[str]]) -> set[str]:
    """The packages in `start` and everything that they require."""
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting = [(name, frozenset(extras)) for name, extras in start.items()]
    while waiting:
        each = waiting.pop()
        if each in seen or each[0] not in installed:
            continue
        seen.add(each)
        waiting += [
            (name, frozenset(extras)) for name, extras in requirements_of(installed, *each).items()
        ]
    return {name for name, _ in seen}


def megabytes(distribution: Distribution) -> float:
    """The size of the files of a distribution, in 10^6 bytes."""
    paths = (Path(str(distribution.locate_file(file))) for file in distribution.files or ())
    return sum(path.stat().st_size for path in paths if path.is_file()) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--extra",
        action="append",
        default=[],
        help="an extra of standfast that is installed as well",
    )
    parser.add_argument("--site-packages", type=Path, help="the folder of another environment")
    options = parser.parse_args()
    installed = find_installed(options.site_packages)
    direct = requirements_of(installed, ROOT, options.extra)
    missing = sorted(direct.keys() - installed.keys())
    if missing:
        parser.error(f"not installed: {', '.join(missing)}")

    host = closure(installed, {HOST: set()})
    every = closure(installed, direct)
    size = {name: megabytes(installed[name]) for name in every | host | {ROOT}}
    rows = []
    for name in direct.keys() - host:
        rest = closure(
            installed, {other: extras for other, extras in direct.items() if other != name}
        )
        rows.append((sum(size[each] for each in every - rest - host), name))

    print(f"{'direct package':24} {'version':14} {'MB':>7} {'alone':>7}")
    for alone, name in sorted(rows, reverse=True):
        print(f"{name:24} {installed[name].version:14} {size[name]:7.1f} {alone:7.1f}")
    print("\nrequired by these")
    for name in sorted(every - host - direct.keys(), key=size.__getitem__, reverse=True):
        asking = sorted(
            other
            for other in every
            if name in requirements_of(installed, other, direct.get(other, ()))
        )
        print(
            f"{name:24} {installed[name].version:14} {size[name]:7.1f}         {', '.join(asking)}"
        )
    print(f"\n{HOST} and what it requires")
    for name in sorted(host, key=size.__getitem__, reverse=True):
        print(
            f"{name:24} {installed[name].version:14} {size[name]:7.1f}         {'direct' if name in direct else ''}"
        )

    beyond = every - host
    print(
        f"\ndirect packages: {len(direct)}, of these {len(direct.keys() & host)} are {HOST} or required by it"
    )
    print(f"all packages beyond {HOST}: {len(beyond)}")
    print(
        f"MB beyond {HOST}: {sum(size[name] for name in beyond):.0f} ({ROOT} itself: {size[ROOT]:.0f})"
    )


if __name__ == "__main__":
    main()
