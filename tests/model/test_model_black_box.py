"""`Model.from_callable`: functions of arrays as classifiers, their scores, their errors, and what refuses them."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

import standfast
from standfast.errors import ArgumentError, ModelError, NoGradientsError
from standfast.study.answers import AnswerNumbers, ask_model
from standfast.study.identity import describe_model

WEIGHTS = np.array([[3.0, -1.0, 0.5, 0.0], [0.0, 2.0, -2.0, 1.0], [-1.0, 0.0, 1.0, 1.0]])
X = torch.rand(40, 4, generator=torch.Generator().manual_seed(0))


def softmax(scores: np.ndarray) -> np.ndarray:
    shares = np.exp(scores - scores.max(1, keepdims=True))
    return shares / shares.sum(1, keepdims=True)


def predict_proba(rows: np.ndarray) -> np.ndarray:
    """Three classes, by steps: as a model of trees is, constant between thresholds."""
    return softmax(np.floor(4 * rows) @ WEIGHTS.T)


def from_callable(
    function: Callable[[Any], Any] = predict_proba, **options: Any
) -> standfast.Model:
    return standfast.Model.from_callable(function, (0.0, 1.0), **options)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_softmax_gives_the_probabilities_back(dtype: torch.dtype) -> None:
    seen: list[np.ndarray] = []

    def recording(rows: np.ndarray) -> np.ndarray:
        seen.append(rows)
        return predict_proba(rows)

    model = from_callable(recording, dtype=dtype)
    x = X.to(dtype)
    logits = model.logits(x)
    assert logits.dtype == model.dtype == dtype
    np.testing.assert_allclose(
        logits.double().softmax(1).numpy(), predict_proba(x.numpy()), rtol=1e-5, atol=1e-12
    )
    assert {rows.dtype for rows in seen} == {x.numpy().dtype}
    assert (model.predict(x).numpy() == predict_proba(x.numpy()).argmax(1)).all()
    assert repr(model) == "Model(recording, a function without gradients, bounds [0, 1], cpu)"
    with pytest.raises(ArgumentError, match="inputs: expected dtype"):
        model.logits(X.double() if dtype == torch.float32 else X)


def test_rows_keep_their_order_and_few_calls_are_made() -> None:
    calls: list[int] = []

    def first_entry(rows: np.ndarray) -> np.ndarray:
        calls.append(len(rows))
        rows[:, 1] = -1.0  # what it does to its own array stays there
        return rows[:, 0]

    model, x = from_callable(first_entry, batch_size=16), X.clone()
    torch.testing.assert_close(model.logits(x).softmax(1)[:, 1], x[:, 0])
    assert calls == [16, 16, 16]  # 40 rows, the last chunk padded
    assert torch.equal(x, X)
    calls.clear()
    many = torch.rand(9000, 4)
    torch.testing.assert_close(from_callable(first_entry).logits(many).softmax(1)[:, 1], many[:, 0])
    assert calls == [8192, 808]  # no calls to find out what is fastest
    calls.clear()
    from_callable(first_entry).predict(x[:3])
    assert calls == [16]


@pytest.mark.parametrize("kind", ["array", "column", "tensor", "list"])
def test_scores_of_two_classes(kind: str) -> None:
    """`(N,)` are scores of class 1, whatever holds them: s/2 and -s/2, or p and 1 - p."""
    made = {
        "array": lambda values: values,
        "column": lambda values: values[:, None],
        "tensor": torch.from_numpy,
        "list": list,
    }[kind]
    logits = from_callable(lambda rows: made(6 * rows[:, 0] - 3), output="logit").logits(X)
    torch.testing.assert_close(logits[:, 1] - logits[:, 0], 6 * X[:, 0] - 3)
    torch.testing.assert_close(logits.sum(1), torch.zeros(40))
    shares = from_callable(lambda rows: made(rows[:, 0])).logits(X).softmax(1)
    torch.testing.assert_close(shares, torch.stack([1 - X[:, 0], X[:, 0]], 1))


def test_probabilities_of_zero_have_the_stated_floor() -> None:
    certain = from_callable(
        lambda rows: np.stack([rows[:, 0] > 0.5, rows[:, 0] <= 0.5], 1).astype(float)
    )
    logits = certain.logits(X)
    assert set(logits.unique().tolist()) == {
        0.0,
        float(torch.tensor(1e-12, dtype=torch.float64).log().float()),
    }


def raising(rows: np.ndarray) -> np.ndarray:
    raise KeyError("column 'age'")


WRONG: dict[str, tuple[Callable[[Any], Any], str, str]] = {
    "an error": (
        raising,
        "probability",
        "from raising for an array of shape .N, 4., float32, which raises KeyError: ",
    ),
    "classes": (
        lambda rows: rows[:, 0] > 0.5,
        "probability",
        "returns bool .classes. give predict_proba",
    ),
    "too few rows": (
        lambda rows: predict_proba(rows)[:-1],
        "probability",
        r"returns shape \(15, 3\)",
    ),
    "one number": (lambda rows: np.float64(0.5), "probability", r"returns shape \(\)"),
    "three axes": (
        lambda rows: np.zeros((len(rows), 2, 2)),
        "logit",
        r"returns shape \(16, 2, 2\)",
    ),
    "nothing": (lambda rows: None, "probability", "which returns object"),
    "no shares": (
        lambda rows: predict_proba(rows) * 0.9,
        "probability",
        "not in .0, 1. with a sum of 1 .*'?logit",
    ),
    "log-odds": (
        lambda rows: 5 * rows[:, 0] + 1.01,
        "probability",
        "not in .0, 1. with a sum of 1",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_a_function_does_wrong_is_one_error(case: str) -> None:
    function, output, words = WRONG[case]
    with pytest.raises(ModelError, match=words):
        from_callable(function, output=output).logits(X[:3])


def test_nan_is_the_sample_s_own() -> None:
    """As for a module: the sample is `nonfinite`, and the others are evaluated."""
    model = from_callable(lambda rows: np.where(rows[:, :1] > 0.9, np.nan, predict_proba(rows)))
    x = X[:3].clone()
    x[:, 0] = torch.tensor([0.2, 0.95, 0.3])
    with pytest.raises(ModelError, match="NaN or infinity for 1 of 3 inputs"):
        model.logits(x)
    found = standfast.metrics.AOPC(steps=2, samples=1)(model, "occlusion", x)
    assert found.status == ("ok", "nonfinite", "ok")


def test_too_little_memory_makes_smaller_calls() -> None:
    calls: list[int] = []

    def small(rows: np.ndarray) -> np.ndarray:
        calls.append(len(rows))
        if len(rows) > 16:
            raise MemoryError("1 TB")
        return predict_proba(rows)

    with pytest.warns(UserWarning, match="memory ran out"):
        found = from_callable(small).logits(X).softmax(1)
    np.testing.assert_allclose(found, predict_proba(X.numpy()), rtol=1e-4)
    assert calls[0] == 40
    assert calls[-3:] == [16, 16, 16]


def test_wrong_arguments() -> None:
    class Estimator:
        def predict(self, rows: np.ndarray) -> np.ndarray:
            return rows[:, 0]

    with pytest.raises(
        ArgumentError,
        match="function: expected a function of arrays; .* predict_proba, got Estimator",
    ):
        from_callable(Estimator())  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="output: expected 'probability' or 'logit'"):
        from_callable(output="proba")
    with pytest.raises(ArgumentError, match="dtype: expected torch.float32 or torch.float64"):
        from_callable(dtype=torch.float16)
    with pytest.warns(UserWarning, match='look like probabilities .* say output="probability"'):
        from_callable(output="logit").logits(X)


def test_what_needs_gradients_refuses_before_the_function_is_called() -> None:
    calls = [0]

    def counted(rows: np.ndarray) -> np.ndarray:
        calls[0] += 1
        return predict_proba(rows)

    model, ball = from_callable(counted), standfast.LinfBall(0.2)
    assert not model.differentiable
    with pytest.raises(
        ArgumentError,
        match="explainer: .*predictions alone .*counted has no gradients, got saliency",
    ):
        standfast.explainers.get("saliency")(model, X)
    with pytest.raises(ArgumentError, match="explainer: .*got lrp, which needs gradients; layers"):
        standfast.metrics.MaxSensitivity(ball)(model, "lrp", X)
    with pytest.raises(
        ArgumentError, match="model: expected a module, since c_eval needs gradients"
    ):
        standfast.metrics.CEval()(model, "occlusion", X)
    for search in ("gradient", "sign"):
        worst = standfast.metrics.WorstCase(ball, search=search, budget=20)
        with pytest.raises(
            ArgumentError, match="search: expected a black-box search, since the model cannot be"
        ):
            worst(model, "input_copy", X)
    attack = standfast.metrics.AttributionAttack(neighbourhood=ball, attack="top_k")
    with pytest.raises(ArgumentError, match="attack: .*counted has no gradients"):
        attack(model, "input_copy", X)
    with pytest.raises(
        ArgumentError, match="model: .*parameter_sensitivity_consistency needs a module"
    ):
        standfast.metrics.ParameterSensitivityConsistency()(model, "occlusion", X)
    assert calls == [0]
    # an explainer that does not say what it needs is told by the function

    def gradient(module: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        leaf = inputs.requires_grad_(True)
        return torch.autograd.grad(module(leaf).sum(), leaf)[0]

    with pytest.raises(
        NoGradientsError, match="got the function counted, which has none; use an explainer"
    ):
        standfast.explainers.get(gradient)(model, X[:2])
    calls[0] = 0
    for name in ("captum:IntegratedGradients", "captum:Saliency"):
        with pytest.raises(ArgumentError, match=f"{name.replace(':', '.')}, which needs gradients"):
            standfast.explainers.get(name)(model, X[:2])
    assert calls == [0]


def test_auto_takes_the_searches_without_gradients() -> None:
    """`input_copy` can be differentiated, the function cannot: `auto` is block search."""
    ball = standfast.LinfBall(0.2)
    x = torch.rand(3, 12, generator=torch.Generator().manual_seed(1))
    weights = torch.randn(3, 12, generator=torch.Generator().manual_seed(2)).numpy()
    model = from_callable(lambda rows: softmax(np.floor(4 * rows) @ weights.T))
    auto, block = (
        standfast.metrics.WorstCase(ball, search=search, budget=60)(model, "input_copy", x)
        for search in ("auto", "block")
    )
    assert torch.equal(auto.value, block.value)
    assert not auto.followed_gradients.any()


def test_explanations_are_those_of_the_same_model_as_a_module() -> None:
    """Black-box explainers see no difference between a module and a function that computes the same."""

    class Steps(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (4 * x).floor() @ torch.from_numpy(WEIGHTS).float().T

    module = standfast.Model(Steps(), (0.0, 1.0), device="cpu")
    function = from_callable(lambda rows: np.floor(4 * rows) @ WEIGHTS.T, output="logit")
    for name in (
        "kernel_shap",
        "lime",
        "occlusion",
        "shapley_sampling",
        "captum:ShapleyValueSampling",
    ):
        explainer = standfast.explainers.get(name)
        torch.testing.assert_close(
            explainer(function, X[:4]), explainer(module, X[:4]), rtol=1e-4, atol=1e-5
        )
    metric = standfast.metrics.WorstCase(standfast.LinfBall(0.2), search="genetic", budget=60)
    found, wanted = (metric(model, "occlusion", X[:4]) for model in (function, module))
    torch.testing.assert_close(found.value, wanted.value, rtol=1e-4, atol=1e-4)


class Estimator:
    """A fitted model of the user's own: a threshold that `fit` sets, in an array with gaps between its fields."""

    def __init__(self, threshold: float, scale: float = 5.0) -> None:
        self.nodes = np.empty(
            1, dtype=np.dtype({"names": ["at", "side"], "formats": ["f8", "u1"], "itemsize": 16})
        )
        # as fresh memory is
        self.nodes.view(np.uint8)[:] = np.random.default_rng().integers(0, 255, 16)
        self.nodes["at"], self.nodes["side"] = threshold, 1
        self.parts = [{"scale": scale, "self": self}]

    def predict(self, rows: np.ndarray) -> np.ndarray:
        return self.predict_proba(rows).argmax(1)

    def predict_proba(self, rows: np.ndarray) -> np.ndarray:
        share = 1 / (1 + np.exp(-self.parts[0]["scale"] * (rows[:, 0] - self.nodes["at"])))  # type: ignore[operator]
        return np.stack([1 - share, share], 1)


