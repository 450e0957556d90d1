"""Races without named explainers and metrics, on all kinds of inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import standfast
from standfast.question.arguments import Arguments
from standfast.race.candidates import list_candidates
from standfast.race.entry import fill_in
from standfast.race.split import take_rows


def list_for(model: Any, inputs: Any, reference: Any = None) -> list[str]:
    return list_candidates(Arguments(model, "random", inputs, "aopc", reference=reference).read_inputs([]))


def test_candidates_of_images() -> None:
    digits = standfast.data.bundled("digits")[:2]
    names = list_for(standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0)), digits)
    assert {"saliency", "gradcam", "integrated_gradients:steps=16", "smoothgrad:samples=16,noise=0.2"} <= set(names)


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
    function = standfast.Model.from_callable(lambda rows: np.asarray(rows) @ weights, (0.0, 1.0), output="logit")
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
        progress=False,
    )
    assert found.race.label == "corruption_curve"
    assert found.race.samples == 24
    assert {entrant.name for entrant in found.race.entrants} == {"occlusion", "kernel_shap:samples=16"}


def test_texts() -> None:
    texts, _ = standfast.data.film_reviews()
    reader = standfast.TextModel(standfast.zoo.load("transformer-sentences"), standfast.data.word_vectors())
    found = standfast.choose(
        reader, texts[:24], ["saliency", "occlusion"], ["aopc:samples=1,steps=5"], sanity=8, progress=False
    )
    assert found.race.label.startswith("aopc (")
    assert len(found.race.confirmation_rows) == 8


def test_rows_of_samples_keep_what_belongs_to_them() -> None:
    texts, _ = standfast.data.film_reviews()
    reader = standfast.TextModel(standfast.zoo.load("transformer-sentences"), standfast.data.word_vectors())
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
    found = standfast.choose(model, inputs, explainers, ["corruption_curve"], budget=1.0, progress=False)
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
    pictures = fill_in(Arguments(model, "saliency", torch.rand(24, 1, 2, 2), ()), False, lacks_metrics=True)
    assert pictures.metrics == ["worst_case", "aopc"]
    assert pictures.explainers == "saliency"
