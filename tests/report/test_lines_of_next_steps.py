"""The lines of next steps run as they are printed, and the terminal, the page and notebooks have the same ones."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

import standfast
from standfast.cli.commands import app
from standfast.errors import make_printable
from standfast.report import Results, build_html, load_results
from standfast.report.next_steps import PAGE, NextSteps, PrintedStep, write_steps
from standfast.report.step_lines import is_harmless, list_session_names, wrap_line, write_line

#: as many as tell good from bad
SAMPLES = 7
METRICS = {
    "worst": standfast.metrics.WorstCase(standfast.LinfBall(0.1), budget=20),
    "aopc": "aopc:steps=10,samples=1",
}


def make_model() -> standfast.Model:
    return standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("next_steps") / "found"


@pytest.fixture(scope="module")
def unstable(folder: Path) -> Results:
    """Gradients of digits, of which each pixel may move by a tenth of its range: they do not hold."""
    digits = standfast.data.bundled("digits")[:SAMPLES]
    return standfast.evaluate(
        make_model(), ["saliency"], digits, METRICS, out=folder, progress=False
    )


def run_line(step: PrintedStep, **names: Any) -> Any:
    """What the line gives, in a session that has what it says that it needs, and nothing else."""
    session = {name: names[name] for name in step.session_names}
    lines = "\n".join(wrap_line(step.line, 80))
    return eval(lines, {"standfast": standfast, "torch": torch, **session})


def test_each_line_runs_as_it_is_printed(
    unstable: Results, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("STANDFAST_CACHE", str(tmp_path))
    steps = {step.kind: step for step in unstable.next_steps()}
    assert set(steps) == {"neighbourhood", "explainer", "training"}
    model, digits = make_model(), standfast.data.bundled("digits")[:SAMPLES]

    smooth = run_line(steps["explainer"], model=model, inputs=digits)
    assert smooth.explainers[:2] == ["saliency", "smoothgrad"]
    # what is in the folder is not done again
    assert smooth.run.done == len(smooth.jobs.filter(pl.col("explainer") == "smoothgrad"))

    nearer = run_line(steps["neighbourhood"], model=model, inputs=digits[:1])
    labels = [label for label, metric in nearer.metrics.items() if metric.metric == "worst_case"]
    assert labels == [
        "worst: brightness 0.2",
        "worst: jpeg 30 to 90",
        "worst: gaussian noise 0 to 0.1",
    ]
    assert all(nearer.metrics[label].options["budget"] == 20 for label in labels)

    train = standfast.data.bundled("digits")[:40]
    before = [parameter.clone() for parameter in model.module.parameters()]
    module = run_line(
        steps["training"], model=model, train_inputs=train.inputs, train_labels=train.labels
    )
    assert module is model.module
    assert not all(
        torch.equal(old, new) for old, new in zip(before, module.parameters(), strict=True)
    )


def test_more_samples_continue_where_the_results_are(tmp_path: Path) -> None:
    """The result depends on where the interval lies, so the number is set here; the line is the user's call."""
    digits = standfast.data.bundled("digits")

    def look_at(module: torch.nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        return inputs * torch.linspace(0, 1, inputs[0].numel()).reshape(inputs.shape[1:])

    explainers = {"mine": look_at, "lrp": standfast.explainers.LRP(epsilon=1e-6)}
    found = standfast.evaluate(
        make_model(),
        explainers,
        digits[:7],
        METRICS,
        seed=3,
        controls=False,
        sanity=False,
        samples_per_job=7,
        out=tmp_path,
        progress=False,
    )
    step = standfast.results.NextStep("samples", ("lrp",), ("lrp",), samples=9)
    line = standfast.report.step_lines.write_line(found, step)
    assert line == (
        "standfast.evaluate(model, {'lrp': standfast.explainers.LRP(epsilon=1e-06)}, inputs[:9], "
        "{'worst': standfast.metrics.WorstCase(neighbourhood=standfast.LinfBall(0.1), budget=20), "
        "'aopc': 'aopc:steps=10,samples=1'}, controls=False, sanity=False, seed=3, "
        f"out={str(tmp_path)!r})"
    )
    again = eval(line, {"standfast": standfast, "model": make_model(), "inputs": digits})
    assert again.run.earlier == 2
    assert again.summary.samples["digits"] == 9


def test_what_has_no_code_is_named(tmp_path: Path) -> None:
    """Functions inside of others, and arguments that are tensors, are those of the user's session."""
    digits = standfast.data.bundled("digits")[:3]
    found = standfast.evaluate(
        make_model(),
        [lambda module, inputs, targets: inputs],
        digits,
        ["aopc:steps=5,samples=1"],
        targets=digits.labels,
        sanity=False,
        controls=False,
        out=tmp_path,
        progress=False,
    )
    name = found.explainers[0]
    line = standfast.report.step_lines.write_line(
        found, standfast.results.NextStep("samples", (name,), (name,), samples=9)
    )
    assert line is not None
    assert line.startswith(
        "standfast.evaluate(model, explainers, inputs[:9], ['aopc:steps=5,samples=1'], "
    )
    assert "targets=targets[:9]" in line
    assert list_session_names(line) == ["model", "explainers", "inputs", "targets"]


def test_results_of_an_earlier_version_name_all_arguments(unstable: Results) -> None:
    earlier = {key: value for key, value in unstable.manifest.items() if key != "call"}
    results = Results(
        unstable.store,
        earlier,
        unstable.samples,
        unstable.jobs,
        unstable.planned,
        None,
        unstable.sanity_rows,
    )
    steps = results.next_steps()
    # no other neighbourhood, and no training, without the call
    assert [step.kind for step in steps] == ["explainer"]
    assert steps[0].line == "standfast.evaluate(model, ['smoothgrad'], inputs, metrics)"


def test_the_terminal_the_page_and_notebooks_have_the_same_steps(unstable: Results) -> None:
    steps = unstable.next_steps()
    text, page, notebook = str(unstable), build_html(unstable), unstable._repr_html_()
    assert "\n".join(write_steps(steps, 80)) in text
    for step in steps:
        assert " ".join(step.why.split()) in " ".join(text.split())
        escaped = step.line.replace("'", "&#39;")
        assert page.count(f'<div class="copyable"><pre tabindex="0">{escaped}</pre></div>') == 1
        assert notebook.count(f"<pre>{escaped}</pre>") == 1
    assert text.count(PAGE) == page.count(PAGE) == notebook.count(PAGE) == 1
    assert max(map(len, text.splitlines())) <= 80
    assert text.isascii()


def test_the_steps_are_printed_in_sentences(unstable: Results) -> None:
    steps = unstable.next_steps()
    text = str(steps)
    assert text in str(unstable)
    for number, step in enumerate(steps, 1):
        assert " ".join(f"{number}. {step.why} ({step.cost}):".split()) in " ".join(text.split())
        assert "\n".join(wrap_line(step.line, 80)) in text
    assert "PrintedStep" not in text
    assert text.endswith(PAGE)
    assert str(NextSteps()) == "No next step: nothing in the results supports one."


def test_what_no_user_types_is_in_no_line(unstable: Results) -> None:
    """It changes no number, and what is stored is found without it."""
    call = unstable.manifest["call"]
    further = {"about": "{'title': 'mine'}", "workers": "'auto'", "samples_per_job": "12"}
    changed = with_call(unstable, {**call, "options": {**call["options"], **further}})
    assert [step.line for step in changed.next_steps()] == [
        step.line for step in unstable.next_steps()
    ]
    assert all(name not in step.line for step in changed.next_steps() for name in further)


def test_a_race_is_a_call_of_choose(unstable: Results) -> None:
    """By the user's metrics, with what belongs to the model and the inputs; the candidates are the usual ones."""
    step = standfast.results.NextStep("race", ("saliency", "lrp"), samples=60)
    call = unstable.manifest["call"]
    options = {"seed": "3", "controls": "False", "targets": "targets", "out": "'here'"}
    changed = with_call(unstable, {**call, "options": options})
    line = write_line(changed, step)
    assert line == (
        "standfast.choose(model, inputs[:60], metrics={"
        "'worst': standfast.metrics.WorstCase(neighbourhood=standfast.LinfBall(0.1), budget=20), "
        "'aopc': 'aopc:steps=10,samples=1'}, targets=targets[:60], seed=3)"
    )
    assert is_harmless(line)
    few = standfast.results.NextStep("race", ("saliency", "lrp"), samples=SAMPLES)
    assert "(model, inputs, metrics" in str(write_line(changed, few))
    assert write_line(with_call(unstable, {**call, "model": "models"}), step) is None


def test_another_question_is_said_to_be_one(unstable: Results) -> None:
    (step,) = [step for step in unstable.next_steps() if step.kind == "neighbourhood"]
    assert step.why.startswith("Another question, which does not answer this one")
    assert "each pixel by up to 10% of its range" in step.why


STUDY = """
samples: {samples}
data: {{digits: digits}}
models: {{lenet: lenet5-mnist}}
neighbourhood: {{linf: 0.1}}
explainers: [saliency]
metrics:
  - worst_case: {{budget: 20, search: block}}
  - aopc: {{steps: 10, samples: 1}}
"""


def test_commands_of_a_study_file_run_as_they_are_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my study.yaml").write_text(STUDY.format(samples=10))
    runner = CliRunner()
    done = runner.invoke(app, ["run", "my study.yaml", "--no-report"])
    assert done.exit_code == 0, done.output
    steps = {step.kind: step for step in load_results("results/my study").next_steps()}
    assert set(steps) == {"neighbourhood", "explainer"}
    assert steps["explainer"].line == "standfast run 'my study.yaml' --set explainers+=smoothgrad"
    assert steps["explainer"].session_names == []
    for step in steps.values():
        words = shlex.split("\n".join(wrap_line(step.line, 40)).replace("\\\n", " "))
        assert words == shlex.split(step.line)
        done = runner.invoke(app, [*words[1:], "--no-report"])
        assert done.exit_code == 0, done.output
    both = load_results("results/my study")
    assert both.explainers[:2] == ["saliency", "smoothgrad"]
    assert both.manifest["about"]["command"] == steps["explainer"].line
    nearer = load_results("results/my study-nearer")
    assert len([label for label in nearer.metrics if label.startswith("worst_case")]) == 3
    assert Path("my study.yaml").read_text() == STUDY.format(samples=10)  # the file stays as it is


def test_python_lines_break_where_python_can_be_broken() -> None:
    code = "f(['a, b', 'c'], {'long, long, long, long name': 1}, x=(1, 2), y='it\\'s, here')"
    lines = wrap_line(code, 24)
    assert len(lines) > 2
    given: list[Any] = []
    eval("\n".join(lines), {"f": lambda *values, **options: given.append((values, options))})
    whole: list[Any] = []
    eval(code, {"f": lambda *values, **options: whole.append((values, options))})
    assert given == whole


def test_samples_of_a_study_that_takes_all_are_no_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("few.npz", inputs=standfast.data.bundled("digits")[:3].inputs.numpy())
    Path("study.yaml").write_text(
        STUDY.format(samples=3)
        .replace("samples: 3\n", "")
        .replace("{digits: digits}", "{few: {path: few.npz}}")
    )
    found = standfast.run_study("study.yaml", progress=False)
    step = standfast.results.NextStep("samples", ("saliency",), ("saliency",), samples=9)
    assert standfast.report.step_lines.write_line(found, step) is None


@pytest.fixture(scope="module")
def of_study(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Results of a study that was given as a mapping."""
    study = {
        "samples": 3,
        "data": ["digits"],
        "models": {"lenet": "lenet5-mnist"},
        "neighbourhood": {"linf": 0.1},
        "explainers": ["saliency"],
        "metrics": [{"worst_case": {"budget": 4}}],
        "sanity": False,
        "controls": False,
    }
    return standfast.run_study(study, tmp_path_factory.mktemp("study") / "found", progress=False)


MORE = standfast.results.NextStep("samples", ("saliency",), ("saliency",), samples=9)


@pytest.mark.parametrize(
    ("command", "line"),
    [
        (
            "standfast run my.yaml --minutes 3 --set seed=3",
            "standfast run my.yaml --minutes 3 --set seed=3 --set samples=9",
        ),
        ("standfast run 'my", None),
        ("standfast run ", None),
        ("standfast run --out x", None),
        ("standfast run my.yaml --executor slurm", None),
        ("standfast run my.yaml; rm x", None),
        ("standfast run my.yaml --set 'models={m: {path: m.joblib, trust: true}}'", None),
    ],
)
def test_a_command_of_a_stranger_does_nothing_but_run_a_file(
    of_study: Results, command: str, line: str | None
) -> None:
    """Else the line is that of a study that Python has run."""
    manifest = {**of_study.manifest, "origin": "my.yaml", "about": {"command": command}}
    written = write_line(with_manifest(of_study, manifest), MORE)
    assert written is not None
    if line is None:
        assert written.startswith("standfast run my.yaml --out ")
        assert written.endswith(" --set samples=9")
        assert "trust" not in written
    else:
        assert written == line


def test_a_study_of_a_stranger_that_trusts_a_file_is_not_run(of_study: Results) -> None:
    """Such a file runs code as soon as it is opened, so the study has to be that of the session."""
    line = write_line(of_study, MORE)
    assert line is not None
    assert line.startswith("standfast.run_study({**results.manifest['study'], 'samples': 9}")
    models = {"lenet": {"path": "model.joblib", "trust": True}}
    manifest = {**of_study.manifest, "study": {**of_study.manifest["study"], "models": models}}
    line = write_line(with_manifest(of_study, manifest), MORE)
    assert line is not None
    assert line.startswith("standfast.run_study({**study, 'samples': 9}")
    assert list_session_names(line) == ["study"]


def test_a_study_without_a_file_goes_on_with_what_a_limit_has_left_out(of_study: Results) -> None:
    limit = {"minutes": 2.0, "samples": {"digits": [3, 9]}}
    limited = with_manifest(of_study, {**of_study.manifest, "limit": limit})
    rest = standfast.results.NextStep("rest", ("saliency",), seconds=90.0, samples=9, left=6)
    address = str(of_study.store.folder.address)
    start = "standfast.run_study(results.manifest['study']"
    assert write_line(limited, rest) == f"{start}, out={address!r}, minutes=4)"
    more = write_line(limited, MORE)
    assert more is not None
    assert more.endswith(", minutes=2)")


def test_the_same_call_has_the_controls_that_were_given_as_explainers(
    tmp_path: Path,
) -> None:
    """Without one of them it would be another call, which begins anew where no folder is given."""
    digits = standfast.data.bundled("digits")[:2]
    results = standfast.evaluate(
        make_model(),
        ["saliency", "random"],
        digits,
        ["aopc:steps=4,samples=1"],
        sanity=False,
        controls=False,
        out=tmp_path,
        progress=False,
    )
    assert results.summary.controls == ("random",)
    rest = standfast.results.NextStep("rest", ("saliency",), ("saliency",), samples=9, left=7)
    line = write_line(results, rest)
    assert line is not None
    assert line.startswith("standfast.evaluate(model, ['saliency', 'random'], inputs, ")


def with_call(results: Results, call: Any) -> Results:
    """The results with another call in their manifest."""
    return with_manifest(results, {**results.manifest, "call": call})


def with_manifest(results: Results, manifest: dict[str, Any]) -> Results:
    """The results with another manifest."""
    return Results(
        results.store,
        manifest,
        results.samples,
        results.jobs,
        results.planned,
        None,
        results.sanity_rows,
    )


@pytest.mark.parametrize(
    "code",
    [
        "__import__('os').system('true')",
        "standfast.files.os.system('true')",
        "(lambda: 1)()",
        "[x for x in (1,)]",
        "'saliency'], inputs, ['aopc']); print([1",
        "'saliency'\n",
        "(" * 500,
        "model" + ".a" * 3000 + "()",
        "'\x1b[2J'",
        "'\u202e'",
        "standfast.run_study('system.yaml')",
        "standfast.evaluate(model, explainers, inputs, metrics, out='system')",
    ],
)
def test_a_call_of_a_stranger_does_nothing_but_evaluate(unstable: Results, code: str) -> None:
    """Results may come from anybody, and their lines are there to be copied."""
    call = unstable.manifest["call"]
    parts = {"named": False, "parts": [{"name": "saliency", "code": code}]}
    for changed in ({**call, "explainers": parts}, {**call, "options": {"seed": code}}):
        for step in with_call(unstable, changed).next_steps():
            assert code.strip() not in step.line or is_harmless(step.line)
            assert "system" not in step.line
            assert make_printable(step.line) == step.line
            assert "\n" not in step.line


@pytest.mark.parametrize(
    "call",
    [None, 3, [], {"explainers": 3, "metrics": [], "options": 1}, {"metrics": {"parts": [1]}}],
)
def test_a_call_that_cannot_be_read_names_all_arguments(unstable: Results, call: Any) -> None:
    steps = with_call(unstable, call).next_steps()
    assert [step.line for step in steps] == [
        "standfast.evaluate(model, ['smoothgrad'], inputs, metrics)"
    ]