def ask(function: Callable[[Any], Any]) -> AnswerNumbers:
    return ask_model(from_callable(function), X)


@pytest.mark.parametrize("algorithm", ["threshold", "kd_tree", "ball_tree", "brute"])
def test_a_function_is_known_by_what_it_answers_and_not_by_its_queries(algorithm: str) -> None:
    """A study must not take the results of another fit for its own, and must find those of the same fit again."""

    def fit(at: float) -> Any:
        if algorithm == "threshold":
            return Estimator(at)
        neighbors = pytest.importorskip("sklearn.neighbors")
        return neighbors.KNeighborsClassifier(3, algorithm=algorithm).fit(
            X.numpy(), (X[:, 0] > at).numpy()
        )

    model = fit(0.5)
    one = ask(model.predict_proba)
    assert one.find_difference(ask(model.predict_proba)) == ""
    assert one.find_difference(ask(pickle.loads(pickle.dumps(model)).predict_proba)) == ""
    assert one.find_difference(ask(lambda rows: fit(0.5).predict_proba(rows))) == ""
    assert one.find_difference(ask(fit(0.6).predict_proba)) != ""


def test_answers_count_where_the_model_cannot_be_seen() -> None:
    state = {"at": 0.5}

    def hidden(rows: np.ndarray) -> np.ndarray:
        return Estimator(*state.values()).predict_proba(rows)

    one = ask(hidden)
    assert one.find_difference(ask(hidden)) == ""
    state["at"] = 0.52
    assert one.find_difference(ask(hidden)) == "inputs"
    assert ask(raising).numbers == {}


