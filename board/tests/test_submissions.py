"""Submissions: what is in a file, and that no file whatsoever does more than to be refused."""

from __future__ import annotations

import copy
import dataclasses
import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from board_study import STUDY, run
from submission_builder import build, change, draw_values, seal, write

import standfast
from standfast import ArgumentError
from standfast.metrics.base import plain
from standfast.report.exports import summary
from standfast.study.file.references import ReferenceReader
from standfast.study.file.spec import load_evaluation, load_study
from standfast_board import SubmissionError, make_submission, read_submission, verify_submission
from standfast_board import submission as module
from standfast_board.submission import find_files, parse_submission


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("results"))


def test_a_submission_has_the_same_bits_as_the_results(results: Path, tmp_path: Path) -> None:
    made = make_submission(results, tmp_path / "a.json", name="Mine", by="A. Person", note="digits")
    again = read_submission(tmp_path / "a.json")
    assert (again.title, again.by, again.note, again.digest) == (
        "Mine",
        "A. Person",
        "digits",
        made.digest,
    )
    stored = standfast.load_results(results)
    columns = stored.samples.columns
    assert again.results.samples.select(columns).equals(stored.samples, null_equal=True)
    places = ["data", "model", "explainer", "label", "repeat", "start", "stop", "status", "job"]
    assert again.results.jobs.select(places).equals(stored.jobs.select(places))
    curves = again.results.jobs.filter(again.results.jobs["label"] == "corruption_curve")["job"]
    for job in curves:
        whole = stored.artefacts(job)
        assert set(again.results.artefacts(job)) == {"corrupted_share", "drop_top"} < set(whole)
        for name, array in again.results.artefacts(job).items():
            assert array.dtype == whole[name].dtype
            np.testing.assert_array_equal(array, whole[name])
    assert summary(again.results).equals(summary(stored))
    assert again.manifest["study"] == stored.manifest["study"]
    assert "command" not in again.manifest["about"]
    assert str(results) not in again.content.decode()


def test_bounds_of_series_are_infinite(tmp_path: Path) -> None:
    study = {
        "data": {"waves": "waves:test"},
        "models": {"cnn": "cnn-waves"},
        "explainers": ["saliency"],
    }
    metrics = [{"max_sensitivity": {"neighbourhood": {"linf": 0.01}, "samples": 2}}]
    made = make_submission(
        run(tmp_path / "results", **study, metrics=metrics, samples=1), tmp_path / "a.json"
    )
    assert made.manifest["data"]["waves"]["bounds"] == [["-inf", "-inf"], ["inf", "inf"]]
    assert verify_submission(made, 1).state == "verified"


