"""Changes of studies of data frames: of estimators, pipelines and trees, of explainers and metrics, of study files.

Several act only on cells that no explained row has, and that searches visit.
"""

from __future__ import annotations

from changes import AGAIN, NAMED, NOTHING, RUN_STUDY, WITHOUT_EFFECT, Change, Expected, Scene, edit

ROWS = """
import numpy as np
import pandas as pd
import standfast
from standfast.metrics import MaxSensitivity, WorstCase
from standfast.neighbourhoods import TableChanges

random = np.random.default_rng(0)
X = pd.DataFrame({
    "income": random.normal(3000, 500, 60).round(),
    "debt": random.normal(2000, 500, 60).round(),
    "job": random.choice(["clerk", "nurse", "farmer"], 60),
})
X.loc[:3, "job"] = ["clerk", "nurse", "clerk", "nurse"]  # the explained rows have no farmer
y = (X["income"] - X["debt"] > 900).map({True: "yes", False: "no"})
"""
EVALUATE = """
changes = TableChanges({"income": "5%", "debt": "5%", "job": {"categories": ["clerk", "nurse", "farmer"], "rate": 0.5}})
metrics = {"w": WorstCase(changes, similarity="cosine", budget=40), "m": MaxSensitivity(changes, samples=10)}
found = standfast.evaluate(
    model, ["occlusion"], X[:4], metrics, reference=X, sanity=False, controls=False, progress=False
)
"""

# The user's estimator

RULE = """
import importlib.util
import os
from functools import cache, partial
from pathlib import Path

import numpy as np

import base_of_mine
import names_of_mine
from tools_of_mine import squash

LIMIT = 1.0
BASE = 0.5
SHAPES = {"farmer": lambda z: z * 1.0}

def read_place():
    spec = importlib.util.spec_from_file_location("place", Path(__file__).with_name("place_of_mine.py"))
    place = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(place)
    return place

@cache
def find_bonus():
    return 2 * BASE

def shift(z, by):
    return z + by

def make_shift(by):
    def move(z):
        return z + by
    return move

class Rule(base_of_mine.Base):
    classes_ = np.array(["no", "yes"])
    bonus = 0.3

    def __init__(self, farmer=1.0, weights=None, move=None, n_jobs=1, verbose=0):
        self.farmer, self.weights, self.move = farmer, weights, move
        self.n_jobs, self.verbose = n_jobs, verbose
        self.late = 1.0

    @property
    def share(self):
        return 1.0

    def predict_proba(self, X):
        from late_of_mine import SCALE
        income, debt = X["income"].to_numpy(), X["debt"].to_numpy()
        is_farmer = (X["job"] == "farmer").to_numpy()
        z = (income - debt) / SCALE + (X["job"] == "clerk").to_numpy() * LIMIT * find_bonus() + self.bonus
        z = np.where(is_farmer, z, z)
        z = np.where(is_farmer, SHAPES["farmer"](z) * self.farmer * self.share, z)
        z = z + is_farmer * (getattr(names_of_mine, "FAR" + "MER") + debt / 1000 * read_place().SHIFT)
        if self.weights is not None:
            z = z + is_farmer * debt * self.weights[1]
        if self.move is not None:
            z = np.where(is_farmer, self.move(z), z)
        z = z * np.where(is_farmer, float(os.environ.get("RULE_OF_FARMERS", "1")), 1)
        is_rare = is_farmer & (income % 50 == int(os.environ.get("RULE_OF_FEW", "-1")))
        z = np.where(is_rare, -z, z)
        return self.to_pair(squash(z * np.where(is_farmer, self.late, 1)))
"""
BASE = """
import numpy as np

class Base:
    def to_pair(self, p):
        return np.stack([1 - p, p], 1)

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(1)]
"""
TOOLS = """
import numpy as np

def squash(z):
    return 1 / (1 + np.exp(-z))
"""
RULE_FILES = {
    "script.py": f"{ROWS}\nfrom rule_of_mine import *\nfrom rule_of_mine import Rule\nmodel = Rule()\n{EVALUATE}",
    "rule_of_mine.py": RULE,
    "base_of_mine.py": BASE,
    "tools_of_mine.py": TOOLS,
    "late_of_mine.py": "from later_of_mine import SCALE\n",
    "later_of_mine.py": "SCALE = 1000\n",
    "place_of_mine.py": "SHIFT = 0.0\n",
    "names_of_mine.py": "FARMER = 0.0\n",
    "nobody_imports.py": "VALUE = 1\n",
}


