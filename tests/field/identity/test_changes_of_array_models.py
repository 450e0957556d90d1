"""Which changes of a function of arrays, and of the estimator behind it, make another job; each changes one thing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from planned_jobs import import_again, list_identities, plan_arrays
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.tree import DecisionTreeClassifier

import standfast

ROWS = np.random.default_rng(0).random((40, 3))
KIND = (ROWS[:, 0] > ROWS[:, 1]).astype(int)

#: the user's modules: an estimator, a function, and what both import
MODULES = {
    "arrays_of_mine.py": """
import numpy as np
from shared_arrays_of_mine import squash

EDGE = 9.0

class Rule:
    classes_ = np.array([0, 1])

    def __init__(self, edge=9.0, n_jobs=1):
        self.edge, self.n_jobs, self.asked = edge, n_jobs, 0

    def predict_proba(self, rows):
        self.asked += 1
        from late_arrays_of_mine import SCALE
        z = (rows[:, 0] - rows[:, 1]) * SCALE
        z = np.where((rows > self.edge).any(1), -z, z)
        z = np.where((rows > EDGE).any(1), -z, z)
        p = squash(z)
        return np.stack([1 - p, p], 1)

    def predict(self, rows):
        return self.predict_proba(rows).argmax(1)

def predict(rows):
    p = squash(rows[:, 0] - rows[:, 1])
    return np.stack([1 - p, p], 1)

def halve(rows):
    return rows / 2
""",
    "shared_arrays_of_mine.py": "import numpy as np\n\ndef squash(z):\n    return 1 / (1 + np.exp(-z))\n",
    "late_arrays_of_mine.py": "SCALE = 3.0\n",
    "other_arrays_of_mine.py": "VALUE = 1\n",
}
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "a method of an estimator of the user's": lambda module: module.Rule().predict_proba,
    "a function": lambda module: module.predict,
    "a partial": lambda module: partial(module.predict),
    "a lambda": lambda module: lambda rows: module.Rule().predict_proba(rows),
    "a step of a pipeline": lambda module: (
        make_pipeline(FunctionTransformer(module.halve), LogisticRegression())
        .fit(ROWS, KIND)
        .predict_proba
    ),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return tmp_path


def plan(folder: Path, texts: dict[str, str], make: Callable[[Any], Any]) -> set[str]:
    module = import_again(folder, texts, "arrays_of_mine")
    try:
        return list_identities(plan_arrays(make(module), ROWS[:4]))
    finally:
        for name in texts:
            sys.modules.pop(Path(name).stem, None)


def edit(file: str, before: str, after: str) -> dict[str, str]:
    assert before in MODULES[file]
    return {**MODULES, file: MODULES[file].replace(before, after, 1)}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_users_module_counts_with_what_it_imports(function: str, folder: Path) -> None:
    """The changes act on no input that is asked."""
    make = FUNCTIONS[function]
    before = plan(folder, MODULES, make)
    assert not plan(folder, edit("arrays_of_mine.py", "EDGE = 9.0", "EDGE = 8.0"), make) & before
    assert (
        not plan(folder, edit("shared_arrays_of_mine.py", "np.exp(-z)", "np.exp(-z / 1)"), make)
        & before
    )
    assert not plan(folder, edit("late_arrays_of_mine.py", "3.0", "3.00"), make) & before
    # what nothing imports changes nothing, and nor does another plan
    assert plan(folder, edit("other_arrays_of_mine.py", "1", "2"), make) == before


#: how the estimator is made, and whether that is noticed; no input that is asked is near the edges
MADE: dict[str, tuple[Callable[[Any], Any], bool]] = {
    "an argument that acts on no input that is asked": (
        lambda module: module.Rule(edge=8.0).predict_proba,
        True,
    ),
    "a number of threads": (lambda module: module.Rule(n_jobs=2).predict_proba, False),
    "nothing": (lambda module: module.Rule().predict_proba, False),
}


@pytest.mark.parametrize("change", MADE)
def test_how_an_estimator_is_made(change: str, folder: Path) -> None:
    make, noticed = MADE[change]
    before = plan(folder, MODULES, lambda module: module.Rule().predict_proba)
    assert (plan(folder, MODULES, make) != before) == noticed


def test_an_estimator_of_an_installed_package_counts_by_its_answers_and_nothing_else() -> None:
    def fit(**options: Any) -> Any:
        return LogisticRegression(**options).fit(ROWS, KIND).predict_proba

    before = list_identities(plan_arrays(fit(), ROWS[:4]))
    assert list_identities(plan_arrays(fit(warm_start=True), ROWS[:4])) == before
    assert not list_identities(plan_arrays(fit(C=0.1), ROWS[:4])) & before


@pytest.mark.parametrize("explainer", ["tree_shap", "shap:TreeExplainer"])
def test_trees_of_other_weights_with_the_same_answers(explainer: str) -> None:
    pytest.importorskip("shap")

    def plan_tree(**options: Any) -> set[str]:
        tree = DecisionTreeClassifier(random_state=0, **options).fit(ROWS, KIND)
        return list_identities(plan_arrays(tree.predict_proba, ROWS[:4], explainer))

    before = plan_tree()
    assert plan_tree() == before
    assert not plan_tree(class_weight={0: 1, 1: 20}) & before


def test_a_function_of_arrays_is_asked_for_copies_of_its_neighbourhood() -> None:
    tree = DecisionTreeClassifier(random_state=0).fit(ROWS, KIND)
    answers = plan_arrays(tree.predict_proba, ROWS[:4]).manifest["answers"]
    asked = [set(entry) - {"identity"} for entry in answers.values()]
    assert asked == [{"inputs", "noisy copies"}, {"copies of the neighbourhood"}]


def test_a_function_of_arrays_within_a_module_counts_too(folder: Path) -> None:
    class Halved(torch.nn.Module):
        def __init__(self, inner: torch.nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = self.inner(x) / 2
            return logits

    def plan_halved(texts: dict[str, str]) -> set[str]:
        module = import_again(folder, texts, "arrays_of_mine")
        inner = standfast.Model.from_callable(module.Rule().predict_proba, bounds=(0.0, 1.0)).module
        return list_identities(plan_arrays(Halved(inner), ROWS[:4]))

    before = plan_halved(MODULES)
    assert plan_halved(MODULES) == before
    assert not plan_halved(edit("arrays_of_mine.py", "EDGE = 9.0", "EDGE = 8.0")) & before
