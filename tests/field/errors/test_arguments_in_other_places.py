"""Slips that are easily made: each is told in one sentence, before anything is computed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import standfast
from standfast.errors import ArgumentError, ModelError
from standfast.metrics import WorstCase
from standfast.neighbourhoods import Compose, Rotation, TableChanges, Typos
from standfast.study.file.document import StudyError
from standfast.study.file.spec import study_from

TEXTS = ["a great film", "a dull film"]


class Bag(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        # as many as `word_vectors` has
        self.words, self.head = (
            nn.Embedding(5161, 8),
            nn.Linear(8, 2),
        )

    def forward(self, ids: Tensor, present: Tensor) -> Tensor:
        return self.head((self.words(ids) * present[..., None]).sum(1))


def make_module() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 3))


def make_inputs() -> Tensor:
    return torch.rand(4, 1, 4, 4, generator=torch.Generator().manual_seed(0))


def make_model() -> standfast.Model:
    return standfast.Model(make_module(), bounds=(0.0, 1.0), device="cpu")


def make_text_model() -> standfast.TextModel:
    torch.manual_seed(0)
    return standfast.TextModel(Bag(), standfast.data.word_vectors(), device="cpu")


def evaluate(model: Any, explainers: Any, inputs: Any, **options: Any) -> standfast.Results:
    metrics = options.pop("metrics", ["aopc:preset=quick"])
    return standfast.evaluate(
        model, explainers, inputs, metrics, controls=False, sanity=False, progress=False, **options
    )


def find_refusal(call: Callable[[], object]) -> ArgumentError:
    with pytest.raises(ArgumentError) as error:
        call()
    return error.value


@pytest.mark.parametrize(
    "model", [make_model(), make_module(), "occlusion"], ids=["model", "module", "exchanged"]
)
def test_texts_are_explained_by_a_text_model(model: Any) -> None:
    refusal = find_refusal(lambda: standfast.explain(model, "occlusion", TEXTS))
    assert (refusal.argument, refusal.got) == ("model", type(model).__name__)
    # where else to go, whatever was imported before
    for place in ("TextModel", "standfast.reasons", "standfast.evaluate"):
        assert place in refusal.expected


@pytest.mark.parametrize("kind", [standfast.TextModel, standfast.CausalModel])
def test_a_text_model_needs_a_tokenizer(kind: type[standfast.TextModel]) -> None:
    refusal = find_refusal(lambda: kind(Bag()))
    assert (refusal.argument, refusal.got) == ("tokenizer", "none")


def of_two(module: Any, inputs: Any) -> Any:
    return inputs


def test_an_explainer_of_two_parameters_is_refused() -> None:
    model, x = make_model(), make_inputs()
    calls: list[Callable[[], object]] = [
        lambda: evaluate(model, of_two, x),
        lambda: standfast.explainers.from_callable(of_two),
        lambda: standfast.explainers.from_quantus(of_two),
        lambda: evaluate(make_text_model(), of_two, TEXTS),
    ]
    for call in calls:
        refusal = find_refusal(call)
        assert (refusal.argument, refusal.got) == ("explainer", "of_two(module, inputs)")
        assert "targets" in refusal.expected


def test_other_callables_of_three_arguments_are_explainers() -> None:
    def with_options(module: Any, inputs: Tensor, targets: Any, factor: float = 2.0) -> Tensor:
        return inputs * factor

    def of_any(*arguments: Any, **options: Any) -> Tensor:
        copy: Tensor = arguments[1]
        return copy

    model, x = make_model(), make_inputs()
    for function in (with_options, of_any):
        assert standfast.explainers.get(function)(model, x).shape == x.shape
    needs_an_option = standfast.explainers.from_quantus(
        lambda model, inputs, targets, *, factor: inputs, factor=2
    )
    assert needs_an_option(model, x).shape == x.shape


WEIGHTS = {
    "a state dict": make_module().state_dict(),
    "a plain mapping": dict(make_module().state_dict()),
    "a checkpoint": {"state_dict": make_module().state_dict(), "epoch": 3},
    "one of several": {"net": make_module().state_dict()},
}


@pytest.mark.parametrize("weights", WEIGHTS.values(), ids=WEIGHTS)
def test_weights_are_no_model(weights: Any) -> None:
    calls: list[tuple[str, Callable[[], object]]] = [
        ("model", lambda: evaluate(weights, "saliency", make_inputs())),
        ("module", lambda: standfast.Model(weights, bounds=(0.0, 1.0))),
        ("model", lambda: standfast.TextModel(weights, standfast.data.word_vectors())),
    ]
    for argument, call in calls:
        refusal = find_refusal(call)
        assert refusal.argument == argument
        assert "load_state_dict" in str(refusal.got)


def test_several_models_in_a_mapping_are_no_weights() -> None:
    found = evaluate({"one": make_model(), "other": make_model()}, "saliency", make_inputs())
    assert found.frame()["model"].unique().sort().to_list() == ["one", "other"]


@pytest.mark.parametrize("explainer", ["saliency", ["saliency"], standfast.explainers.Saliency()])
def test_model_and_explainer_are_exchanged(explainer: Any) -> None:
    refusal = find_refusal(lambda: evaluate(explainer, make_model(), make_inputs()))
    assert refusal.argument == "model"
    assert "saliency" in str(refusal.got).lower()
    assert "evaluate(model, explainers" in refusal.expected


@pytest.mark.parametrize(
    "model", [make_model(), [make_model()], make_text_model()], ids=["one", "list", "texts"]
)
def test_a_model_is_no_explainer(model: Any) -> None:
    refusal = find_refusal(lambda: evaluate(make_model(), model, make_inputs()))
    assert refusal.argument == "explainers"
    assert "Model" in str(refusal.got)


def test_a_module_is_no_explainer() -> None:
    refusal = find_refusal(lambda: evaluate(make_model(), make_module(), make_inputs()))
    assert (refusal.argument, refusal.got) == ("explainer", "the module Sequential(input)")


MISFITS: dict[str, tuple[Any, Any]] = {
    "images with typos": (Typos(), make_inputs()),
    "rows with typos": (Typos(), torch.rand(9, 16)),
    "images with changes of columns": (TableChanges({"a": 1.0}, columns=("a",)), make_inputs()),
    "rows that turn": (Compose([Rotation(10)]), torch.rand(9, 16)),
}


@pytest.mark.parametrize(("neighbourhood", "inputs"), MISFITS.values(), ids=MISFITS)
def test_neighbourhoods_of_other_inputs_are_refused(neighbourhood: Any, inputs: Tensor) -> None:
    for options in (
        {"metrics": ["worst_case:budget=10"], "neighbourhood": neighbourhood},
        {"metrics": [WorstCase(neighbourhood, budget=10)]},
    ):
        refusal = find_refusal(
            lambda options=options: evaluate(make_model(), "saliency", inputs, **options)
        )
        assert refusal.argument == "neighbourhood"
        assert f"(N, {inputs.shape[1]}" in refusal.expected


def test_a_study_refuses_them_where_they_stand() -> None:
    study = {
        "data": {"digits": "digits"},
        "samples": 2,
        "models": {"lenet": "lenet5-mnist"},
        "explainers": ["saliency"],
        "metrics": [{"worst_case": {"budget": 10, "neighbourhood": "typos"}}],
    }
    with pytest.raises(StudyError) as error:
        study_from(study).grid()
    (problem,) = error.value.problems
    assert (problem.path[0], problem.path[-1]) == ("metrics", "neighbourhood")
    assert "Typos" in problem.got


def test_explainers_by_gradients_are_refused_for_frames() -> None:
    pytest.importorskip("sklearn")
    pandas = pytest.importorskip("pandas")
    from sklearn.linear_model import LogisticRegression

    rows = torch.rand(30, 2, generator=torch.Generator().manual_seed(0)).numpy()
    frame = pandas.DataFrame(rows, columns=["a", "b"])
    fitted = LogisticRegression().fit(frame, frame.a > frame.b)
    for explainers in ("saliency", ["occlusion", "integrated_gradients"], {"mine": "gradcam"}):
        refusal = find_refusal(
            lambda given=explainers: evaluate(fitted, given, frame, reference=frame)
        )
        assert refusal.argument == "explainer"
        assert "gradients" in str(refusal.got)
    refusal = find_refusal(lambda: evaluate(fitted, of_two, frame, reference=frame))
    assert (refusal.argument, refusal.expected) == (
        "explainer",
        "a function of estimator, frame and targets",
    )


def test_some_explainers_of_a_function_of_arrays_may_need_gradients(tmp_path: Path) -> None:
    function = standfast.Model.from_callable(lambda rows: rows[:, :2], (0.0, 1.0), output="logit")
    x = torch.rand(4, 3)
    assert (
        find_refusal(lambda: evaluate(function, ["saliency", "smoothgrad"], x)).argument
        == "explainer"
    )
    with pytest.warns(UserWarning, match="jobs failed"):
        found = evaluate(function, ["saliency", "occlusion"], x, out=tmp_path)
    assert [failure["explainer"] for failure in found.failures] == ["saliency"]


def test_one_of_several_models_may_be_a_function(tmp_path: Path) -> None:
    function = standfast.Model.from_callable(lambda rows: rows[:, :2], (0.0, 1.0), output="logit")
    module = standfast.Model(nn.Linear(3, 2), bounds=(0.0, 1.0), device="cpu")
    with pytest.warns(UserWarning, match="jobs failed"):
        found = evaluate(
            {"function": function, "module": module}, "saliency", torch.rand(4, 3), out=tmp_path
        )
    assert [failure["model"] for failure in found.failures] == ["function"]


class Nested(nn.Module):
    """A module that calls itself so often."""

    def __init__(self, levels: int) -> None:
        super().__init__()
        self.levels, self.inner = levels, make_module()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) if self.levels == 0 else descend(self.levels, lambda: self.inner(x))


def descend(levels: int, then: Callable[[], Any]) -> Any:
    """Call a function so many levels further down."""
    return then() if levels == 0 else descend(levels - 1, then)


def explain_without_end(module: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    return explain_without_end(module, inputs, targets)


def test_deep_calls_are_not_called_a_failure_of_the_module() -> None:
    model, x = make_model(), make_inputs()
    own = standfast.explainers.from_callable(explain_without_end)
    deep = standfast.Model(Nested(sys.getrecursionlimit()), bounds=(0.0, 1.0), device="cpu")
    for call in (lambda: own(model, x), lambda: deep.predict(x)):
        with pytest.raises(ModelError) as error:
            call()
        assert "failed on inputs" not in str(error.value)
        assert f"{sys.getrecursionlimit()} calls" in str(error.value)
        assert "setrecursionlimit" in str(error.value)