def make_rule(lines: str, expected: Expected = AGAIN) -> Change:
    """What follows after the estimator was made."""
    return edit(RULE_FILES, "script.py", "model = Rule()\n", f"model = Rule()\n{lines}\n", expected)


def edit_rule(old: str, new: str) -> Change:
    """A change of the module of the estimator."""
    return edit(RULE_FILES, "rule_of_mine.py", old, new)


RULE_CHANGES = {
    "what it says of farmers, whom only searches visit": edit_rule(
        "(is_farmer, z, z)", "(is_farmer, debt / 500 - 4, z)"
    ),
    "a constant of its module": edit_rule("LIMIT = 1.0", "LIMIT = 1.2"),
    "a constant behind a cached function": edit_rule("BASE = 0.5", "BASE = 0.7"),
    "a lambda in a dictionary": edit_rule("lambda z: z * 1.0", "lambda z: z * 1.5"),
    "an attribute of its class": edit_rule("bonus = 0.3", "bonus = 0.6"),
    "a property": edit_rule("return 1.0", "return 1.4"),
    "the default of an argument": edit_rule("farmer=1.0", "farmer=1.3"),
    "a method of its base in another module": edit(
        RULE_FILES, "base_of_mine.py", "[1 - p, p]", "[1 - p**2, p**2]"
    ),
    "a function of a module that it imports": edit(
        RULE_FILES, "tools_of_mine.py", "np.exp(-z)", "np.exp(-z / 2)"
    ),
    "a module imported by one that is imported late": edit(
        RULE_FILES, "later_of_mine.py", "1000", "800"
    ),
    "a file that is loaded from its place": edit(RULE_FILES, "place_of_mine.py", "0.0", "-2.0"),
    "a module whose constant is named when it runs": edit(
        RULE_FILES, "names_of_mine.py", "0.0", "1.5"
    ),
    "an argument": make_rule("model = Rule(farmer=2.0)"),
    "an array as an argument": make_rule("model = Rule(weights=np.array([0.0, -0.002]))"),
    "a closure as an argument": make_rule("model = Rule(move=make_shift(2.0))"),
    "a partial as an argument": make_rule("model = Rule(move=partial(shift, by=2.0))"),
    "a subclass in the script": make_rule(
        "class Mine(Rule):\n    def to_pair(self, p):\n        return super().to_pair(p * 0.9)\nmodel = Mine()",
    ),
    "a method of the object that is replaced": make_rule(
        "plain = model.predict_proba\nmodel.predict_proba = lambda rows: plain(rows) * 0.5 + 0.25"
    ),
    "a method of the class that is replaced": make_rule(
        "Rule.predict_proba = lambda self, X, plain=Rule.predict_proba: plain(self, X) * 0.5 + 0.25"
    ),
    "a constant of its module, set from outside": make_rule(
        "import rule_of_mine\nrule_of_mine.LIMIT = 2.0"
    ),
    "an attribute set afterwards, which acts on farmers": make_rule("model.late = 2.0"),
    "a variable of the environment, which acts on farmers": Change(
        {}, AGAIN, {"RULE_OF_FARMERS": "2"}
    ),
    "a variable of the environment, which acts on a few": Change({}, NAMED, {"RULE_OF_FEW": "7"}),
    # without effect
    "a number of threads": make_rule("model = Rule(n_jobs=2)", NOTHING),
    "words": make_rule("model = Rule(verbose=1)", NOTHING),
    "print options": make_rule(
        "np.set_printoptions(precision=2)\npd.set_option('display.precision', 1)", NOTHING
    ),
    "a function of the script that nothing uses": make_rule("def other(z):\n    return z", NOTHING),
    "a comment in the script": make_rule("# the model", NOTHING),
    "another index of the rows": make_rule("X.index = X.index + 100", NOTHING),
    "the random state of the process": make_rule("np.random.seed(5)", NOTHING),
    "another module is imported": make_rule("import colorsys", NOTHING),
    **WITHOUT_EFFECT,
}

# Pipelines

