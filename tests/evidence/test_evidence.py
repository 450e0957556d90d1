"""Evidence packs: what is in them, tampering, and evaluating jobs again."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from ruamel.yaml import YAML
from typer.testing import CliRunner

import standfast
from standfast.checks import check, freeze_baseline
from standfast.checks.formats import format_json, format_markdown
from standfast.checks.sequence import DecisionConfirmation, confirm_decisions, read_decisions
from standfast.cli import app
from standfast.errors import ArgumentError, StandfastError
from standfast.evidence import make_pack, replay, verify_pack
from standfast.evidence.crosswalk import read_clauses, write_crosswalk
from standfast.evidence.model_card import write_model_card
from standfast.evidence.pack import _seal, is_pack
from standfast.evidence.repetition import compare_values
from standfast.evidence.software import describe_software
from standfast.metrics.base import metrics
from standfast.metrics.sanity import RULES
from standfast.report import Results, load_results
from standfast.study.store import Store

METRIC = "max_sensitivity"
STUDY: dict[str, Any] = {
    "title": "A <study> | of digits",
    "samples": 8,
    "data": {"digits": "digits"},
    "models": {"lenet": "lenet5-mnist"},
    "explainers": ["saliency", "random"],
    "metrics": [{METRIC: {"neighbourhood": {"linf": 0.01}, "samples": 3}}],
    "requirements": [{"metric": METRIC, "at_most": 1.0}],
    "controls": False,
}


#: without the sanity checks, for tests that are not about them
BARE = {**STUDY, "sanity": False}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    check(STUDY, folder, progress=False)
    return folder


@pytest.fixture(scope="module")
def pack(results: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packs") / "pack"
    made = CliRunner().invoke(app, ["evidence", str(results), "--out", str(folder)])
    assert made.exit_code == 0, made.output
    found = verify_pack(folder)
    assert found.fine
    assert made.output.splitlines()[1] == f"digest of the pack: {found.digest}"
    return folder


def test_what_is_in_a_pack(pack: Path, results: Path) -> None:
    names = {file.relative_to(pack).as_posix() for file in pack.rglob("*") if file.is_file()}
    made = {
        "README.md",
        "report.html",
        "summary.csv",
        "samples.parquet",
        "MODEL_CARD.md",
        "CROSSWALK.md",
    }
    assert made <= names
    assert {
        "software.cdx.json",
        "check.md",
        "check.json",
        "results/manifest.json",
        "results/looks.json",
    } <= names
    assert not any(name.startswith("results/artefacts") for name in names)
    again = load_results(pack / "results")
    assert again.samples.equals(load_results(results).samples)
    assert pl.read_parquet(pack / "samples.parquet").equals(again.samples)
    listed = json.loads((pack / "evidence.json").read_text())
    assert set(listed["files"]) == names - {"evidence.json"}
    assert listed["outcome"] == json.loads((pack / "check.json").read_text())["outcome"]
    assert listed["results"]["models"] == {"lenet": again.manifest["models"]["lenet"]["digest"]}
    assert listed["results"]["sanity"] == {"samples": 100, "rules": RULES}
    assert again.sanity == load_results(results).sanity


def test_the_model_card_is_what_the_hub_reads(pack: Path) -> None:
    text = (pack / "MODEL_CARD.md").read_text()
    _, metadata, body = text.split("---\n", 2)
    index = YAML(typ="safe").load(metadata)["model-index"]
    assert [model["name"] for model in index] == ["lenet"]
    (result,) = index[0]["results"]
    assert {"task", "dataset", "metrics"} <= set(result)
    assert {metric["name"] for metric in result["metrics"]} == {
        f"{METRIC} (saliency)",
        f"{METRIC} (random)",
    }
    table = load_results(pack / "results").table()
    (value,) = table.filter(pl.col("explainer") == "saliency")["value"]
    (own,) = (metric for metric in result["metrics"] if "saliency" in metric["name"])
    assert own["value"] == pytest.approx(value, rel=1e-5)
    assert "random (control)" in body
    assert "max_sensitivity: median at most 1" in body
    verdict = str(load_results(pack / "results").verdict())
    assert verdict in body.replace("\\", "")


def test_the_model_card_says_where_few_samples_give_less_than_95_percent(
    pack: Path, tmp_path: Path
) -> None:
    def read(card: str) -> tuple[list[float], str]:
        _, metadata, body = card.split("---\n", 2)
        (result,) = YAML(typ="safe").load(metadata)["model-index"][0]["results"]
        return [metric["args"]["coverage"] for metric in result["metrics"]], body

    standfast.run_study({**BARE, "samples": 4}, tmp_path, progress=False)
    coverages, body = read(write_model_card(load_results(tmp_path)))
    assert coverages == [0.875, 0.875]  # 1 - 2 / 2^4
    assert body.count("] (88%), n = 4") == 2
    coverages, body = read((pack / "MODEL_CARD.md").read_text())
    assert min(coverages) >= 0.95
    assert "%), n = 8" not in body


def test_the_model_card_parses_with_huggingface_hub(pack: Path) -> None:
    hub = pytest.importorskip("huggingface_hub")
    card = hub.ModelCard((pack / "MODEL_CARD.md").read_text(), ignore_metadata_errors=False)
    (first, *_) = card.data.eval_results
    assert (first.dataset_name, first.metric_type) == ("digits", METRIC)


def test_kinds_of_numbers_are_those_of_metrics() -> None:
    named = {kind for clause in read_clauses() for kinds in clause.shows for kind in kinds}
    assert {metrics[name].evidence for name in metrics.names()} - {""} == named - {"tested"}


@pytest.mark.parametrize(
    ("metrics", "said", "unsaid"),
    [
        (
            ["max_sensitivity: {samples: 2}"],
            ["among random draws"],
            ["search", "probability", "faithful", "controls"],
        ),
        (["worst_case: {search: random, budget: 5}"], ["among random draws"], ["search"]),
        (["attribution_attack: {k: 50, attack: random_sign}"], ["among random draws"], ["search"]),
        (
            ["aopc: {steps: 2}"],
            ["faithful", "calls important", "tests against controls"],
            ["stable", "draws"],
        ),
        (
            ["worst_case: {search: block, budget: 5}", "max_sensitivity: {samples: 2}"],
            ["that a search found", "among random draws", "searched worst cases"],
            ["probability of a large change", "probability of a misinterpretation"],
        ),
    ],
)
def test_the_crosswalk_claims_only_what_the_metrics_show(
    metrics: list[str], said: list[str], unsaid: list[str], tmp_path: Path
) -> None:
    listed = YAML(typ="safe").load("\n".join(f"- {metric}" for metric in metrics))
    study = {
        **BARE,
        "samples": 4,
        "neighbourhood": {"linf": 0.01},
        "metrics": listed,
        "requirements": [],
    }
    standfast.run_study(study, tmp_path, progress=False)
    rows = [
        line.split(" | ")
        for line in write_crosswalk(load_results(tmp_path)).splitlines()[6:]
        if "|" in line
    ]
    shows = "\n".join(row[4] for row in rows[: len(read_clauses())])
    assert [words for words in said if words not in shows] == []
    assert [words for words in unsaid if words in shows] == []


@pytest.mark.parametrize("evidence", ["drawn", ""])
def test_the_crosswalk_has_a_metric_of_a_plug_in(
    evidence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = type("Steady", (metrics["max_sensitivity"],), {"name": "steady", "evidence": evidence})
    monkeypatch.setitem(metrics._entries, "steady", kind)
    study = {
        **BARE,
        "metrics": [{"steady": {"neighbourhood": {"linf": 0.01}, "samples": 2}}],
        "requirements": [],
    }
    standfast.run_study(study, tmp_path, progress=False)
    page = write_crosswalk(load_results(tmp_path))
    assert ("| steady | the largest change among random draws" in page) == bool(evidence)
    assert ("Numbers that speak to none of these clauses: steady." in page) != bool(evidence)
    assert "search" not in page


def test_the_software_is_a_cyclonedx_list() -> None:
    content = json.loads(describe_software())
    assert (content["bomFormat"], content["specVersion"]) == ("CycloneDX", "1.5")
    by_name = {component["name"].lower(): component for component in content["components"]}
    assert by_name["numpy"]["purl"].startswith("pkg:pypi/numpy@")
    assert describe_software() == describe_software()
    references = [component["bom-ref"] for component in content["components"]]
    assert len(set(references)) == len(references)


def change_at_random(folder: Path, turn: random.Random) -> str:
    """One random edit of a pack, and what it was."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    file, kind = turn.choice(files), turn.randrange(6)
    content = file.read_bytes()
    place = turn.randrange(max(len(content), 1))
    if kind == 0:
        file.write_bytes(
            content[:place]
            + bytes([content[place] ^ (1 << turn.randrange(8))])
            + content[place + 1 :]
        )
    elif kind == 1:
        file.write_bytes(content[:place])
    elif kind == 2:
        file.write_bytes(content[:place] + b" " + content[place:])
    elif kind == 3:
        file.unlink()
    elif kind == 4:
        file.rename(file.with_name(f"{file.name}.new"))
    else:
        (file.parent / f"added{place}").write_bytes(b"new")
    return f"edit {kind} of {file.relative_to(folder)} at {place}"


