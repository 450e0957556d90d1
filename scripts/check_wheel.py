"""Check wheels and an sdist: everything of the package is in them, and nothing else, such as tests, is in a wheel.

python scripts/check_wheel.py dist/*.whl dist/*.tar.gz
"""

from __future__ import annotations

import configparser
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

#: for each package its folder in the checkout, its command, and without which files it would not work
PACKAGES = {
    "standfast": (
        ROOT / "src",
        ("standfast", "standfast.cli:main"),
        (
            "standfast/py.typed",
            "standfast/cli/commands.py",
            "standfast/data/assets/digits.npz",
            "standfast/metrics/publications.bib",
            "standfast/report/templates/report.html",
            "standfast/zoo/weights/lenet5-mnist.safetensors",
            "standfast/zoo/weights/lenet5-mnist.json",
        ),
    ),
    "standfast_board": (
        ROOT / "board",
        ("standfast-board", "standfast_board.commands:main"),
        ("standfast_board/commands.py", "standfast_board/templates/board_page.html"),
    ),
}
#: what somebody needs who has only the sdist: to build, to test, to cite
SOURCES = (
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "CHANGELOG.md",
    "CITATION.cff",
    "Makefile",
    "constraints.txt",
)


def package_files(package: str = "standfast") -> set[str]:
    """The files of a package in this checkout, as a wheel names them."""
    source = PACKAGES[package][0]
    return {
        file.relative_to(source).as_posix()
        for file in (source / package).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts and not file.name.startswith(".")
    }


def check_wheel(wheel: Path) -> list[str]:
    """What is wrong with a wheel, in sentences."""
    package = wheel.name.partition("-")[0]
    _, (command, target), needed = PACKAGES[package]
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = {name.rpartition("/")[2]: name for name in names if ".dist-info/" in name}
        about = Parser().parsestr(archive.read(metadata["METADATA"]).decode())
        scripts = configparser.ConfigParser()
        scripts.read_string(archive.read(metadata["entry_points.txt"]).decode())
        sizes = {info.filename: info.file_size for info in archive.infolist()}
    own, inside = package_files(package), {name for name in names if ".dist-info/" not in name}
    problems = [f"{name} is missing" for name in sorted(own - inside)]
    problems += [f"{name} should not be there" for name in sorted(inside - own)]
    problems += [f"{name} is needed" for name in needed if name not in inside]
    problems += [
        f"{name} is empty"
        for name in needed
        if not sizes.get(name, 1) and not name.endswith("py.typed")
    ]
    if "LICENSE" not in metadata:
        problems.append("the licence is missing")
    if scripts.get("console_scripts", command, fallback="") != target:
        problems.append(f"the command {command} is missing")
    for field in ("Requires-Python", "License-Expression", "Description-Content-Type"):
        if not about.get(field):
            problems.append(f"the metadata has no {field}")
    return problems


def check_sdist(sdist: Path) -> list[str]:
    """What is missing in an sdist."""
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {*SOURCES, *(f"src/{name}" for name in package_files())}
    wanted |= {f.relative_to(ROOT).as_posix() for f in (ROOT / "tests").glob("*.py")}
    return [f"{name} is missing" for name in sorted(wanted - names)]


def main(files: list[str]) -> int:
    """Print what is wrong; the number of files that are not right."""
    if not files:
        print(__doc__)
        return 2
    wrong = 0
    for file in map(Path, files):
        problems = check_wheel(file) if file.suffix == ".whl" else check_sdist(file)
        wrong += bool(problems)
        for problem in problems:
            print(f"{file.name}: {problem}")
        if not problems:
            print(f"{file.name}: complete, {file.stat().st_size / 1e6:.1f} MB")
    return wrong


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