PIPELINE = """
from functools import partial
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestClassifier, VotingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import FixedThresholdClassifier, GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

TOP = 1e9

def clip(rows, most=1e9):
    return rows.clip(upper=min(most, TOP))

class Logs(TransformerMixin, BaseEstimator):
    def __init__(self, add=1.0):
        self.add = add

    def fit(self, rows, labels=None):
        self.columns_ = list(rows.columns)
        return self

    def transform(self, rows):
        return np.log(rows + self.add)

    def get_feature_names_out(self, names=None):
        return np.array(self.columns_)

clipped = make_pipeline(FunctionTransformer(clip, kw_args={"most": 1e9}), StandardScaler())
columns = ColumnTransformer([
    ("job", OneHotEncoder(sparse_output=False, handle_unknown="ignore"), ["job"]),
    ("income", clipped, ["income"]),
    ("debt", make_pipeline(Logs(add=1.0), StandardScaler()), ["debt"]),
])
final = LogisticRegression(C=1.0)
fitted, labels = X[4:], y[4:]
model = make_pipeline(columns, final).fit(fitted, labels)
"""
PIPELINE_FILES = {
    "script.py": f"{ROWS}{PIPELINE}\n# what follows\n{EVALUATE}",
    "nobody_imports.py": "VALUE = 1\n",
}


def edit_pipeline(old: str, new: str, expected: Expected = AGAIN) -> Change:
    """A change of the script that fits the pipeline."""
    return edit(PIPELINE_FILES, "script.py", old, new, expected)


def after_fit(lines: str, expected: Expected = AGAIN) -> Change:
    """What follows after the pipeline was fitted."""
    return edit_pipeline("# what follows", lines, expected)


PIPELINE_CHANGES = {
    "the text of a function of a step": edit_pipeline(
        "rows.clip(upper=min(most, TOP))", "rows.clip(upper=2500)"
    ),
    "a constant that this function names": edit_pipeline("TOP = 1e9", "TOP = 2500"),
    "an argument of this function": edit_pipeline('"most": 1e9}', '"most": 2500}'),
    "an argument of a step": edit_pipeline("Logs(add=1.0)", "Logs(add=5000.0)"),
    "the method of a step": edit_pipeline("np.log(rows + self.add)", "np.sqrt(rows + self.add)"),
    "a constant that a function names, after it was fitted": after_fit("TOP = 3100.0"),
    "an argument of a step, after it was fitted": after_fit(
        'model[0].named_transformers_["debt"][0].set_params(add=50.0)'
    ),
    "a coefficient, after it was fitted": after_fit("model[-1].coef_[0, 0] += 0.5"),
    "a penalty": edit_pipeline("C=1.0", "C=0.1"),
    "another classifier": edit_pipeline(
        "final = LogisticRegression(C=1.0)", "final = RandomForestClassifier(5, random_state=0)"
    ),
    "rows that it is fitted with": edit_pipeline("X[4:], y[4:]", "X[10:], y[10:]"),
    "weights of classes": edit_pipeline("C=1.0", 'class_weight="balanced"'),
    "a threshold": after_fit(
        "model = FixedThresholdClassifier(model, threshold=0.7, response_method='predict_proba').fit(fitted, labels)"
    ),
    "a search around it": after_fit(
        "model = GridSearchCV(model, {'logisticregression__C': [0.01]}, cv=2).fit(fitted, labels)"
    ),
    "a vote of two": after_fit(
        "forest = make_pipeline(columns, RandomForestClassifier(5, random_state=0))\n"
        "model = VotingClassifier([('a', model), ('b', forest)], voting='soft').fit(fitted, labels)"
    ),
    "what it does with few of a category": edit_pipeline(
        'handle_unknown="ignore"', 'handle_unknown="infrequent_if_exist", max_categories=2'
    ),
    # arguments of the call
    "a cell of the reference": after_fit('X.loc[40, "debt"] = 9000.0'),
    "a cell of an explained row": after_fit('X.loc[0, "income"] += 100'),
    "the job of an explained row": after_fit('X.loc[0, "job"] = "nurse"'),
    "how far a number moves": edit_pipeline('"income": "5%"', '"income": "6%"'),
    "a column that stays": edit_pipeline('"debt": "5%", ', ""),
    "categories that may come": edit_pipeline(
        '["clerk", "nurse", "farmer"], "rate"', '["clerk", "nurse"], "rate"'
    ),
    "the rate of changes": edit_pipeline('"rate": 0.5', '"rate": 0.9'),
    "the budget": edit_pipeline("budget=40", "budget=9"),
    "the similarity": edit_pipeline('similarity="cosine"', 'similarity="pearson"'),
    "the number of draws": edit_pipeline("samples=10", "samples=11"),
    "the explainer": edit_pipeline('["occlusion"]', '["kernel_shap:samples=20"]'),
    "the seed": edit_pipeline("progress=False", "progress=False, seed=1"),
    "the targets": edit_pipeline("progress=False", "progress=False, targets=0"),
    # without effect
    "words": after_fit("model.set_params(verbose=True)", NOTHING),
    "the cells of rows that nothing reads": edit_pipeline(
        "fitted, labels = X[4:], y[4:]", "other = X[4:] * 2\nfitted, labels = X[4:], y[4:]", NOTHING
    ),
    "how scikit-learn shows estimators": after_fit(
        "import sklearn\nsklearn.set_config(display='text')", NOTHING
    ),
    "it has predicted before": after_fit("model.predict(X)", NOTHING),
    "it was fitted again with the same rows": after_fit("model.fit(fitted, labels)", NOTHING),
    "it was pickled and loaded": after_fit(
        "import pickle\nmodel[-1].__dict__.update(pickle.loads(pickle.dumps(model[-1])).__dict__)",
        NOTHING,
    ),
    **{name: WITHOUT_EFFECT[name] for name in ("nothing", "two threads", "the folder is moved")},
}