def test_every_random_edit_is_found(pack: Path, tmp_path: Path) -> None:
    turn, work = random.Random(0), tmp_path / "work"
    missed = []
    for _ in range(40):
        shutil.copytree(pack, work)
        edit = change_at_random(work, turn)
        if (work / "evidence.json").exists():
            if verify_pack(work).fine:
                missed.append(edit)
        elif is_pack(work):
            missed.append(edit)
        shutil.rmtree(work)
    assert missed == []


def test_links_and_files_of_other_kinds_are_found(pack: Path, tmp_path: Path) -> None:
    work, elsewhere = tmp_path / "pack", tmp_path / "elsewhere"
    shutil.copytree(pack, work)
    elsewhere.mkdir()
    (work / "results" / "artefacts").symlink_to(elsewhere)  # a folder, which the results would read
    shutil.move(work / "summary.csv", elsewhere)
    (work / "summary.csv").symlink_to(elsewhere / "summary.csv")
    (work / "README.md").unlink()
    os.mkfifo(work / "README.md")  # reading it would wait for ever
    problems = verify_pack(work).problems
    assert problems == {
        "results/artefacts": "a link to elsewhere",
        "summary.csv": "a link to elsewhere",
        "README.md": "neither a file nor a folder",
    }


def test_results_that_changed_since_the_check_are_no_evidence(
    results: Path, tmp_path: Path
) -> None:
    work = tmp_path / "results"
    shutil.copytree(results, work)
    standfast.run_study({**STUDY, "samples": 12}, work, progress=False)
    with pytest.raises(StandfastError, match="have changed since their requirements were decided"):
        make_pack(work, tmp_path / "pack")