def test_a_pickled_classifier_is_the_same() -> None:
    model = from_callable(predict_proba)
    again = pickle.loads(pickle.dumps(model))
    assert torch.equal(again.logits(X), model.logits(X))
    assert describe_model(again, {}) == describe_model(model, {})


def test_evaluate_records_what_failed_and_goes_on(tmp_path: Path) -> None:
    model = from_callable(predict_proba)
    explainers = ["occlusion", "saliency"]
    metrics = [standfast.metrics.AOPC(steps=2, samples=1), standfast.metrics.CEval()]
    with pytest.warns(UserWarning, match="jobs failed:\n.*(?s:.)*c_eval"):
        found = standfast.evaluate(model, explainers, X[:2], metrics, out=tmp_path, progress=False)
    samples = found.samples
    # no weights to shuffle for a control
    assert set(samples["explainer"]) == {
        "occlusion",
        "random",
        "input_copy",
    }
    assert set(samples["label"]) == {"aopc"}
    assert {(each["explainer"], each["label"]) for each in found.failures} >= {("saliency", "aopc")}
    assert found.manifest["models"]["predict_proba"]["module"] == "predict_proba"
    costs = standfast.estimate(
        model, explainers, X[:2], metrics[:1], controls=False, sanity=False, seconds=0.2
    ).frame()
    assert [("no gradients" in error) for error in costs["error"]] == [False, True]