# Trees

TREES = """
from sklearn.ensemble import RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier
N = X[["income", "debt"]]
kind = (N["income"] - N["debt"] > 900).astype(int)
model = DecisionTreeClassifier(random_state=0).fit(N, kind)
# what follows
changes = TableChanges({"income": "5%", "debt": "5%"})
metrics = {"m": MaxSensitivity(changes, samples=10), "s": "aopc"}
found = standfast.evaluate(
    model, ["tree_shap"], N[:6], metrics, reference=N, sanity=False, controls=False, progress=False
)
"""
TREE_FILES = {"script.py": ROWS + TREES}
NEWER_SHAP = """
import shap
plain = shap.TreeExplainer.shap_values
def newer(self, rows, *values, **options):
    shares = np.array(plain(self, rows, *values, **options))
    moved = 0.4 * np.abs(shares[:, 0])
    shares[:, 0] += moved
    shares[:, 1] -= moved
    return shares
shap.TreeExplainer.shap_values = newer
"""


def grow(options: str, kind: str = "DecisionTreeClassifier") -> Change:
    return edit(
        TREE_FILES,
        "script.py",
        "DecisionTreeClassifier(random_state=0)",
        f"{kind}(random_state=0, {options})",
    )


TREE_CHANGES = {
    "weights of classes, with pure leaves": grow("class_weight={0: 1, 1: 20}"),
    "the depth": grow("max_depth=2"),
    "the rows of a leaf": grow("min_samples_leaf=5"),
    "a forest": grow("n_estimators=5", "RandomForestClassifier"),
    "shap has other values": edit(TREE_FILES, "script.py", "# what follows", NEWER_SHAP),
    "a background": edit(
        TREE_FILES, "script.py", '"tree_shap"', '"tree_shap:background=reference"'
    ),
    "nothing": WITHOUT_EFFECT["nothing"],
}

# Explainers, similarities and metrics of the user's