def change_looks(folder: Path, change: Callable[[dict[str, Any]], object]) -> Results:
    """Results whose stored decisions somebody has changed, and sealed again."""
    store = Store(folder)
    content = store.read_json("looks.json", "")
    change(content["looks"][-1])
    store.write_json("looks.json", content)
    return load_results(folder)


@pytest.mark.parametrize(
    "change",
    [
        lambda look: look["decisions"][0].update(outcome="pass"),
        lambda look: look["decisions"][0]["estimate"].update(count=400),
        lambda look: look["decisions"][0]["estimate"].update(low=0.97),
        lambda look: look["decisions"][0].update(limit=0.4),
        lambda look: look["decisions"].pop(),
        lambda look: look["decisions"][0].update(requirement="something else"),
    ],
)
def test_decisions_that_the_numbers_do_not_give_are_no_evidence(
    change: Callable[[dict[str, Any]], object], results: Path, pack: Path, tmp_path: Path
) -> None:
    shutil.copytree(results, tmp_path / "results")
    changed = change_looks(tmp_path / "results", change)
    (name, *_) = confirm_decisions(changed).different
    assert name.startswith("digits / lenet / saliency / ")
    with pytest.raises(
        ArgumentError, match=r"decisions that the stored numbers give .* others in looks\.json"
    ):
        make_pack(changed, tmp_path / "pack")
    # somebody makes a pack by hand in which all fits together, but not the numbers
    shutil.copytree(pack, tmp_path / "forged")
    forged = change_looks(tmp_path / "forged" / "results", change)
    decisions = read_decisions(forged)
    assert decisions is not None
    (tmp_path / "forged" / "check.json").write_text(format_json(decisions))
    (tmp_path / "forged" / "check.md").write_text(format_markdown(decisions))
    list_again(tmp_path / "forged", outcome=decisions.outcome)
    problems = verify_pack(tmp_path / "forged").problems
    assert list(problems) == ["results/looks.json"]
    assert name in problems["results/looks.json"]