def test_a_function_that_is_not_the_same_again_is_noticed() -> None:
    generator = np.random.default_rng(0)
    noisy = from_callable(lambda rows: softmax(generator.normal(size=(len(rows), 3))))
    with pytest.raises(ModelError, match="expected the same logits for the same inputs"):
        standfast.evaluate(noisy, "occlusion", X[:4], "aopc", controls=False, progress=False)
    with pytest.raises(ModelError, match="same inputs.*a random generator of its own"):
        standfast.metrics.AOPC(steps=2, samples=1)(noisy, "occlusion", X[:4])
    mixing = from_callable(lambda rows: softmax((rows - rows.mean(0)) @ WEIGHTS.T))
    with pytest.raises(ModelError, match="do not depend on the other inputs"):
        standfast.evaluate(mixing, "occlusion", X[:4], "aopc", controls=False, progress=False)


def test_columns_selected_by_name_get_a_hint() -> None:
    """A pipeline of scikit-learn that selects columns by name, and the wrapper that the hint names."""
    compose = pytest.importorskip("sklearn.compose")
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    names = ["age", "income"]
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(100, 2)), columns=names)
    scale = compose.ColumnTransformer([("scaled", StandardScaler(), names)])
    model = make_pipeline(scale, LogisticRegression()).fit(
        frame, (frame.age > frame.income).astype(int)
    )
    x = torch.tensor(frame.to_numpy()[:6], dtype=torch.float32)
    bounds = (-5.0, 5.0)
    for function in (model.predict_proba, lambda rows: model.predict_proba(rows)):
        with pytest.raises(
            ModelError,
            match=r"raises ValueError: .*model.predict_proba\(pandas.DataFrame\(rows, col",
        ):
            standfast.Model.from_callable(function, bounds).logits(x)
    named = standfast.Model.from_callable(
        lambda rows: model.predict_proba(pd.DataFrame(rows, columns=names)), bounds
    )
    assert torch.allclose(
        named.logits(x).softmax(1), torch.tensor(model.predict_proba(frame[:6])).float(), atol=1e-6
    )