MINE = """
from dataclasses import dataclass
from standfast.similarity import Similarity
from mine_of_mine import explain
POWER = 1.0

def weigh(maps):
    return maps.abs().flatten(1) ** POWER

@dataclass(frozen=True)
class Share(Similarity):
    name = "share"
    low, high, range = 0.4, 0.6, (0.0, 1.0)
    def compare(self, a, b):
        a, b = weigh(a) + 1e-6, weigh(b) + 1e-6
        return (a * b).sum(1) / (a.norm(dim=1) * b.norm(dim=1))

class Falling(MaxSensitivity):
    name = "falling"
    def evaluate(self, call):
        result = super().evaluate(call)
        result.value.mul_(1.0 * float(open("factor.txt").read()))
        return result

class Rule:
    classes_ = np.array(["no", "yes"])
    def predict_proba(self, X):
        z = (X["income"] - X["debt"]).to_numpy() / 1000 + (X["job"] == "clerk").to_numpy()
        p = 1 / (1 + np.exp(-z))
        return np.stack([1 - p, p], 1)
    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(1)]

model = Rule()
"""
EVALUATE_MINE = """
changes = TableChanges({"income": "5%", "debt": "5%", "job": "category"})
metrics = {"w": WorstCase(changes, similarity=Share(), budget=30), "m": Falling(changes, samples=10)}
found = standfast.evaluate(
    model, {"mine": explain}, X[:4], metrics, reference=X, sanity=False, controls=False, progress=False
)
"""
EXPLAIN = """
import numpy as np
from pathlib import Path
from factors_of_mine import FACTOR

def explain(pipeline, frame, classes):
    from late_of_mine import ADD
    scores = pipeline.predict_proba(frame)[:, 1]
    maps = np.stack([scores + ADD, scores**2 * FACTOR, (frame["job"] == "clerk") * 1.0 * WEIGHT], 1)
    return maps

WEIGHT = 1.0
"""
MINE_FILES = {
    "script.py": ROWS + MINE + EVALUATE_MINE,
    "mine_of_mine.py": EXPLAIN,
    "factors_of_mine.py": "FACTOR = 1.0\n",
    "late_of_mine.py": "ADD = 0.0\n",
    "factor.txt": "1.0",
}
MINE_CHANGES = {
    "a constant of an explainer": edit(
        MINE_FILES, "mine_of_mine.py", "WEIGHT = 1.0", "WEIGHT = 0.3"
    ),
    "the text of an explainer": edit(MINE_FILES, "mine_of_mine.py", "scores**2", "scores**3"),
    "what an explainer imports": edit(MINE_FILES, "factors_of_mine.py", "1.0", "2.0"),
    "what an explainer imports late": edit(MINE_FILES, "late_of_mine.py", "0.0", "0.5"),
    "what a similarity of the script names": edit(
        MINE_FILES, "script.py", "POWER = 1.0", "POWER = 2.0"
    ),
    "a helper of a similarity": edit(
        MINE_FILES, "script.py", "maps.abs().flatten(1)", "(maps * 2 + 1).abs().flatten(1)"
    ),
    "a metric of the script": edit(MINE_FILES, "script.py", "mul_(1.0 *", "mul_(2.0 *"),
    "a file that a metric reads": Change({"factor.txt": "2.0"}, NAMED),
    "a rule of the script": edit(MINE_FILES, "script.py", "/ 1000", "/ 500"),
    "an explainer that is wrapped in the script": edit(
        MINE_FILES,
        "script.py",
        "model = Rule()",
        "model = Rule()\nplain = explain\ndef explain(*all_of_them):\n    return plain(*all_of_them) ** 2",
    ),
    "a lambda as an explainer": edit(
        MINE_FILES,
        "script.py",
        '{"mine": explain}',
        '{"mine": lambda pipeline, frame, classes: explain(pipeline, frame, classes) ** 2}',
    ),
    "nothing": WITHOUT_EFFECT["nothing"],
    "the folder is moved": WITHOUT_EFFECT["the folder is moved"],
}

# An explainer that is an object, with what the script holds

OBJECT = """
from collections import namedtuple
from enum import Enum
from functools import wraps
from types import SimpleNamespace
import letters_of_mine as letters

SHARES = pd.DataFrame({"column": ["income", "debt", "job"], "share": [1.0, 2.0, 3.0]})
SETTINGS = {"power": [1.0, 2.0], "names": {"a", "b"}}
PLACE = SimpleNamespace(offset=0.0)
Pair = namedtuple("Pair", ["first", "second"])
PAIR = Pair(1.0, 2.0)

class Sign(Enum):
    PLUS = 1.0

def doubled(function):
    @wraps(function)
    def run(*values):
        return 1.0 * function(*values)
    return run

@doubled
def weigh(scores):
    return scores * SHARES["share"].to_numpy() ** SETTINGS["power"][0] + PLACE.offset

HANDLERS = {"weigh": weigh}

class Table:
    def __init__(self, scale):
        self.scale = scale

    @staticmethod
    def move(maps):
        return maps + 0.0

    @classmethod
    def make(cls):
        return cls(1.0)

class Explainer:
    limit = 1.0

    def __init__(self, weight, table):
        self.weight, self.table = weight, table

    def __call__(self, pipeline, frame, classes):
        scores = pipeline.predict_proba(frame)[:, 1:] + np.array([[0.0, 0.1, 0.2]])
        maps = HANDLERS["weigh"](scores * [1.0, self.weight, self.limit]) * Sign.PLUS.value * PAIR.second
        maps = self.table.move(maps) * [self.table.scale, 1.0, 1.0]
        return maps * [1.0, 1.0, len(letters.ALPHABET)]

explain = Explainer(1.0, Table.make())
# what follows
"""
OBJECT_FILES = {
    "script.py": (ROWS + MINE + OBJECT + EVALUATE_MINE).replace(
        "from mine_of_mine import explain\n", ""
    ),
    "letters_of_mine.py": 'ALPHABET = "abc"\n',
    "factor.txt": "1.0",
}


