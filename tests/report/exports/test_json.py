"""JSON has the medians, and each verdict with its next steps."""

from __future__ import annotations

import json
from pathlib import Path

from report_builder import BAD, GOOD, Builder
from typer.testing import CliRunner

from standfast.cli.commands import app
from standfast.report import exports
from standfast.report.sentences import describe_verdict


def test_verdicts_and_steps_are_values_of_json(builder: Builder, tmp_path: Path) -> None:
    for name, values in (("saliency", BAD), ("lrp", GOOD)):
        builder.worst(name, values)
        builder.checks(name)
    results = builder.found()
    content = json.loads(exports.to_json(results))
    assert [row["explainer"] for row in content["summary"]] == ["saliency", "lrp"]
    (verdict,) = content["verdicts"]
    assert verdict["verdict"] == describe_verdict(results.verdict())
    assert (verdict["refuse"], verdict["partial"]) == (["saliency"], ["lrp"])
    steps = results.next_steps()
    assert len(steps) == len(verdict["next_steps"]) > 0
    assert [step["line"] for step in verdict["next_steps"]] == [step.line for step in steps]
    out = tmp_path / "small.json"
    done = CliRunner().invoke(app, ["export", str(results.store.folder.address), "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert json.loads(out.read_text()) == content
