"""`pip install`, with a line every few seconds that says how far it is: pip itself is mute while it unpacks torch.

    .venv/bin/python scripts/install.py -c constraints.txt -e .

The Makefile runs it. What pip says is shown only if it fails; its exit code is ours. Modules are compiled when they are
first imported: to compile all of torch takes longer than to unpack it.
"""

from __future__ import annotations

import queue
import re
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

_SECONDS_BETWEEN_LINES = 5.0
#: so much of what pip has said is shown if it fails
_LINES_OF_A_FAILURE = 40


def describe_step(line: str) -> str | None:
    """What pip does, from a line that it prints; None for lines that say nothing new.

    >>> describe_step("  Downloading torch-2.13.0-cp311-manylinux_2_28_x86_64.whl (191.8 MB)")
    'downloading torch-2.13.0 (191.8 MB)'
    >>> describe_step("Collecting pillow==13.0.0"), describe_step("Requirement already satisfied: pip")
    ('looking for pillow', None)
    """
    wheel = re.match(
        r"\s*(?:Downloading|Using cached|Processing) (?:\S*/)?([^-/]+-[^-]+)-\S+\.whl(.*)", line
    )
    if wheel is not None:
        return f"downloading {wheel[1]}{wheel[2].partition(' (from')[0]}"
    wanted = re.match(r"Collecting ([\w.-]+)", line)
    if wanted is not None:
        return f"looking for {wanted[1]}"
    if line.startswith("Building"):
        return "building standfast"
    if line.startswith("Installing collected packages: "):
        return "unpacking"
    return None


def _count_packages() -> int:
    """How many packages the environment has; each writes this folder when it is unpacked."""
    return len(list(Path(sysconfig.get_path("purelib")).glob("*.dist-info")))


def _read_lines(process: subprocess.Popen[str], timeout: float) -> Iterator[str | None]:
    """What a process prints, line by line; None whenever it has been mute for so many seconds."""
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    output: Iterable[str] = process.stdout or ()

    def forward() -> None:
        for line in output:
            lines.put(line.rstrip())
        lines.put(None)

    reader = threading.Thread(target=forward, daemon=True)
    reader.start()
    while True:
        try:
            line = lines.get(timeout=timeout)
        except queue.Empty:
            yield None
            continue
        if line is None:
            return
        yield line


def install(arguments: Sequence[str]) -> int:
    """Run pip with these arguments, and return its exit code."""
    options = ["--no-compile", "--progress-bar", "off", "--disable-pip-version-check", "--no-input"]
    command = [sys.executable, "-m", "pip", "install", *options, *arguments]
    step = "starting pip"
    began = last = time.monotonic()
    said: list[str] = []
    packages_before = _count_packages()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        for line in _read_lines(process, timeout=min(1.0, _SECONDS_BETWEEN_LINES)):
            if line is not None:
                said.append(line)
                step = describe_step(line) or step
            now = time.monotonic()
            if now - last >= _SECONDS_BETWEEN_LINES:
                last = now
                count = (
                    f": {_count_packages() - packages_before} packages are there"
                    if step == "unpacking"
                    else ""
                )
                print(f"  {now - began:3.0f} s  {step}{count}", flush=True)
        code = process.wait()
    if code:
        print("\n".join(said[-_LINES_OF_A_FAILURE:]), file=sys.stderr)
    return code


def main() -> None:
    """Install what the command line names."""
    try:
        code = install(sys.argv[1:])
    except KeyboardInterrupt:  # pip gets it, too, and ends
        print("interrupted; the same command goes on with what is downloaded", file=sys.stderr)
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    main()