def list_again(pack: Path, **changes: Any) -> None:
    """List the files of a pack as they are, as somebody could who has changed them."""
    about = json.loads((pack / "evidence.json").read_text()) | changes
    contents = {name: (pack / name).read_bytes() for name in about["files"]}
    about["files"] = {
        n: {"sha256": hashlib.sha256(c).hexdigest(), "bytes": len(c)} for n, c in contents.items()
    }
    (pack / "evidence.json").write_bytes(
        _seal({key: value for key, value in about.items() if key != "seal"})
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda about: about["values"].update(direction="lower"),  # it ranks no explainers
        lambda about: about["values"].update(column="low"),
        lambda about: about.update(direction="higher"),
        lambda about: about.update(controls=True),
        lambda about: about["values"].update(decimals=0),
        # which nobody could compare with a class
        lambda about: about.update(metric="another_metric"),
    ],
)
def test_a_manifest_that_reads_numbers_in_another_way_is_found(
    change: Callable[[dict[str, Any]], object], pack: Path, tmp_path: Path
) -> None:
    """All tables of the pack could be made to fit, since they follow from the manifest."""
    shutil.copytree(pack, tmp_path / "pack")
    store = Store(tmp_path / "pack" / "results")
    manifest = store.manifest()
    change(manifest["metrics"][METRIC])
    store.write_json("manifest.json", manifest)
    list_again(tmp_path / "pack")
    problem = verify_pack(tmp_path / "pack").problems["results/manifest.json"]
    assert problem == f"reads the numbers of {METRIC} in another way than the metric"


def test_a_table_of_decisions_that_was_changed_in_a_pack_is_found(
    pack: Path, tmp_path: Path
) -> None:
    shutil.copytree(pack, tmp_path / "pack")
    list_again(tmp_path / "pack")
    assert verify_pack(tmp_path / "pack").fine
    shutil.copytree(pack, tmp_path / "other")
    text = (pack / "check.md").read_text()
    (tmp_path / "other" / "check.md").write_text(text.replace("n = 8", "n = 800"))
    list_again(tmp_path / "other")
    assert verify_pack(tmp_path / "other").problems == {
        "check.md": "not what results/looks.json says"
    }


def test_decisions_of_earlier_looks_are_decided_again_on_their_samples(tmp_path: Path) -> None:
    """With a last job of a look that has grown since, and limits that are decided, and not, at the first look."""
    limits = [{"metric": METRIC, "at_most": limit} for limit in (100.0, 1.45)]
    study = {**BARE, "requirements": limits, "samples_per_job": 8}
    check({**study, "samples": 20}, tmp_path / "results", progress=False)
    last = check({**study, "samples": 40}, tmp_path / "results", progress=False)
    assert {each.estimate.count for each in last.decisions if each.estimate} == {20, 40}
    assert confirm_decisions(load_results(tmp_path / "results")) == DecisionConfirmation()
    assert make_pack(tmp_path / "results", tmp_path / "pack").fine