def test_the_same_results_give_the_same_file_which_may_be_compressed(
    results: Path, tmp_path: Path
) -> None:
    make_submission(results, tmp_path / "a.json")
    packed = make_submission(results, tmp_path / "b.json.gz")
    assert (
        gzip.decompress((tmp_path / "b.json.gz").read_bytes()) == (tmp_path / "a.json").read_bytes()
    )
    make_submission(results, tmp_path / "c.json.gz")
    assert (tmp_path / "c.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()
    assert packed.title == STUDY["title"]
    with pytest.raises(ArgumentError, match="out: expected a file that ends with .json"):
        make_submission(results, tmp_path / "a.zip")


def test_special_numbers_survive() -> None:
    content = build({"senc": {"lrp": [0.1] * 3}})
    content["jobs"][0]["values"]["value"] = ["nan", "-inf", 0.1 + 0.2]
    content["columns"]["senc"]["other"] = "Float32"
    content["jobs"][0]["values"]["other"] = [float(str(np.float32(0.1))), None, "inf"]
    frame = parse_submission(seal(content)).results.samples
    assert np.isnan(frame["value"][0])
    assert frame["value"].to_list()[1:] == [-np.inf, 0.1 + 0.2]
    assert frame["other"].to_list() == [float(np.float32(0.1)), None, np.inf]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (change("standfast_submission", 2), "of version 2"),
        (change("extra", 1), "extra: Extra inputs are not permitted"),
        (change("manifest.data.d.digest", "x"), r"manifest.data.d.digest: String should match"),
        (change("manifest.models", {}), "manifest.models: "),
        (change("manifest.metrics.senc.options", []), "manifest.metrics.senc.options: "),
        (change("jobs.0.explainer", "other"), "jobs.0.explainer: 'other' is not in the manifest"),
        (change("jobs.0.stop", 13), "jobs.0: expected start below stop"),
        (change("jobs.0.repeat", 1), "jobs.0.repeat: expected less than 1"),
        (change("jobs.0.values.value", [0.1]), "jobs.0.values: expected 12 values"),
        (
            change("jobs.0.values.value", ["x"] * 12),
            "jobs.0.values.value: expected values of the type Float64",
        ),
        (
            change("jobs.0.values.value", [True] * 12),
            "jobs.0.values.value: expected values of the type Float64",
        ),
        (change("jobs.0.values.sample", [1] * 12), "jobs.0.values.sample: expected 0 to 11"),
        (change("jobs.0.values.status", ["fine"] * 12), "jobs.0.values.status: expected ok"),
        (change("jobs.0.values.more", [1] * 12), "jobs.0.values: expected the columns"),
        (change("jobs.0.job", "2" * 15), "jobs.0.job: "),
        (change("columns.senc.value", "Object"), "columns.senc.value: 'Object' is no type"),
        (change("columns.senc.value", "String"), "columns.senc: expected sample Int64"),
        (
            change("columns.senc", {"sample": "Int64"}),
            "columns.senc: expected sample, status and value",
        ),
        (
            change("jobs.0.arrays.a", {"type": "object", "shape": [12], "values": [0]}),
            "jobs.0.arrays.a.type: ",
        ),
        (
            change("jobs.0.arrays.a", {"type": "float64", "shape": [5], "values": [0]}),
            "expected float64 values of the",
        ),
        (
            change("jobs.0.arrays.a", {"type": "float64", "shape": [1], "values": [0]}),
            "jobs.0.arrays.a: expected 12",
        ),
        (change("planned", 3), "planned: expected at least the 4 jobs"),
        (lambda content: content["jobs"].append(content["jobs"][0]), "jobs: a job is there twice"),
        (
            lambda content: content["jobs"].append({**content["jobs"][0], "job": "2" * 16}),
            "a sample is there twice",
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_said(
    edit: Callable[[dict[str, Any]], None], message: str
) -> None:
    content = build(draw_values())
    edit(content)
    with pytest.raises(SubmissionError, match=message):
        parse_submission(seal(content))


def test_damaged_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = seal(build(draw_values()))
    packed = gzip.compress(whole)
    for content, message in (
        (whole.replace(b"0.5", b"0.6", 1), "its SHA-256 differs"),
        (whole[:-1], "it is no JSON"),
        (packed[: len(packed) // 2], "it cannot be unpacked"),
        (packed[:40] + b"\x00\xff" * 20 + packed[80:], "it cannot be unpacked"),
        (b'{"standfast_submission": NaN}', "NaN is no number of JSON"),
        (b"[" * 100_000, "it is no JSON"),
        (b"[1]", "it is no submission"),
        (b"PAR1", "it is no JSON"),
        (b'{"a": 1' + b"0" * 5000 + b"}", "it is no JSON"),
        (b"\xff", "it is no JSON"),
    ):
        with pytest.raises(SubmissionError, match=message):
            parse_submission(content)
    with pytest.raises(SubmissionError, match="the file cannot be read: No such file"):
        read_submission(tmp_path / "none.json")
    monkeypatch.setattr(module, "LARGEST", len(whole) - 1)
    for content in (whole, packed):  # the second is small until it is unpacked
        with pytest.raises(SubmissionError, match="it is larger than"):
            parse_submission(content)


def test_many_brackets_are_not_unpacked_into_memory() -> None:
    bomb = gzip.compress(b'{"standfast_submission":1,"x":[' + b"[]," * 3_000_000 + b"[]]}")
    assert len(bomb) < 20_000
    with pytest.raises(SubmissionError, match="more than 2,000,000 lists and objects"):
        parse_submission(bomb)


def replace_at_random(content: Any, turn: random.Random) -> None:
    """Replace or remove one random entry, at any depth."""
    strange = [
        None,
        -1,
        10**30,
        1e308,
        "",
        "x" * 300,
        "nan",
        True,
        [],
        {},
        [[]],
        {"a": []},
        "\ud800",
        "<script>",
    ]
    while True:
        keys = list(content) if isinstance(content, dict) else list(range(len(content)))
        key = turn.choice(keys)
        inner = content[key]
        if not isinstance(inner, dict | list) or not inner or turn.random() >= 0.75:
            break
        content = inner
    if turn.random() < 0.2:
        del content[key]
    else:
        content[key] = turn.choice(strange)


def test_whatever_is_in_a_file_it_is_read_or_refused() -> None:
    turn = random.Random(0)
    values = {**draw_values(6), "worst": draw_values(6)["senc"]}
    refused = 0
    for _ in range(150):
        content = copy.deepcopy(build(values))
        replace_at_random(content, turn)
        try:
            parse_submission(seal(content))
        except SubmissionError:
            refused += 1
    assert 90 < refused < 150


def test_files_are_found_in_folders(tmp_path: Path) -> None:
    folder = write(tmp_path / "all", build(draw_values()), build(draw_values(), name="other"))
    (folder / "readme.txt").write_text("no submission")
    (folder / "deeper").mkdir()
    assert [file.name for file in find_files([folder, folder / "0.json"])] == ["0.json", "1.json"]
    with pytest.raises(ArgumentError, match="submissions: expected files or folders that exist"):
        find_files([tmp_path / "none"])


def test_the_submissions_of_the_documentation_are_those_of_the_studies() -> None:
    root = Path(__file__).parents[2]
    files = {
        file.name.partition(".")[0]: file for file in (root / "board" / "submissions").iterdir()
    }
    seeds = [
        *(root / "board" / "studies").glob("*.yaml"),
        root / "papers" / "natural_changes" / "imagenet_lite0.yaml",
    ]
    studies = {file.stem: load_study(file) for file in seeds}
    assert files.keys() == studies.keys()
    assert sum(file.stat().st_size for file in files.values()) < 1_000_000
    for name, study in studies.items():
        content = json.loads(gzip.decompress(files[name].read_bytes()))
        manifest = content["manifest"]
        assert set(manifest["explainers"]) == set(study.explainers)
        # otherwise they cannot be verified: make them again (board/studies/README.md)
        reader = ReferenceReader(study.base)
        loaded = {key: load_evaluation(each, key, reader) for key, each in study.explainers.items()}
        options = {key: plain(each) for key, each in loaded.items()}
        for label, stored in manifest["explainers"].items():
            now = json.loads(json.dumps(options[label], default=str))
            new = {key: value for key, value in now.items() if key not in stored}
            usual = {each.name: each.default for each in dataclasses.fields(loaded[label])}
            # it leaves everything as it was
            assert all(not value or value == usual[key] for key, value in new.items())
            same = {
                key: 0.0 if key == "baseline" and now[key] is None else now[key] for key in stored
            }
            assert same == stored  # images are replaced by 0, said or not
        assert set(manifest["metrics"]) == set(study.metrics)
        assert len(content["jobs"]) == content["planned"]
    assert read_submission(files["gtsrb"]).title == studies["gtsrb"].title


def test_a_submission_does_not_say_how_its_numbers_are_read(tmp_path: Path) -> None:
    """Its ranking could be turned round. The board reads the metrics that it has in its own way."""
    content = build({"worst": {"a": [0.9] * 8, "b": [0.1] * 8}})
    turned = {"title": "t", "axis": "a", "direction": "lower"}
    content["manifest"]["metrics"]["worst"] |= {"values": turned, "controls": True}
    (tmp_path / "turned.json").write_bytes(seal(content))
    metric = read_submission(tmp_path / "turned.json").results.metrics["worst"]
    assert (metric.spec.direction, metric.spec.only, metric.controls) == (
        "higher",
        ("found",),
        False,
    )
    assert "values" not in metric.stored
