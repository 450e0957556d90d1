"""Write the files that a new metric of standfast needs, and enter its name in every list.

    python scripts/new_metric.py blur_consistency --room faithfulness --asks faithful

What is written is a small metric that works and passes its tests, with TODO where the publication comes in:
`git grep --untracked -n TODO -- src docs tests` lists the places. A metric in a package of your own needs none of this
(docs/extending.md).
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

TEMPLATES = Path(__file__).parent / "new_metric"


@dataclass(frozen=True)
class Section:
    """A question that metrics answer, and its places in the documentation.

    Attributes:
        heading: in the navigation.
        question: in the list of the API.
        last: the metric that stands last among those of this question, which the text of the list of metrics names;
            empty where none is named.
        evidence: what the numbers of such a metric most often are to an auditor (`Metric.evidence`).
    """

    heading: str
    question: str
    last: str
    evidence: str


#: the questions, in the order of the documentation
SECTIONS = {
    "stable": Section("Is the map stable?", "is the map stable?", "attribution_attack", "drawn"),
    "model": Section(
        "Does it go with the model?", "does it go with the model?", "near_affinity", "faithful"
    ),
    "faithful": Section(
        "Do the marked features matter?", "is it faithful?", "corruption_curve", "faithful"
    ),
    "known": Section(
        "Does it find a known region?", "does it find what is known?", "", "plausible"
    ),
}
#: a figure until `scripts/docs_figures.py` has drawn one
FIGURE = '<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"/>\n'


@dataclass(frozen=True)
class NewMetric:
    """The names of a new metric.

    Attributes:
        name: the registered name, such as `"blur_consistency"`.
        room: the folder of its paper, or of the nearest metric, such as `"faithfulness"`.
        asks: what it asks, a key of `SECTIONS`.
    """

    name: str
    room: str
    asks: str

    @property
    def class_name(self) -> str:
        """Such as `BlurConsistency`."""
        return "".join(part.capitalize() for part in self.name.split("_"))

    @property
    def title(self) -> str:
        """Such as `Blur consistency`."""
        return self.name.replace("_", " ").capitalize()

    @property
    def bibtex(self) -> str:
        """The entry of its publication, which is to be filled in."""
        lines = (
            f"@misc{{{self.name},",
            "  title  = {TODO},",
            "  author = {TODO},",
            "  year   = {2000}",
            "}",
        )
        return "\n".join(lines)

    def fill(self, template: str) -> str:
        """A template with the names in it."""
        text = (TEMPLATES / template).read_text(encoding="utf-8")
        words = {
            "name": self.name,
            "Class": self.class_name,
            "Title": self.title,
            "title": self.title.lower(),
            "bibtex": self.bibtex,
            "evidence": SECTIONS[self.asks].evidence,
        }
        for word, value in words.items():
            text = text.replace(f"@{word}@", value)
        return text


def list_files(metric: NewMetric) -> dict[str, str]:
    """The new files, by their paths."""
    name, room = metric.name, metric.room
    return {
        f"src/standfast/metrics/{room}/{name}.py": metric.fill("metric.py.txt"),
        f"src/standfast/report/templates/metrics/{name}.html": metric.fill("report.html.txt"),
        f"tests/metrics/{room}/test_{name}.py": metric.fill("test.py.txt"),
        f"docs/metrics/{name}.md": metric.fill("page.md.txt"),
        f"docs/api/metrics/{name}.md": metric.fill("api.md.txt"),
        f"docs/figures/{name}.svg": FIGURE,
    }


def list_entries(metric: NewMetric) -> dict[str, list[Callable[[str], str]]]:
    """What is entered in lists that are there, by their files."""
    name, kind, title = metric.name, metric.class_name, metric.title
    section = SECTIONS[metric.asks]
    module = f"standfast.metrics.{metric.room}.{name}"
    page = f"          - {title}: metrics/{name}.md\n"
    reference = f"          - {kind}: api/metrics/{name}.md\n"
    figure = f'        "{name}": Figure(of.{kind}(), 30),\n'
    in_the_table = f"| TODO: the question | [{title}]({name}.md) | higher |\n"
    anchor = name.replace("_", "-")
    term = f"- **{title}**{{#{anchor}}}: TODO ([{title}](metrics/{name}.md)).\n"
    return {
        "src/standfast/metrics/__init__.py": [
            insert_sorted(f"from {module} import {kind}\n", r"^from standfast\.metrics\.\w+.*\n"),
            insert_sorted(f'    "{kind}",\n', r'^    "[A-Z]\w*[a-z]\w*",\n'),
        ],
        "src/standfast/metrics/publications.bib": [
            lambda text: f"{text.rstrip()}\n\n{metric.bibtex}\n"
        ],
        "docs/metrics/index.md": [insert_after(find_rows_before(section.last), in_the_table)],
        "docs/api/metrics/index.md": [
            insert_after(
                rf"^\| {re.escape(section.question)} \| .*(?= \|$)", f", [{kind}]({name}.md)"
            ),
        ],
        "mkdocs.yml": [
            insert_after(rf"^      - {re.escape(section.heading)}:\n(?:          - .*\n)*", page),
            insert_after(r"^      - Metrics:\n          - api/metrics/index.md\n", reference),
        ],
        "docs/how-to/speed.md": [
            insert_after(r"^\| metric \| quick .*\n\| ---.*\n", f"| `{name}` | 1 | 1 | 1 |\n")
        ],
        "docs/how-to/tabular.md": [insert_after(r"^\| Metrics \| ", f"`{name}`, ")],
        "docs/glossary.md": [insert_after(r"^## Metrics\n\n", term)],
        "scripts/docs_figures.py": [
            insert_after(r"^    return \{\n(?=        \"[a-z_]+\": Figure)", figure)
        ],
        "tests/docs/test_black_boxes.py": [insert_after(r"^METRICS = \{\n", f'    "{name}",\n')],
        "tests/metrics/test_seeds_and_constant_maps.py": [
            insert_after(r"^SAME_FOR_ALL_SEEDS = \(\n?", f'"{name}", '),
        ],
    }


def find_rows_before(name: str) -> str:
    """The pattern of the rows in the list of metrics that come before that of a metric; of all rows without a name."""
    other_rows = rf"(?:\| (?!.*\]\({name}\.md\)).*\n)*" if name else r"(?:\| .*\n)*"
    return rf"^\| your question .*\n\| ---.*\n{other_rows}"


def insert_after(pattern: str, entry: str) -> Callable[[str], str]:
    """A function that inserts an entry into a text, after the first part that has a pattern."""

    def insert(text: str) -> str:
        place = re.search(pattern, text, re.MULTILINE)
        if place is None:
            raise SystemExit(f"no place for {entry.strip()!r}: nothing looks like {pattern!r}")
        return text[: place.end()] + entry + text[place.end() :]

    return insert


def insert_sorted(entry: str, pattern: str) -> Callable[[str], str]:
    """A function that inserts a line into a text, before the first line of a pattern that comes after it."""

    def insert(text: str) -> str:
        lines = list(re.finditer(pattern, text, re.MULTILINE))
        if not lines:
            raise SystemExit(f"no place for {entry.strip()!r}: nothing looks like {pattern!r}")
        later = [line.start() for line in lines if line[0] > entry]
        place = later[0] if later else lines[-1].end()
        return text[:place] + entry + text[place:]

    return insert


def write_metric(metric: NewMetric, root: Path) -> list[str]:
    """Write all files, and return the paths of those that are new or have a new entry."""
    files = list_files(metric)
    there = [path for path in files if (root / path).exists()]
    if there:
        raise SystemExit(f"{', '.join(there)}: there already")
    for path, insertions in list_entries(metric).items():
        text = (root / path).read_text(encoding="utf-8")
        for insert in insertions:
            text = insert(text)
        files[path] = text
    # written only now: an entry that has no place leaves everything as it was
    for path, text in files.items():
        (root / path).write_text(text, encoding="utf-8")
    return list(files)


def main() -> None:
    """Write a metric, and say what is left to do."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", help="such as blur_consistency")
    parser.add_argument(
        "--room", default="faithfulness", help="the folder of its paper, or of the nearest metric"
    )
    parser.add_argument("--asks", default="faithful", choices=SECTIONS)
    parser.add_argument(
        "--root", type=Path, default=Path(__file__).parents[1], help=argparse.SUPPRESS
    )
    arguments = parser.parse_args()
    name = arguments.name
    room = arguments.root / "src/standfast/metrics" / arguments.room
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name):
        parser.error(
            f"a name is made of words in small letters, such as blur_consistency, and not {name!r}"
        )
    if not (room / "__init__.py").is_file():
        rooms = sorted(path.parent.name for path in room.parent.glob("*/__init__.py"))
        parser.error(f"--room: expected one of {', '.join(rooms)}, got {arguments.room!r}")
    metric = NewMetric(name, arguments.room, arguments.asks)
    print("\n".join(write_metric(metric, arguments.root)))
    print(
        f"\n{metric.class_name} works and passes its tests. What is left:\n"
        "    git grep --untracked -n TODO -- src docs tests\n"
        f"    python scripts/docs_figures.py {name}\n"
        "    python tests/golden/golden.py --write --only metrics\n"
        "    make format test",
        file=sys.stderr,
    )


if __name__ == "__main__":
    main()
