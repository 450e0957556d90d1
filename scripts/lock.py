"""Write or check `constraints.lock`: the SHA-256 of every published file of the versions in `constraints.txt`.

    python scripts/lock.py --uv build/audit/bin/uv             write it
    python scripts/lock.py --uv build/audit/bin/uv --check     fail if it names a file that the package index has not

Set-up does not need it. To install exactly these files, after torch: `pip install --require-hashes --no-deps -r
constraints.lock`. torch is left out, since its builds differ by machine.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

PINS, LOCK = (Path(__file__).parents[1] / name for name in ("constraints.txt", "constraints.lock"))
_HEAD = "# Written by scripts/lock.py from constraints.txt, without torch, whose builds differ by machine.\n"


def read_hashes(text: str) -> dict[str, set[str]]:
    """The hashes of each pinned version, such as `{"numpy==2.4.1": {"ab12...", ...}}`."""
    parts = re.split(r"^([\w.-]+==[^\s\\;]+)", text, flags=re.MULTILINE)
    pairs = zip(parts[1::2], parts[2::2], strict=True)
    return {pin.lower(): set(re.findall(r"sha256:([0-9a-f]{64})", hashes)) for pin, hashes in pairs}


def compile_lock(uv: str) -> str:
    """The lock as the package index gives it today."""
    pins = "".join(
        line for line in PINS.read_text().splitlines(True) if not line.startswith("torch==")
    )
    options = ["--generate-hashes", "--no-deps", "--universal", "--python-version", "3.11.7"]
    options += ["--no-header", "--no-annotate", "--quiet"]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "pins.txt").write_text(pins)
        command = [uv, "pip", "compile", f"{folder}/pins.txt", *options]
        return _HEAD + subprocess.run(command, capture_output=True, text=True, check=True).stdout


def main() -> None:
    """Write the lock, or compare it with the index."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--uv", default="uv")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    now = compile_lock(arguments.uv)
    if not arguments.check:
        LOCK.write_text(now)
        return
    published, locked = read_hashes(now), read_hashes(LOCK.read_text())
    wrong = [
        pin
        for pin in published.keys() | locked.keys()
        if not locked.get(pin) or locked[pin] - published.get(pin, set())
    ]
    print(
        f"{len(locked)} locked versions, {len(wrong)} of them without a published file: {', '.join(sorted(wrong))}"
    )
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
