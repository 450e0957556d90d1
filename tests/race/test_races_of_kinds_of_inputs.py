"""Races without named explainers and metrics, on all kinds of inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import standfast
from standfast.question.arguments import Arguments
from standfast.race.candidates import list_candidates
from standfast.race.entry import fill_in
from standfast.race.split import take_part, take_rows
from standfast.study.file.spec import load_study


def list_for(model: Any, inputs: Any, reference: Any = None) -> list[str]:
    return list_candidates(
        Arguments(model, "random", inputs, "aopc", reference=reference).read_inputs([])
    )


def test_candidates_of_images() -> None:
    digits = standfast.data.bundled("digits")[:2]
    names = list_for(standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0)), digits)
    assert {
        "saliency",
        "gradcam",
        "integrated_gradients:steps=16",
        "smoothgrad:samples=16,noise=0.2",
    } <= set(names)


def test_candidates_of_series_without_convolutions() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Flatten(), nn.Linear(20, 3))
    names = list_for(standfast.Model(module, bounds=(0.0, 1.0)), torch.rand(4, 2, 10))
    assert "gradcam" not in names
    assert "smoothgrad:samples=16,noise=0.1" in names


def test_candidates_of_a_table_and_of_a_black_box() -> None:
    torch.manual_seed(0)
    inputs = torch.rand(20, 5)
    of_module = list_for(standfast.Model(nn.Linear(5, 3), bounds=(0.0, 1.0)), inputs)
    weights = np.random.default_rng(0).normal(size=(5, 3))
    function = standfast.Model.from_callable(
        lambda rows: np.asarray(rows) @ weights, (0.0, 1.0), output="logit"
    )
    of_function = list_for(function, inputs)
    assert "saliency" in of_module
    assert "saliency" not in of_function
    assert {"kernel_shap:segments=pixels,samples=100", "occlusion"} <= set(of_function)


def test_a_frame() -> None:
    """A whole race with defaults, on rows of a data frame."""
    pd = pytest.importorskip("pandas")
    linear_model = pytest.importorskip("sklearn.linear_model")
    generator = np.random.default_rng(0)
    frame = pd.DataFrame(generator.normal(5, 1, size=(90, 3)), columns=["income", "debt", "age"])
    model = linear_model.LogisticRegression().fit(frame, frame["income"] * 2 > frame["debt"] + 5)
    names = list_for(model, frame[:24], frame)
    assert "kernel_shap:samples=100" in names
    found = standfast.choose(
        model,
        frame[:24],
        ["occlusion", "kernel_shap:samples=16"],
        ["worst_case:budget=10", "corruption_curve"],
        reference=frame,
        sanity=8,
        progress=False,
    )
    assert found.race.label == "corruption_curve"
    assert found.race.samples == 24
    assert {entrant.name for entrant in found.race.entrants} == {
        "occlusion",
        "kernel_shap:samples=16",
    }


def test_texts() -> None:
    texts, _ = standfast.data.film_reviews()
    reader = standfast.TextModel(
        standfast.zoo.load("transformer-sentences"), standfast.data.word_vectors()
    )
    found = standfast.choose(
        reader,
        sorted(texts, key=len)[:24],
        ["saliency", "input_x_gradient"],
        ["aopc:samples=1,steps=5"],
        sanity=8,
        progress=False,
    )
    assert found.race.label.startswith("aopc (")
    assert len(found.race.confirmation_rows) == 8


def test_rows_of_samples_keep_what_belongs_to_them() -> None:
    texts, _ = standfast.data.film_reviews()
    reader = standfast.TextModel(
        standfast.zoo.load("transformer-sentences"), standfast.data.word_vectors()
    )
    ((_, samples),) = Arguments(reader, "random", texts[:6], "aopc").read_inputs([]).samples.items()
    part = take_rows(samples, (4, 1))
    assert samples.tokens is not None
    assert samples.lengths is not None
    assert part.tokens == (samples.tokens[4], samples.tokens[1])
    assert part.lengths == (samples.lengths[4], samples.lengths[1])
    torch.testing.assert_close(part.inputs, samples.inputs[[4, 1]])


def test_rows_that_replace_values_are_those_of_all_samples() -> None:
    """So that an explainer is the same in the race and in the confirmation."""
    torch.manual_seed(0)
    inputs = torch.rand(30, 5)
    model = standfast.Model(nn.Linear(5, 3), bounds=(0.0, 1.0))
    explainers = ["saliency", "input_x_gradient"]
    found = standfast.choose(
        model, inputs, explainers, ["corruption_curve"], budget=1.0, progress=False
    )
    rows = list(found.race.rows)
    again = standfast.evaluate(
        model,
        explainers,
        inputs[rows],
        ["corruption_curve"],
        reference=inputs,
        controls=False,
        out=found.results.store.folder.address,
        progress=False,
    )
    assert again.run is not None
    assert again.run.done == 0


def test_defaults_suit_the_inputs() -> None:
    """What is asked where nobody names explainers, or metrics."""
    torch.manual_seed(0)
    inputs = torch.rand(24, 5)
    model = standfast.Model(nn.Linear(5, 3), bounds=(0.0, 1.0))
    filled = fill_in(Arguments(model, (), inputs, ()), lacks_explainers=True, lacks_metrics=True)
    assert list(filled.explainers) == list_for(model, inputs)
    assert filled.metrics == ["worst_case", "corruption_curve"]
    pictures = fill_in(
        Arguments(model, "saliency", torch.rand(24, 1, 2, 2), ()), False, lacks_metrics=True
    )
    assert pictures.metrics == ["worst_case", "aopc"]
    assert pictures.explainers == "saliency"


def test_a_table_of_a_study_has_one_reference_in_race_and_confirmation(tmp_path: Path) -> None:
    """The rows that replace values are all of them, so that the confirmation is of the same explainer."""
    rows = torch.rand(30, 5, generator=torch.Generator().manual_seed(0))
    np.savez(tmp_path / "rows.npz", inputs=rows.numpy())
    (tmp_path / "raced_net.py").write_text(
        "from torch import nn\n\ndef build():\n    return nn.Linear(5, 3)\n"
    )
    (tmp_path / "study.yaml").write_text(
        'data: {rows: {path: rows.npz}}\nmodels: {net: {function: "raced_net:build"}}\n'
        "explainers: [occlusion, input_x_gradient]\nmetrics: [corruption_curve]\n"
    )
    grid = load_study(tmp_path / "study.yaml").ask().make_grid()
    baselines: list[torch.Tensor] = []
    for numbers in (range(16), range(16, 30)):
        part = take_part(grid, numbers)
        samples = part.data["rows"]
        # as a job does it
        model = part.models["net"].model(samples, "cpu").with_reference(samples.inputs)
        assert model.reference is not None
        baselines.append(model.reference.baseline)
        assert part.models["net"].about == grid.models["net"].about
    assert torch.equal(baselines[0], baselines[1])
    of_all = grid.models["net"].model(grid.data["rows"], "cpu").with_reference(rows).reference
    assert of_all is not None
    assert torch.equal(baselines[0], of_all.baseline)
