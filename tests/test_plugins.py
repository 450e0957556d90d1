"""Plug-ins: the page docs/extending.md as it stands there, and the rules for names."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from installed_plugin import install
from typer.testing import CliRunner

from standfast.cli import app
from standfast.errors import ArgumentError, StandfastError
from standfast.metrics import AOPC, Metric, metrics
from standfast.registry import Registry
from standfast.report import load_results
from standfast.testing import METRIC_CHECKS

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "extending.md"
BLOCK = re.compile(
    r"^```(?:python|yaml)\n(?:# (?P<file>\w+\.(?:py|yaml))\n)?(?P<code>.*?)^```$", re.M | re.S
)


@dataclass(frozen=True)
class Page:
    """The page as a reader would follow it.

    Attributes:
        modules: the folder with the files of the page.
        site: the folder with the metadata of the installed package.
        script: the blocks that belong to no file, one after the other.
    """

    modules: Path
    site: Path
    script: str

    def run(self, *command: str, paths: Sequence[Path], cwd: Path | None = None) -> str:
        """What Python prints for these arguments, with these folders on its path."""
        inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        path = os.pathsep.join([*map(str, paths), *filter(None, inherited)])
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONWARNINGS": "error"}
        done = subprocess.run(
            [sys.executable, *command],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
            cwd=cwd or self.modules,
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout


@pytest.fixture
def page(tmp_path: Path) -> Page:
    text = PAGE.read_text(encoding="utf-8")
    modules, script = tmp_path / "modules", []
    modules.mkdir()
    for block in BLOCK.finditer(text):
        if block["file"]:
            (modules / block["file"]).write_text(block["code"], encoding="utf-8")
        else:
            script.append(block["code"])
    shutil.copy(ROOT / "examples" / "deletion.py", modules)
    shutil.copy(ROOT / "tests" / "stand_ins" / "event_sequences.py", modules)
    (toml,) = re.findall(r"```toml\n(.*?)```", text, re.S)
    points = re.sub(r'\[project\.entry-points\."(.*?)"\]', r"[\1]", toml).replace('"', "")
    install(tmp_path / "site", "blur", points)
    return Page(modules, tmp_path / "site", "\n".join(script))


def test_metrics_of_the_page_are_short(page: Page) -> None:
    for name in ("blur.py", "deletion.py"):
        lines = [line for line in (page.modules / name).read_text().splitlines() if line]
        assert len(lines) <= (30 if name == "blur.py" else 40)


#: every name is known once its file is imported, and what the files define does what it should
NAMES = """
import blur, deletion, blur_presentation, contrast, fading, grades, overlap, stripes
import torch
import standfast
from standfast.report.presentation import presentation_of
assert {"blur_consistency", "deletion"} <= set(standfast.metrics.names())
assert standfast.metrics.get("blur_consistency", size=5) == blur.BlurConsistency(5)
assert standfast.explainers.get("contrast:gain=2.0") == contrast.Contrast(2.0)
assert standfast.similarity.get("overlap") == overlap.Overlap()
assert len(standfast.data.load("stripes")) == 8
assert standfast.neighbourhoods.neighbourhoods["fading"] is fading.Fading
a, b = torch.rand(2, 3, 4)
assert torch.equal(standfast.similarity.get("overlap:power=2")(a, b), overlap.Overlap()(a, b) ** 2)
assert type(presentation_of("blur_consistency")) is blur_presentation.BlurPresentation
from standfast.testing import check_task
torch.manual_seed(0)
logits = torch.randn(5, 4).sort(dim=1, descending=True).values
task = standfast.tasks.get("grades:apart=1")
check_task(task, logits, logits + 0.2)
model = standfast.Model(torch.nn.Linear(6, 4), (0.0, 1.0), task=task, device="cpu")
ball = standfast.LinfBall(0.5)
found = standfast.metrics.WorstCase(ball, event="misclassification", budget=60)(model, "saliency", torch.rand(5, 6))
for row, outputs in enumerate(model.logits(found.inputs).tolist()):
    grade = int(found.targets[row])
    kept = all(one > 0 for one in outputs[: max(grade - 1, 0)]) and all(one < 0 for one in outputs[grade + 1 :])
    assert (float(found.margin[row]) < 0) == kept
"""
#: against one copy after another, made by hand; and a map that knows the model is better than a random one
DELETION = """
import torch
import standfast
from deletion import Deletion
from standfast.tensors import Streams, draw_seed
x = standfast.data.bundled("digits")[:4].inputs
model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
found = Deletion(steps=4)(model, "saliency", x)
assert (found.value < Deletion(steps=4)(model, "random", x).value).all()
maps, noise = standfast.explainers.get("saliency")(model, x), Streams.for_rows(x, 0).uniform(x.shape[1:], x.dtype)
for row, (one, map) in enumerate(zip(x, maps)):
    curve = []
    for step in range(5):
        copy = one.clone().flatten()
        most = map.flatten().argsort(dim=0, descending=True, stable=True)[: step * 196]
        copy[most] = noise[row].flatten()[most]
        curve.append(model.logits(copy.reshape(1, 1, 28, 28)).double().softmax(1)[0, found.targets[row]])
    curve = torch.stack(curve)
    assert torch.allclose(curve, found.curve[row], atol=1e-6)
    area = (curve[:-1] + curve[1:]).sum() / 8
    assert torch.allclose(area, found.value[row], atol=1e-6)
