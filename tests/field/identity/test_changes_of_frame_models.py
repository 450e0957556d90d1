"""Which changes of an estimator of data frames, and of what it is made of, make another job; each changes one thing."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from planned_jobs import import_again, list_identities, plan_frame
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.tree import DecisionTreeClassifier

import standfast

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what it imports
    shap = pytest.importorskip("shap")

RANDOM = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        "income": RANDOM.normal(3000, 500, 60).round(),
        "debt": RANDOM.normal(2000, 500, 60).round(),
        "job": RANDOM.choice(["clerk", "nurse", "farmer"], 60),
    }
)
FRAME.loc[:3, "job"] = ["clerk", "nurse", "clerk", "nurse"]
NUMBERS = FRAME[["income", "debt"]]
KIND = (FRAME["income"] - FRAME["debt"] > 900).astype(int)

#: the user's modules: an estimator, what it imports, and what a file has that is loaded from its place
MODULES = {
    "rule_of_mine.py": """
import importlib.util
from pathlib import Path
import numpy as np
import shared_of_mine
from shared_of_mine import squash

LIMIT = 1.0

def read_place():
    spec = importlib.util.spec_from_file_location("place", Path(__file__).with_name("place_of_mine.py"))
    place = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(place)
    return place

class Rule(shared_of_mine.Base):
    classes_ = np.array(["no", "yes"])

    def __init__(self, most=1e9, n_jobs=1):
        self.most, self.n_jobs, self.asked = most, n_jobs, 0

    def predict_proba(self, X):
        self.asked += 1
        from late_of_mine import SCALE
        z = (X["income"] - X["debt"]).to_numpy() / SCALE + (X["job"] == "clerk").to_numpy() * LIMIT
        z = np.where((X["job"] == "farmer").to_numpy(), z, z)
        z = np.where(X["job"].isna().to_numpy(), z, z) + read_place().SHIFT
        z = np.where(X["income"].to_numpy() > self.most, -z, z)
        p = squash(z)
        return np.stack([1 - p, p], 1)

def halve(X):
    return X / 2
""",
    "shared_of_mine.py": """
import numpy as np

def squash(z):
    return 1 / (1 + np.exp(-z))

class Base:
    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(1)]
""",
    "late_of_mine.py": "SCALE = 1000\n",
    "place_of_mine.py": "SHIFT = 0.0\n",
    "other_of_mine.py": "VALUE = 1\n",
    "README.md": "a model\n",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return tmp_path


def plan_module(
    folder: Path, texts: dict[str, str], make: Callable[[Any], Any], **options: Any
) -> set[str]:
    module = import_again(folder, texts, "rule_of_mine")
    try:
        return list_identities(plan_frame(make(module), FRAME[:4], FRAME, **options))
    finally:
        for name in texts:
            sys.modules.pop(Path(name).stem, None)


def edit(file: str, before: str, after: str) -> dict[str, str]:
    assert before in MODULES[file]
    return {**MODULES, file: MODULES[file].replace(before, after, 1)}


#: texts after the change, and whether it is noticed; several act on no row that is explained, and change no answer
EDITS = {
    "what it says of a category that only searches visit": (
        edit("rule_of_mine.py", '"farmer").to_numpy(), z', '"farmer").to_numpy(), 2 * z'),
        True,
    ),
    "what it says of a missing cell": (
        edit("rule_of_mine.py", "isna().to_numpy(), z", "isna().to_numpy(), 2 * z"),
        True,
    ),
    "a constant of its module": (edit("rule_of_mine.py", "LIMIT = 1.0", "LIMIT = 1.1"), True),
    "a function that its module imports": (
        edit("shared_of_mine.py", "np.exp(-z)", "np.exp(-z / 1)"),
        True,
    ),
    "its base in another module": (edit("shared_of_mine.py", "argmax(1)", "argmax(axis=1)"), True),
    "a module that it imports when it is called": (edit("late_of_mine.py", "1000", "1000.0"), True),
    "a module that it loads from a place": (edit("place_of_mine.py", "0.0", "0.00"), True),
    "a function of its module that is not used": (edit("rule_of_mine.py", "X / 2", "X / 3"), True),
    "a module that nothing imports": (edit("other_of_mine.py", "1", "2"), False),
    "a file beside it that is no code": ({**MODULES, "README.md": "the model\n"}, False),
    "nothing, and all files are touched": (MODULES, False),
}


@pytest.mark.parametrize("change", EDITS)
def test_a_change_of_the_modules_of_an_estimator(change: str, folder: Path) -> None:
    texts, noticed = EDITS[change]
    before = plan_module(folder, MODULES, lambda module: module.Rule(), missing=True)
    for file in MODULES:
        os.utime(folder / file, (1, 1))
    after = plan_module(folder, texts, lambda module: module.Rule(), missing=True)
    assert (before != after) == noticed


def search(module: Any) -> Any:
    """The user's function is a step within a pipeline within a search."""
    steps = make_pipeline(
        FunctionTransformer(module.halve), DecisionTreeClassifier(max_depth=2, random_state=0)
    )
    return GridSearchCV(steps, {"decisiontreeclassifier__max_depth": [2]}, cv=2).fit(NUMBERS, KIND)


def test_a_function_within_a_step_of_a_pipeline_within_a_search(folder: Path) -> None:
    def plan(texts: dict[str, str]) -> set[str]:
        module = import_again(folder, texts, "rule_of_mine")
        return list_identities(plan_frame(search(module), NUMBERS[:4], NUMBERS))

    before = plan(MODULES)
    assert plan(MODULES) == before
    assert not plan(edit("rule_of_mine.py", "X / 2", "X / 2.0")) & before