def test_a_decision_against_a_baseline_that_is_not_here_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = CliRunner().invoke
    standfast.run_study({**BARE, "requirements": []}, tmp_path / "first", progress=False)
    freeze_baseline(tmp_path / "first", tmp_path / "baseline")
    wanted = [*STUDY["requirements"], {"no_worse_than": "baseline", "by": 0.5}]
    monkeypatch.chdir(tmp_path)
    check({**BARE, "requirements": wanted}, tmp_path / "second", progress=False)
    assert confirm_decisions(load_results(tmp_path / "second")) == DecisionConfirmation()
    shutil.move(tmp_path / "baseline", tmp_path / "gone")
    (name,) = confirm_decisions(load_results(tmp_path / "second")).unknown
    assert "baseline" in name
    made = make_pack(tmp_path / "second", tmp_path / "pack")
    assert (made.fine, made.unconfirmed) == (True, (name,))
    assert (
        f"not decided again, since its baseline is not here: {name}"
        in run(app, ["verify", "pack"]).output
    )


def test_a_title_with_html_is_text_in_every_part(tmp_path: Path) -> None:
    title = "<script>alert(1)</script> [a](javascript:alert(1)) `b`\nc"
    standfast.run_study(
        {**BARE, "title": title, "requirements": []}, tmp_path / "results", progress=False
    )
    make_pack(tmp_path / "results", tmp_path / "pack")
    for page in (tmp_path / "pack").glob("*.md"):
        assert "<script" not in page.read_text()
        assert "](javascript" not in page.read_text()
    assert (
        "&lt;script>alert(1)&lt;/script> [a]\\(javascript:alert(1)) "
        in (tmp_path / "pack/README.md").read_text()
    )


def test_a_signature_by_another_program_may_lie_beside_the_list(pack: Path, tmp_path: Path) -> None:
    shutil.copytree(pack, tmp_path / "pack")
    (tmp_path / "pack" / "evidence.json.sig").write_bytes(b"signature")
    assert verify_pack(tmp_path / "pack") == verify_pack(pack)


def test_arguments_are_checked(results: Path, pack: Path, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="out: expected a new or an empty folder"):
        make_pack(results, pack)
    with pytest.raises(ArgumentError, match="path: expected an evidence pack"):
        verify_pack(tmp_path)
    damaged = tmp_path / "damaged"
    shutil.copytree(results, damaged)
    job = next((damaged / "jobs").iterdir())
    job.write_bytes(job.read_bytes()[:-1])
    with pytest.raises(StandfastError, match="is damaged"):
        make_pack(damaged, tmp_path / "pack")


def test_a_pack_of_an_old_manifest_verifies_and_is_evaluated_again(
    pack: Path, tmp_path: Path
) -> None:
    """It does not say how numbers are read, which the metric does."""
    shutil.copytree(pack, tmp_path / "pack")
    store = Store(tmp_path / "pack" / "results")
    manifest = store.manifest()
    del manifest["metrics"][METRIC]["values"], manifest["metrics"][METRIC]["controls"]
    store.write_json("manifest.json", manifest)
    list_again(tmp_path / "pack")
    assert verify_pack(tmp_path / "pack").fine
    assert replay(tmp_path / "pack", tmp_path, jobs=1).fine


def test_jobs_are_evaluated_again_with_the_same_bits(pack: Path, tmp_path: Path) -> None:
    lines: list[str] = []
    found = replay(pack, tmp_path, jobs=3, tell=lines.append)
    assert found.fine
    assert list(found.jobs.values()) == ["same bits"] * 3
    assert len(lines) == 3
    assert replay(pack, tmp_path, jobs=3, seed=found.seed).jobs == found.jobs
    shutil.copytree(pack, tmp_path / "changed")
    (tmp_path / "changed" / "README.md").write_text("changed")
    with pytest.raises(ArgumentError, match="a pack of which nothing was changed"):
        replay(tmp_path / "changed", tmp_path, jobs=3)