def test_an_estimator_fitted_on_a_frame_does_not_warn_at_every_call() -> None:
    """The other warnings of the function are shown."""
    from sklearn.linear_model import LogisticRegression

    class Talking(LogisticRegression):
        def predict_proba(self, rows: Any) -> Any:
            warnings.warn("of its own", UserWarning, stacklevel=1)
            return super().predict_proba(rows)

    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(100, 2)), columns=["a", "b"])
    network = Talking().fit(frame, (frame.a > 0).astype(int))
    model = standfast.Model.from_callable(network.predict_proba, (-5.0, 5.0))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        standfast.explainers.get("occlusion")(
            model, torch.tensor(frame.to_numpy()[:3], dtype=torch.float32)
        )
    assert {str(each.message) for each in caught} == {"of its own"}


def test_missing_cells_are_refused_with_advice() -> None:
    x = torch.tensor([[0.5, torch.nan], [0.2, 0.3]])
    model = standfast.Model.from_callable(lambda rows: rows[:, 0], (0.0, 1.0))
    labels, names = torch.tensor([0, 1]), ("no", "yes")
    calls: list[Callable[[], object]] = [
        lambda: model.logits(x),
        lambda: standfast.explainers.get("occlusion")(model, x),
        lambda: standfast.data.Dataset("table", x, labels, names),
        lambda: standfast.explainers.Background(x),
        lambda: standfast.Model.from_callable(lambda rows: rows[:, 0], (x.amin(0), x.amax(0))),
    ]
    for call in calls:
        with pytest.raises(
            ArgumentError,
            match=r"(inputs|background|bounds): expected finite values \(impute missing",
        ):
            call()


def test_codes_that_a_function_refuses_name_the_explainer() -> None:
    """An encoder that knows the categories 1 to 3 alone, and occlusion, which sets them to 0."""

    def predict_proba(rows: Any) -> Any:
        if not np.isin(rows[:, 0], (1, 2, 3)).all():
            raise ValueError("Found unknown categories")
        return np.full(len(rows), 0.5)

    model = standfast.Model.from_callable(predict_proba, (0.0, 3.0))
    words = "^occlusion: predict_proba runs on the inputs, but not on copies .* codes of categories.*unknown categories"
    with pytest.raises(ModelError, match=words):
        standfast.explainers.get("occlusion")(model, torch.tensor([[1.0, 0.5], [3.0, 0.5]]))