def set_limit(module: Any) -> Any:
    module.LIMIT = 3.0
    return module.Rule()


#: how the estimator is made after the change
MADE: dict[str, tuple[Callable[[Any], Any], bool]] = {
    "an argument that acts on no row that is asked": (lambda module: module.Rule(most=2e9), True),
    "a number of threads": (lambda module: module.Rule(n_jobs=2), False),
    "a constant of the module, set at run time": (set_limit, True),
    "nothing": (lambda module: module.Rule(), False),
}


@pytest.mark.parametrize("change", MADE)
def test_how_an_estimator_is_made(change: str, folder: Path) -> None:
    make, noticed = MADE[change]
    before = plan_module(folder, MODULES, lambda module: module.Rule())
    assert (plan_module(folder, MODULES, make) != before) == noticed


def grow(depth: int = 3, **options: Any) -> Any:
    return DecisionTreeClassifier(max_depth=depth, random_state=0, **options).fit(NUMBERS, KIND)


def fit_forest(**options: Any) -> Any:
    return RandomForestClassifier(5, random_state=0, **options).fit(NUMBERS, KIND)


def fit_line(**options: Any) -> Any:
    return make_pipeline(FunctionTransformer(np.log1p), LogisticRegression(**options)).fit(
        NUMBERS, KIND
    )


#: an estimator of an installed package before and after, the explainer, and whether it is noticed
FITTED: dict[str, tuple[Callable[[], Any], Callable[[], Any], str, bool]] = {
    "the same tree": (grow, grow, "tree_shap", False),
    "another depth": (grow, lambda: grow(2), "occlusion", True),
    "pure leaves of other weights, whose trees are read": (
        lambda: grow(99),
        lambda: grow(99, class_weight={0: 1, 1: 20}, max_features=None),
        "tree_shap",
        True,
    ),
    "the same forest by two threads": (
        fit_forest,
        lambda: fit_forest(n_jobs=2),
        "occlusion",
        False,
    ),
    "another seed of a forest": (
        fit_forest,
        lambda: RandomForestClassifier(5, random_state=1).fit(NUMBERS, KIND),
        "occlusion",
        True,
    ),
    "the same line again": (fit_line, fit_line, "occlusion", False),
    "another penalty": (fit_line, lambda: fit_line(C=0.01), "occlusion", True),
    "words while it is fitted": (
        fit_line,
        lambda: fit_line(verbose=0, warm_start=True),
        "occlusion",
        False,
    ),
}


@pytest.mark.parametrize("change", FITTED)
def test_an_estimator_of_an_installed_package(change: str) -> None:
    first, second, explainer, noticed = FITTED[change]
    before, after = (
        list_identities(plan_frame(make(), NUMBERS[:4], NUMBERS, explainer))
        for make in (first, second)
    )
    assert (before != after) == noticed


def test_what_only_shows_values_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fit_line()
    before = list_identities(plan_frame(model, NUMBERS[:4], NUMBERS))
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    with (
        np.printoptions(precision=2),
        pd.option_context("display.precision", 1, "display.max_rows", 2),
    ):
        assert list_identities(plan_frame(model, NUMBERS[:4], NUMBERS)) == before


def test_explainers_that_read_trees_count_by_their_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another version of shap shares the same sum among the columns in another way."""
    model = grow()
    before = list_identities(plan_frame(model, NUMBERS[:4], NUMBERS, "tree_shap"))
    compute = shap.TreeExplainer.shap_values

    def move(self: Any, rows: Any, *values: Any, **options: Any) -> Any:
        shares = np.array(compute(self, rows, *values, **options))
        moved = 0.4 * np.abs(shares[:, 0])
        shares[:, 0] += moved
        shares[:, 1] -= moved
        return shares

    monkeypatch.setattr(shap.TreeExplainer, "shap_values", move)
    assert not list_identities(plan_frame(grow(), NUMBERS[:4], NUMBERS, "tree_shap")) & before
    monkeypatch.undo()
    assert list_identities(plan_frame(grow(), NUMBERS[:4], NUMBERS, "tree_shap")) == before


def test_a_model_of_frames_is_asked_for_every_category_and_for_copies_of_the_neighbourhood() -> (
    None
):
    class Rule:
        classes_ = np.array(["no", "yes"])

        def predict_proba(self, X: pd.DataFrame) -> Any:
            p = (X["job"] == "farmer").to_numpy() * 0.5 + 0.2
            return np.stack([1 - p, p], 1)

    plan = plan_frame(Rule(), FRAME[:4], FRAME)
    asked = [set(entry) - {"identity"} for entry in plan.manifest["answers"].values()]
    assert asked == [{"inputs", "noisy copies", "cells"}, {"copies of the neighbourhood"}]
    answers = next(iter(plan.manifest["answers"].values()))
    assert len(set(answers["inputs"].split())) == 1  # none of the rows is a farmer
    assert len(set(answers["cells"].split())) == 2


def test_a_frame_of_numbers_alone_has_no_cells_to_ask_for() -> None:
    answers = plan_frame(grow(), NUMBERS[:4], NUMBERS).manifest["answers"]
    asked = [set(entry) - {"identity"} for entry in answers.values()]
    assert asked == [{"inputs", "noisy copies"}, {"copies of the neighbourhood"}]
    around = standfast.neighbourhoods.TableChanges({"income": "5%"})
    metric = standfast.metrics.MaxSensitivity(around, samples=2)
    found = standfast.evaluate(
        grow(),
        "occlusion",
        NUMBERS[:4],
        {"m": metric},
        reference=NUMBERS,
        sanity=False,
        controls=False,
        progress=False,
    )
    assert found.failures == []