def edit_object(old: str, new: str, expected: Expected = AGAIN) -> Change:
    """A change of the script of an explainer that is an object."""
    return edit(OBJECT_FILES, "script.py", old, new, expected)


OBJECT_CHANGES = {
    "what it was made with": edit_object("Explainer(1.0,", "Explainer(2.0,"),
    "an attribute set afterwards": edit_object("# what follows", "explain.weight = 3.0"),
    "an attribute of its class": edit_object("limit = 1.0", "limit = 2.0"),
    "the class method that makes its part": edit_object("cls(1.0)", "cls(2.0)"),
    "a static method of its part": edit_object("maps + 0.0", "maps + 1.0"),
    "a table of the script": edit_object("[1.0, 2.0, 3.0]", "[1.0, 2.0, 9.0]"),
    "a list in a dictionary of the script": edit_object('"power": [1.0', '"power": [2.0'),
    "an entry set afterwards": edit_object("# what follows", 'SETTINGS["power"][0] = 3.0'),
    "a namespace of the script": edit_object("offset=0.0", "offset=0.7"),
    "a named tuple": edit_object("Pair(1.0, 2.0)", "Pair(1.0, -2.0)\nPLACE.offset = 0.5"),
    "an enumeration": edit_object("PLUS = 1.0", "PLUS = 5.0\n    OTHER = 2.0\nPLACE.offset = 0.2"),
    "what a decorator does": edit_object("1.0 * function", "0.5 + function"),
    "a function in a dictionary": edit_object(
        'HANDLERS = {"weigh": weigh}', 'HANDLERS = {"weigh": lambda scores: scores**2}'
    ),
    "a module by another name": edit(OBJECT_FILES, "letters_of_mine.py", "abc", "abcdefgh"),
    "an entry of a set that nothing reads": edit_object(
        "# what follows", "unused = {1, 2}", NOTHING
    ),
    "the order in which a set was made": edit_object('{"a", "b"}', '{"b", "a"}', NOTHING),
    "it was called before": edit_object("# what follows", "explain(model, X[:2], [0, 0])", NOTHING),
    "nothing": WITHOUT_EFFECT["nothing"],
    "the folder is moved": WITHOUT_EFFECT["the folder is moved"],
}

# Study files

STUDY = """
samples: 4
samples_per_job: 4
sanity: false
controls: false
data:
  rows: {table: rows.csv, label: paid, reference: train.csv}
models:
  m: {function: "fit_of_mine:fit"}
explainers: [occlusion]
metrics:
  - worst_case: {similarity: cosine, budget: 40}
  - max_sensitivity: {samples: 10}
neighbourhood: {table: {changes: {income: "5%", debt: "5%", job: category}}}
"""
FIT = """
import numpy as np
import pandas as pd
from tools_of_mine import squash

class Rule:
    classes_ = np.array(["no", "yes"])

    def __init__(self, scale=1000):
        self.scale = scale

    def predict_proba(self, X):
        z = (X["income"] - X["debt"]).to_numpy() / self.scale + (X["job"] == "clerk").to_numpy() * 0.5
        z = np.where((X["job"] == "farmer").to_numpy(), z, z)
        p = squash(z)
        return np.stack([1 - p, p], 1)

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(1)]

def fit(scale=1000):
    return Rule(scale)
"""
MAKE = f"""{ROWS}
X["paid"] = y
X[:4].to_csv("rows.csv", index=False)
X[4:].to_csv("train.csv", index=False)
"""
STUDY_FILES = {
    "make.py": MAKE,
    "study.yaml": STUDY,
    "fit_of_mine.py": FIT,
    "tools_of_mine.py": TOOLS,
    "script.py": RUN_STUDY,
    "nobody_imports.py": "VALUE = 1\n",
}