MODEL = """import torch
from torch import nn

def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
"""


def test_another_model_is_found_and_arrays_are_added_if_they_are_wanted(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(MODEL)
    ball = {"neighbourhood": {"linf": 0.01}, "budget": 5, "search": "random"}
    study = {
        **BARE,
        "models": {"own": {"function": "own:model"}},
        "metrics": [{"worst_case": ball}],
    }
    YAML().dump({**study, "requirements": []}, tmp_path / "study.yaml")
    standfast.run_study(tmp_path / "study.yaml", tmp_path / "results", progress=False)
    make_pack(tmp_path / "results", tmp_path / "pack", arrays=True)
    again = load_results(tmp_path / "pack" / "results")
    (job,) = again.jobs.filter(
        label="worst_case: changed_explanation", explainer="saliency", start=0
    )["job"]
    assert "origin_maps" in again.artefacts(job)
    assert replay(tmp_path / "pack", tmp_path, jobs=1).fine
    (tmp_path / "own.py").write_text(MODEL.replace("seed(0)", "seed(1)"))
    del sys.modules["own"]  # modules are imported once
    done = CliRunner().invoke(
        app, ["replay", str(tmp_path / "pack"), "--jobs", "1", "--base", str(tmp_path)]
    )
    assert done.exit_code == 1
    assert "not the same here: models 'own': other values" in done.stderr


FRAME = pl.DataFrame(
    {
        "sample": [0, 1],
        "status": ["ok", "ok"],
        "value": [1.0, 2.0],
        "low": [0.5, None],
        "high": [1.5, None],
    }
)


FOUND = FRAME.with_columns(found=pl.Series([True, False]))


def valued(*values: float | None) -> pl.DataFrame:
    return FRAME.with_columns(pl.Series("value", values, dtype=pl.Float64))


@pytest.mark.parametrize(
    ("then", "now", "agreement"),
    [
        (FRAME, valued(1.0 + 1e-6, 2.0), "within rounding"),
        (FRAME, valued(1.4, 2.0), "within the interval"),
        (FRAME, valued(1.6, 2.0), "different"),
        (FRAME, valued(1.0, 2.1), "different"),
        (FRAME, valued(1.0, None), "different"),
        # an interval counts if each value is in the other's
        (valued(1.6, 2.0).with_columns(low=pl.lit(-9.0), high=pl.lit(9.0)), FRAME, "different"),
        (FRAME, FRAME.with_columns(high=pl.Series([1.7, None])), "within the interval"),
        # flags have to be the same, and a skipped sample skipped again
        (FOUND, FOUND, "within rounding"),
        (FOUND, FOUND.with_columns(found=pl.lit(True)), "different"),
        (FOUND, FRAME, "different"),
        (FRAME, FRAME.with_columns(status=pl.Series(["ok", "nonfinite"])), "different"),
    ],
)
def test_how_values_agree(then: pl.DataFrame, now: pl.DataFrame, agreement: str) -> None:
    assert compare_values(then, now) == agreement


def test_the_commands(pack: Path, tmp_path: Path) -> None:
    run = CliRunner().invoke
    place = str(tmp_path / "pack")
    shutil.copytree(pack, place)
    fine = run(app, ["verify", place])
    assert fine.exit_code == 0
    assert f"digest of the pack: {verify_pack(pack).digest}" in fine.output
    again = run(app, ["replay", place, "--jobs", "1"])
    assert (again.exit_code, "1 same bits" in again.output) == (0, True)
    (tmp_path / "pack" / "report.html").write_text("changed")
    assert run(app, ["verify", place]).exit_code == 1
