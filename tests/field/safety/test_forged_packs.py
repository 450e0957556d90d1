"""Somebody changes an evidence pack and seals it again: what contradicts the jobs is found without a signature."""

from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

import standfast
from standfast.checks import check
from standfast.cli import app
from standfast.evidence import make_pack, verify_pack
from standfast.evidence.pack import _seal

ROOT = Path(__file__).parents[3]
STUDY: dict[str, Any] = {
    "samples": 8,
    "sanity": False,
    "controls": False,
    "data": {"digits": "digits"},
    "models": {"lenet": "lenet5-mnist"},
    "explainers": ["saliency", "random"],
    "metrics": [{"max_sensitivity": {"neighbourhood": {"linf": 0.01}, "samples": 3}}],
    "requirements": [{"metric": "max_sensitivity", "at_most": 0.001}],
}


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pack whose requirement fails."""
    folder = tmp_path_factory.mktemp("packs")
    assert check(STUDY, folder / "results", progress=False).outcome == "fail"
    assert make_pack(folder / "results", folder / "pack").fine
    return folder / "pack"


def forge(
    pack: Path, to: Path, change: Callable[[dict[str, bytes], dict[str, Any]], object]
) -> dict[str, str]:
    """The problems of a copy in which the contents of files, or of `evidence.json`, were changed and sealed again."""
    shutil.copytree(pack, to)
    about = json.loads((pack / "evidence.json").read_text())
    contents = {name: (pack / name).read_bytes() for name in about["files"]}
    change(contents, about)
    for name in set(about["files"]) - set(contents):
        (to / name).unlink()
    for name, content in contents.items():
        (to / name).write_bytes(content)
    about["files"] = {
        n: {"sha256": hashlib.sha256(c).hexdigest(), "bytes": len(c)} for n, c in contents.items()
    }
    (to / "evidence.json").write_bytes(
        _seal({key: value for key, value in about.items() if key != "seal"})
    )
    return verify_pack(to).problems


def write_rows(frame: pl.DataFrame) -> bytes:
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    return buffer.getvalue()


def read_rows(contents: dict[str, bytes]) -> pl.DataFrame:
    return pl.read_parquet(io.BytesIO(contents["samples.parquet"]))


def change_value(contents: dict[str, bytes], about: dict[str, Any]) -> None:
    rows = read_rows(contents)
    contents["samples.parquet"] = write_rows(rows.with_columns(pl.col("value") * 0.5))


def drop_a_sample(contents: dict[str, bytes], about: dict[str, Any]) -> None:
    contents["samples.parquet"] = write_rows(read_rows(contents)[1:])


def change_verdict(contents: dict[str, bytes], about: dict[str, Any]) -> None:
    table = pl.read_csv(io.BytesIO(contents["summary.csv"]))
    contents["summary.csv"] = table.with_columns(quality=pl.lit("good")).write_csv().encode()


def change_median(contents: dict[str, bytes], about: dict[str, Any]) -> None:
    table = pl.read_csv(io.BytesIO(contents["summary.csv"]))
    contents["summary.csv"] = table.with_columns(pl.col("value") * 0.999999).write_csv().encode()


def drop_a_row(contents: dict[str, bytes], about: dict[str, Any]) -> None:
    contents["summary.csv"] = b"\n".join(contents["summary.csv"].splitlines()[:-1]) + b"\n"


FORGERIES: dict[str, tuple[Callable[[dict[str, bytes], dict[str, Any]], object], str]] = {
    "outcome": (lambda contents, about: about.update(outcome="pass"), "evidence.json"),
    "no outcome": (lambda contents, about: about.update(outcome=None), "evidence.json"),
    "digests of models": (
        lambda contents, about: about["results"].update(models={"lenet": "0"}),
        "evidence.json",
    ),
    "number of failed jobs": (
        lambda contents, about: about["results"].update(failed=7),
        "evidence.json",
    ),
    "values of samples": (change_value, "samples.parquet"),
    "a sample": (drop_a_sample, "samples.parquet"),
    "no samples": (
        lambda contents, about: contents.update({"samples.parquet": b""}),
        "samples.parquet",
    ),
    "no file of samples": (
        lambda contents, about: contents.pop("samples.parquet"),
        "samples.parquet",
    ),
    "a word of the summary": (change_verdict, "summary.csv"),
    "a number of the summary": (change_median, "summary.csv"),
    "a row of the summary": (drop_a_row, "summary.csv"),
    "no text in the summary": (
        lambda contents, about: contents.update({"summary.csv": b"\xff"}),
        "summary.csv",
    ),
    "no file of the summary": (lambda contents, about: contents.pop("summary.csv"), "summary.csv"),
}


@pytest.mark.parametrize(("change", "file"), FORGERIES.values(), ids=FORGERIES)
def test_what_contradicts_the_jobs_is_found(
    change: Callable[[dict[str, bytes], dict[str, Any]], object],
    file: str,
    pack: Path,
    tmp_path: Path,
) -> None:
    assert list(forge(pack, tmp_path / "pack", change)) == [file]


def test_an_outcome_that_contradicts_the_check_is_named(pack: Path, tmp_path: Path) -> None:
    problems = forge(pack, tmp_path / "pack", lambda contents, about: about.update(outcome="pass"))
    assert json.loads((tmp_path / "pack" / "check.json").read_text())["outcome"] == "fail"
    assert re.search("pass.*fail", problems["evidence.json"])
    assert CliRunner().invoke(app, ["verify", str(tmp_path / "pack")]).exit_code == 1


def test_the_order_of_columns_and_the_last_bits_are_no_forgery(pack: Path, tmp_path: Path) -> None:
    def change(contents: dict[str, bytes], about: dict[str, Any]) -> None:
        rows = read_rows(contents)
        contents["samples.parquet"] = write_rows(rows.select(reversed(rows.columns)))
        table = pl.read_csv(io.BytesIO(contents["summary.csv"]))
        contents["summary.csv"] = (
            table.with_columns(pl.col("value") * (1 + 1e-13)).write_csv().encode()
        )

    assert forge(pack, tmp_path / "pack", change) == {}


def test_what_needs_arrays_is_said(tmp_path: Path) -> None:
    study = {
        **STUDY,
        "samples": 4,
        "metrics": [{"corruption_curve": {"samples": 2}}, "seed_agreement"],
    }
    study.pop("requirements")
    standfast.run_study(study, tmp_path / "results", progress=False)
    small, whole = (
        make_pack(tmp_path / "results", tmp_path / name, name == "whole")
        for name in ("small", "whole")
    )
    assert (small.fine, len(small.uncheckable)) == (True, 1)
    assert small.uncheckable[0].startswith("corruption_curve")
    assert (whole.fine, whole.uncheckable) == (True, ())
    shown = CliRunner().invoke(app, ["verify", str(tmp_path / "small")])
    assert (shown.exit_code, small.uncheckable[0] in shown.output) == (0, True)


def test_what_a_signature_alone_protects_is_said_in_one_place(pack: Path, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "how-to" / "evidence.md").read_text()
    heading = "What only a signature or a noted digest protects"
    section = page.partition(f"### {heading}\n")[2].partition("\n## ")[0]
    anchor = heading.lower().replace(" ", "-")
    assert f"(docs/how-to/evidence.md#{anchor})" in (ROOT / "SECURITY.md").read_text()
    unprotected = {"report.html", "MODEL_CARD.md", "CROSSWALK.md", "README.md", "software.cdx.json"}
    assert {name for name in re.findall(r"`([\w.]+)`", section) if "." in name} == unprotected
    for name in sorted(unprotected):  # the page is true
        own = tmp_path / name

        def change(contents: dict[str, bytes], about: dict[str, Any], name: str = name) -> None:
            contents[name] += b" "

        assert forge(pack, own, change) == {}