def edit_study(old: str, new: str, expected: Expected = AGAIN) -> Change:
    """A change of the study file."""
    return edit(STUDY_FILES, "study.yaml", old, new, expected)


STUDY_CHANGES = {
    "the file of the function, for farmers": edit(
        STUDY_FILES, "fit_of_mine.py", "z, z)", "X['debt'] / 500 - 4.2, z)"
    ),
    "what this file imports": edit(STUDY_FILES, "tools_of_mine.py", "np.exp(-z)", "np.exp(-z / 2)"),
    "an option of the function": edit_study('fit"}', 'fit", options: {scale: 700}}'),
    "a cell of the table": Change(
        {"make.py": MAKE.replace('X["paid"]', 'X.loc[0, "income"] += 99\nX["paid"]')}
    ),
    "a cell of the reference": Change(
        {"make.py": MAKE.replace('X["paid"]', 'X.loc[40, "debt"] = 9000.0\nX["paid"]')}
    ),
    "a column that stays": edit_study('income: "5%", ', ""),
    "the change of a column": edit_study('income: "5%"', 'income: "7%"'),
    "the budget": edit_study("budget: 40", "budget: 9"),
    "the seed": edit_study("samples: 4\n", "samples: 4\nseed: 3\n"),
    "the explainer": edit_study("[occlusion]", '["shapley_sampling:permutations=2"]'),
    # without effect
    "a title": edit_study("samples: 4\n", "samples: 4\ntitle: another\n", NOTHING),
    "a comment": edit_study("samples: 4\n", "# of four\nsamples: 4\n", NOTHING),
    "a table that nothing reads": Change({"notes.csv": "a,b\n1,2\n"}, NOTHING),
    **WITHOUT_EFFECT,
}

# A stored pipeline

STORE = f"""{ROWS}
import joblib
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder
from steps_of_mine import Logs, halve

columns = ColumnTransformer([
    ("job", OneHotEncoder(sparse_output=False), ["job"]),
    ("debt", Logs(), ["debt"]),
    ("income", FunctionTransformer(halve), ["income"]),
])
model = make_pipeline(columns, LogisticRegression(C=1.0)).fit(X, y)
joblib.dump(model, "pipeline.joblib")
X["paid"] = y
X[:4].to_csv("rows.csv", index=False)
X[4:].to_csv("train.csv", index=False)
"""
STEPS = """
import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin

class Logs(TransformerMixin, BaseEstimator):
    def fit(self, rows, labels=None):
        return self
    def transform(self, rows):
        return np.log(rows)

def halve(rows):
    return rows / 2000
"""
STORED_FILES = {
    "make.py": STORE,
    "study.yaml": STUDY.replace(
        'function: "fit_of_mine:fit"', "path: pipeline.joblib, trust: true"
    ),
    "steps_of_mine.py": STEPS,
    "script.py": RUN_STUDY,
}
STORED_CHANGES = {
    "it was fitted with another penalty": edit(STORED_FILES, "make.py", "C=1.0", "C=0.01"),
    "a method of a step of the user's": edit(
        STORED_FILES, "steps_of_mine.py", "np.log(rows)", "np.sqrt(rows) / 10"
    ),
    "a function of a step of the user's": edit(
        STORED_FILES, "steps_of_mine.py", "rows / 2000", "rows / 1000"
    ),
    "nothing": WITHOUT_EFFECT["nothing"],
    "all files are touched": WITHOUT_EFFECT["all files are touched"],
    "a README": WITHOUT_EFFECT["a README"],
    "the folder is moved": WITHOUT_EFFECT["the folder is moved"],
    "it is stored again": Change({"make.py": STORE + "# again\n"}, NOTHING),
}


def list_scenes() -> dict[str, Scene]:
    """All studies by name."""
    return {
        "an estimator of the user's": Scene(RULE_FILES, RULE_CHANGES),
        "a pipeline": Scene(PIPELINE_FILES, PIPELINE_CHANGES),
        "trees": Scene(TREE_FILES, TREE_CHANGES),
        "explainers and metrics of the user's": Scene(MINE_FILES, MINE_CHANGES),
        "an explainer that is an object": Scene(OBJECT_FILES, OBJECT_CHANGES),
        "a study file": Scene(STUDY_FILES, STUDY_CHANGES),
        "a stored pipeline": Scene(STORED_FILES, STORED_CHANGES),
    }