"""


def test_files_of_the_page_work_with_no_package_installed(page: Page) -> None:
    """The code on the page runs, one block after the other, and then the checks above."""
    (page.modules / "page.py").write_text(page.script + NAMES + DELETION)
    page.run("page.py", paths=[page.modules])


def test_package_of_the_page_passes_the_whole_contract(page: Page) -> None:
    """Without a line changed in the tests: what is installed is discovered and checked."""
    chosen = "blur_consistency or deletion or contrast or overlap"
    command = (
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "tests/metrics/test_contract.py",
        "-k",
        chosen,
        # a shape alone is quick, and the others are slow
        "-m",
        "slow or not slow",
    )
    said = page.run(*command, paths=[page.modules, page.site], cwd=ROOT)
    # of two metrics each on three shapes, and three each of an explainer and a similarity
    checks = 2 * 3 * len(METRIC_CHECKS) + 3 + 3
    assert f"{checks} passed" in said


LISTED = """
import standfast, sys
kinds = {"contrast": standfast.explainers, "overlap": standfast.similarity, "stripes": standfast.data}
kinds["fading"] = standfast.neighbourhoods.neighbourhoods
for name, kind in kinds.items():
    assert name in kind.names() and name not in sys.modules, name
metric = standfast.metrics.get("blur_consistency")
model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
metric(model, "contrast", standfast.data.load("stripes").inputs)
assert "blur_presentation" not in sys.modules  # only reports need it
from standfast.cli import app
from typer.testing import CliRunner
said, schema = (CliRunner().invoke(app, command).output for command in (["list", "metrics"], ["schema"]))
assert {"blur_consistency", "deletion"} <= set(said.split())
assert "width of the blurring window in pixels, time steps or features, an odd number" in schema.replace("\\n", " ")
said = " ".join(str(CliRunner().invoke(app, ["run", "wrong.yaml"]).exception).split())
assert "contrast.gian (line 3): expected a known key (gain), got 'gian'" in said, said
assert "blur_consistency.size (line 5): expected an odd number, got 4" in said, said
ran = CliRunner().invoke(app, ["run", "study.yaml"])
assert ran.exit_code == 0, ran.output
"""


def test_package_of_the_page_in_a_study(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is listed, options of the study are checked, and it runs."""
    study = page.modules / "study.yaml"
    text = study.read_text()
    # the checks take longer than all metrics, and are the same for all explainers
    study.write_text(f"{text}sanity: false\n")
    (page.modules / "wrong.yaml").write_text(
        text.replace("size: 5", "size: 4").replace("gain", "gian")
    )
    page.run("-c", LISTED, paths=[page.modules, page.site])
    results = load_results(page.modules / "results" / "study")
    assert not len(results.failures)
    # three samples and two explainers; of stability the copy of the input is a reference beside them
    assert results.samples.group_by("metric").len().sort("metric")["len"].to_list() == [6, 6, 9]
    assert results.samples["value"].is_between(-1, 1).all()
    report = (page.modules / "results" / "study" / "report" / "index.html").read_text()
    for words in (
        "petsiuk2018rise",
        "Similarity after a blur",
        "A moving average over 5 pixels.",
        "Deletion",
        "faded by",
    ):
        assert words in report
    # the report of a computer that does not have the plug-in, as this process
    monkeypatch.chdir(page.modules)
    done = CliRunner().invoke(app, ["report", "results/study", "--out", "bare.html"])
    assert done.exit_code == 0, done.output
    bare = (page.modules / "bare.html").read_text()
    assert "Similarity after a blur" in bare  # the manifest says so
    assert "A moving average over 5 pixels." not in bare


def registry_with(folder: Path, monkeypatch: pytest.MonkeyPatch, module: str) -> Registry[type]:
    install(folder, "blur", "[standfast.shapes]\nround = blur:Round\nsquare = blur:Square\n")
    (folder / "blur.py").write_text(module)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "blur", raising=False)
    found: Registry[type] = Registry(
        "shape", "standfast.shapes", lambda kind: isinstance(kind, type)
    )
    found.add("square", list)
    return found


def test_our_own_names_cannot_be_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = registry_with(tmp_path, monkeypatch, "class Round: pass\nclass Square: pass\n")
    assert shapes.names() == ["round", "square"]
    assert shapes["square"] is list
    assert shapes["round"].__name__ == "Round"
    assert "round" in shapes
    with pytest.raises(ArgumentError, match="did you mean 'round'"):
        shapes["roond"]


def test_a_plugin_that_does_not_load_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes = registry_with(tmp_path, monkeypatch, "raise RuntimeError('not today')\n")
    assert shapes.names() == ["round", "square"]  # listing imports nothing
    said = (
        "shape round: the plug-in blur:Round of blur could not be loaded: RuntimeError: not today"
    )
    with pytest.raises(StandfastError, match=said):
        shapes["round"]


def test_a_plugin_of_the_wrong_kind_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes = registry_with(tmp_path, monkeypatch, "Round = 3\n")
    with pytest.raises(
        ArgumentError,
        match="shape round: expected a shape, got 3 from the plug-in blur:Round of blur",
    ):
        shapes["round"]


def test_a_thing_is_registered_under_its_own_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes = registry_with(tmp_path, monkeypatch, "class Round:\n    name = 'circle'\n")
    with pytest.raises(
        ArgumentError, match="shape round: expected a shape whose name is 'round', got the name"
    ):
        shapes["round"]
    with pytest.raises(
        ArgumentError,
        match="metric blur: expected a metric whose name is 'blur', got the name 'aopc'",
    ):
        metrics.register("blur")(AOPC)
    with pytest.raises(
        ArgumentError,
        match="metric blur: expected a metric whose name is 'blur', got the name None",
    ):
        metrics.register("blur")(Metric)
    with pytest.raises(ArgumentError, match="metric blur: expected a metric, got <class 'list'>"):
        metrics.add("blur", list)  # type: ignore[arg-type]
    with pytest.raises(
        ArgumentError, match="metric name: expected a name that is not in use, got 'aopc'"
    ):
        metrics.add("aopc", AOPC)
