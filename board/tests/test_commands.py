"""The commands: from the results of a study to a verified site."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from board_study import run
from typer.testing import CliRunner

from standfast_board.commands import app, main


def call(*arguments: object) -> tuple[int, str]:
    found = CliRunner().invoke(app, [str(each) for each in arguments])
    return found.exit_code, found.output


def test_from_results_to_a_verified_site(tmp_path: Path) -> None:
    file = tmp_path / "all" / "study.json.gz"
    code, output = call("submit", run(tmp_path / "results"), "--out", file, "--by", "A. Person")
    assert code == 0
    assert "(14 of 14 jobs)" in output
    digest = output.rpartition("digest: ")[2].strip()
    code, output = call("verify", file, "--jobs", 2, "--seed", 1)
    assert code == 0
    assert "Verified: 2 of 14 jobs" in output
    assert "(seed 1)" in output
    code, output = call(
        "build", file.parent, "--out", tmp_path / "site", "--title", "Ours", "--verify", 1
    )
    assert code == 0
    assert "submissions: 1, boards: 1" in output
    assert "<h1>Ours</h1>" in (tmp_path / "site" / "index.html").read_text()
    assert "A. Person" in (tmp_path / "site" / "submissions" / f"{digest[:16]}.html").read_text()


def test_what_cannot_be_verified_ends_with_one(tmp_path: Path) -> None:
    file = tmp_path / "study.json"
    call(
        "submit",
        run(tmp_path / "results", models={"lenet": "lenet5-mnist"}, samples=3),
        "--out",
        file,
    )
    changed = file.read_text().replace('"seed":0', '"seed":1')
    (tmp_path / "changed.json").write_text(changed)
    assert call("verify", tmp_path / "changed.json")[0] == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["build", "none", "--out", "site"],
            "submissions: expected files or folders that exist, got none",
        ),
        (["verify", "none"], "the file cannot be read: No such file or directory"),
        (["submit", "none", "--out", "a.json"], "none"),
        (["verify", "none", "--trust", "abc"], "the file cannot be read"),
    ],
)
def test_errors_are_one_line(
    arguments: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["standfast-board", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert message in line
