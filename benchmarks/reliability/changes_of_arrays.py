"""Changes of studies in Python: of functions and estimators of arrays, and of modules and metrics of a script."""

from __future__ import annotations

from changes import AGAIN, NAMED, NOTHING, WITHOUT_EFFECT, Change, Expected, Scene, edit

# Functions and estimators of arrays

ARRAYS = """
from functools import partial
import numpy as np
import torch
import standfast
from standfast.metrics import LocalLipschitz, WorstCase
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.tree import DecisionTreeClassifier
from rule_of_mine import Rule, halve

random = np.random.default_rng(0)
rows = random.random((40, 4)).astype(np.float32)
kinds = (rows[:, 0] + rows[:, 1] > 1).astype(int)
EDGE = 9.0
DTYPES = {np.dtype("float32"): torch.float32, np.dtype("float64"): torch.float64}

def score(values, power=1.0):
    return np.where(values[:, 0] > EDGE, -1, 1) * (values[:, 0] - values[:, 1]) * power

def predict(values):
    p = 1 / (1 + np.exp(-4 * score(values)))
    return np.stack([1 - p, p], 1)

tree = DecisionTreeClassifier(random_state=0).fit(rows, kinds)
line = make_pipeline(FunctionTransformer(halve), StandardScaler(), LogisticRegression(C=1.0)).fit(rows, kinds)
function, explainer, output = FUNCTION
# what follows
options = {"reference": torch.tensor(rows), "dtype": DTYPES[rows.dtype]}
model = standfast.Model.from_callable(function, bounds=(0.0, 1.0), output=output, **options)
metrics = {"w": WorstCase(standfast.LinfBall(0.1), similarity="cosine", budget=20), "a": "aopc"}
metrics["l"] = LocalLipschitz(standfast.LinfBall(0.1), samples=4)
found = standfast.evaluate(
    model, [explainer], torch.tensor(rows[:4]), metrics, sanity=False, controls=False, progress=False
)
"""
RULE = """
import os
import numpy as np
from tools_of_mine import squash

LIMIT = 9.0

class Rule:
    classes_ = np.array([0, 1])

    def __init__(self, edge=9.0, n_jobs=1):
        self.edge, self.n_jobs, self.late = edge, n_jobs, 9.0

    def predict_proba(self, rows):
        from late_of_mine import SCALE
        z = (rows[:, 0] - rows[:, 1]) * SCALE + rows[:, 2] * 0.5
        for edge in (self.edge, LIMIT, self.late, float(os.environ.get("RULE_EDGE", "9"))):
            z = np.where((rows > edge).any(1), -z, z)
        p = squash(z)
        return np.stack([1 - p, p], 1)

    def predict(self, rows):
        return self.predict_proba(rows).argmax(1)

def halve(rows):
    return rows / 2
"""
FILES = {
    "rule_of_mine.py": RULE,
    "tools_of_mine.py": "import numpy as np\n\ndef squash(z):\n    return 1 / (1 + np.exp(-z))\n",
    "late_of_mine.py": "SCALE = 3.0\n",
    "nobody_imports.py": "VALUE = 1\n",
}


def write_files(function: str) -> dict[str, str]:
    """The files of a study of a function of arrays."""
    return {"script.py": ARRAYS.replace("FUNCTION", function), **FILES}


FUNCTION_FILES = write_files('predict, "occlusion", "probability"')
RULE_FILES = write_files('Rule().predict_proba, "occlusion", "probability"')
LINE_FILES = write_files('line.predict_proba, "occlusion", "probability"')
TREE_FILES = write_files('tree.predict_proba, "tree_shap", "probability"')
SHAP_FILES = write_files('tree.predict_proba, "shap:TreeExplainer", "probability"')


def edit_function(old: str, new: str, expected: Expected = AGAIN) -> Change:
    """A change of the script with a function."""
    return edit(FUNCTION_FILES, "script.py", old, new, expected)


def edit_rule(old: str, new: str) -> Change:
    """A change of the module of an estimator."""
    return edit(RULE_FILES, "rule_of_mine.py", old, new)


def make_rule(rule: str, expected: Expected = AGAIN) -> Change:
    """The estimator is made in another way."""
    return edit(
        RULE_FILES, "script.py", "# what follows", f"function = {rule}.predict_proba", expected
    )


FUNCTION_CHANGES = {
    "its text": edit_function("exp(-4 * score", "exp(-3 * score"),
    "the text of a helper, where few inputs are": edit_function("> EDGE, -1", "> EDGE - 8.2, -1"),
    "a constant that a helper names, where few inputs are": edit_function(
        "EDGE = 9.0", "EDGE = 0.7"
    ),
    "a default of a helper": edit_function("power=1.0", "power=2.0"),
    "a lambda around it": edit_function(
        "# what follows", "function = lambda values: predict(values) * 0.9 + 0.05"
    ),
    "a partial of it": edit_function(
        "# what follows", "function, output = partial(score, power=3.0), 'logit'"
    ),
    "what it returns": edit_function("# what follows", "function, output = score, 'logit'"),
    "its type of numbers": edit_function("# what follows", "rows = rows.astype(float)"),
    # without effect
    "a function that nothing uses": edit_function(
        "# what follows", "def other(x):\n    return x", NOTHING
    ),
    "a batch size": edit_function("output=output,", "output=output, batch_size=16,", NOTHING),
    "print options": edit_function("# what follows", "np.set_printoptions(precision=2)", NOTHING),
    "the random state of the process": edit_function(
        "# what follows", "np.random.seed(5)", NOTHING
    ),
    **WITHOUT_EFFECT,
}
RULE_CHANGES = {
    "its module, where few inputs are": edit_rule(
        "(rows > edge).any(1), -z, z", "rows[:, 3] > 0.75, z - 3, z"
    ),
    "a constant of its module": edit_rule("LIMIT = 9.0", "LIMIT = 0.99"),
    "a function that its module imports": edit(
        RULE_FILES, "tools_of_mine.py", "np.exp(-z)", "np.exp(-z * 2)"
    ),
    "a module that is imported late": edit(RULE_FILES, "late_of_mine.py", "3.0", "2.0"),
    "an argument": make_rule("Rule(edge=0.99)"),
    "an attribute set afterwards": edit(
        RULE_FILES, "script.py", "# what follows", "function.__self__.late = 0.9", AGAIN
    ),
    "a variable of the environment": Change({}, AGAIN, {"RULE_EDGE": "0.9"}),
    "a variable of the environment, where few inputs are": Change(
        {}, NAMED, {"RULE_EDGE": "0.9999"}
    ),
    "a subclass in the script": edit(
        RULE_FILES,
        "script.py",
        "# what follows",
        "class Mine(Rule):\n    def predict_proba(self, rows):\n"
        "        return super().predict_proba(np.minimum(rows, 0.99))\nfunction = Mine().predict_proba",
    ),
    "a number of threads": make_rule("Rule(n_jobs=2)", NOTHING),
    "it is made again": make_rule("Rule()", NOTHING),
    **WITHOUT_EFFECT,
}
LINE_CHANGES = {
    "a function of a step": edit(LINE_FILES, "rule_of_mine.py", "rows / 2", "rows**2"),
    "a penalty": edit(LINE_FILES, "script.py", "C=1.0", "C=0.1"),
    "a coefficient": edit(LINE_FILES, "script.py", "# what follows", "line[-1].coef_[0, 0] += 0.5"),
    "the fitted rows": edit(
        LINE_FILES,
        "script.py",
        "LogisticRegression(C=1.0)).fit(rows, kinds)",
        "LogisticRegression(C=1.0)).fit(rows[9:], kinds[9:])",
    ),
    "another estimator": edit(
        LINE_FILES,
        "script.py",
        "LogisticRegression(C=1.0)",
        "RandomForestClassifier(5, random_state=0)",
    ),
    "words": edit(
        LINE_FILES, "script.py", "# what follows", "line.set_params(verbose=True)", NOTHING
    ),
    "nothing": WITHOUT_EFFECT["nothing"],
}


def grow(files: dict[str, str], options: str) -> Change:
    """A tree with other options."""
    return edit(
        files,
        "script.py",
        "Tree" + "Classifier(random_state=0",
        f"TreeClassifier({options}, random_state=0",
    )


TREE_CHANGES = {
    "weights of classes, with pure leaves": grow(TREE_FILES, "class_weight={0: 1, 1: 20}"),
    "the depth": grow(TREE_FILES, "max_depth=2"),
    "nothing": WITHOUT_EFFECT["nothing"],
}
SHAP_CHANGES = {
    "weights of classes, with pure leaves": grow(SHAP_FILES, "class_weight={0: 1, 1: 20}"),
    "the depth": grow(SHAP_FILES, "max_depth=2"),
    "nothing": WITHOUT_EFFECT["nothing"],
}

# A module of tensors, and code of the user's in a script

SCRIPT = """
from dataclasses import dataclass
import torch
from torch import nn
import standfast
from standfast.metrics import LocalLipschitz, WorstCase
from standfast.similarity import Similarity
from explain_of_mine import explain

torch.manual_seed(0)
net = nn.Sequential(nn.Flatten(), nn.Linear(16, 12), nn.Tanh(), nn.Linear(12, 3)).eval()
images = torch.rand(4, 1, 4, 4, generator=torch.Generator().manual_seed(1))
POWER = 1.0
HIDDEN = 0.0

def shape(maps):
    return maps.abs().flatten(1) ** POWER

@dataclass(frozen=True)
class Share(Similarity):
    name = "share"
    low, high, range = 0.4, 0.6, (0.0, 1.0)
    def compare(self, a, b):
        from late_of_mine import FLOOR
        a, b = shape(a), shape(b)
        shares = torch.minimum(a, b).sum(1) / torch.maximum(a, b).sum(1).clamp(min=1e-12)
        return shares + FLOOR + globals()["HID" + "DEN"]

class Slope(LocalLipschitz):
    name = "slope"
    def evaluate(self, call):
        result = super().evaluate(call)
        result.value.mul_(scale(2.0))
        return result

def scale(by):
    return by

class Widening(standfast.LinfBall):
    name = "widening"

# what follows
model = standfast.Model(net, bounds=(0.0, 1.0))
ball = standfast.LinfBall(0.1)
metrics = {
    "w": WorstCase(ball, similarity=Share(), budget=20, event="changed_explanation"),
    "l": Slope(ball, samples=4),
    "a": "aopc",
}
found = standfast.evaluate(
    model, {"s": "input_x_gradient", "e": explain}, images, metrics, sanity=False, controls=False, progress=False
)
"""
EXPLAIN = """
import torch
import factors_of_mine

def explain(module, inputs, targets):
    from late_factor_of_mine import FACTOR
    scores = module(inputs).softmax(1).amax(1).reshape(-1, 1, 1, 1)
    return inputs * scores * factors_of_mine.FACTOR + inputs**2 * FACTOR
"""
SCRIPT_FILES = {
    "script.py": SCRIPT,
    "explain_of_mine.py": EXPLAIN,
    "factors_of_mine.py": "FACTOR = 1.0\n",
    "late_of_mine.py": "FLOOR = 0.0\n",
    "late_factor_of_mine.py": "FACTOR = 1.0\n",
    "nobody_imports.py": "VALUE = 1\n",
}


def edit_script(old: str, new: str, expected: Expected = AGAIN) -> Change:
    """A change of the script."""
    return edit(SCRIPT_FILES, "script.py", old, new, expected)


SCRIPT_CHANGES = {
    "a constant that a helper of a similarity names": edit_script("POWER = 1.0", "POWER = 3.0"),
    "a helper of a similarity": edit_script("maps.abs()", "(maps + 0.1).abs()"),
    "what a similarity imports late": edit(SCRIPT_FILES, "late_of_mine.py", "0.0", "0.1"),
    "a constant whose name is put together when it is read": edit_script(
        "HIDDEN = 0.0", "HIDDEN = 0.05", NAMED
    ),
    "a function that a metric calls": edit_script("return by", "return by * 2"),
    "the text of an explainer": edit(SCRIPT_FILES, "explain_of_mine.py", "inputs**2", "inputs**3"),
    "what an explainer imports": edit(SCRIPT_FILES, "factors_of_mine.py", "1.0", "2.0"),
    "what an explainer imports late": edit(SCRIPT_FILES, "late_factor_of_mine.py", "1.0", "2.0"),
    "a weight": edit_script("# what follows", "net[1].weight.data[0, 0] += 0.1"),
    "an activation": edit_script("nn.Tanh()", "nn.Sigmoid()"),
    "a hook": edit_script(
        "# what follows", "net[1].register_forward_hook(lambda layer, inputs, out: out * 2)"
    ),
    "a pixel": edit_script("# what follows", "images[0, 0, 0, 0] += 0.05"),
    "the bounds": edit_script("bounds=(0.0, 1.0)", "bounds=(0.0, 0.9999)"),
    "the radius": edit_script("LinfBall(0.1)", "LinfBall(0.2)"),
    "another ball": edit_script("standfast.LinfBall(0.1)", "standfast.L2Ball(0.2)"),
    "a preprocessing": edit_script(
        "bounds=(0.0, 1.0)", "bounds=(0.0, 1.0), preprocess=lambda images: images * 2"
    ),
    "the seed": edit_script("progress=False", "progress=False, seed=1"),
    "the targets": edit_script("progress=False", "progress=False, targets=1"),
    # without effect
    "weights that are not trained any more": edit_script(
        "# what follows", "net.requires_grad_(False)", NOTHING
    ),
    "a gradient": edit_script("# what follows", "net(images).sum().backward()", NOTHING),
    "weights that were stored and read": edit_script(
        "# what follows",
        "torch.save(net.state_dict(), 'w.pt')\nnet.load_state_dict(torch.load('w.pt'))",
        NOTHING,
    ),
    "a batch size": edit_script("bounds=(0.0, 1.0)", "bounds=(0.0, 1.0), batch_size=64", NOTHING),
    "print options": edit_script("# what follows", "torch.set_printoptions(precision=2)", NOTHING),
    "a class that nothing uses": edit_script("class Widening", "class Shrinking", NOTHING),
    "the random state of the process": edit_script(
        "# what follows", "torch.manual_seed(5)", NOTHING
    ),
    **WITHOUT_EFFECT,
}


def list_scenes() -> dict[str, Scene]:
    """All studies by name."""
    return {
        "a function": Scene(FUNCTION_FILES, FUNCTION_CHANGES),
        "an estimator of the user's": Scene(RULE_FILES, RULE_CHANGES),
        "a pipeline": Scene(LINE_FILES, LINE_CHANGES),
        "a tree": Scene(TREE_FILES, TREE_CHANGES),
        "a tree that shap reads": Scene(SHAP_FILES, SHAP_CHANGES),
        "a script": Scene(SCRIPT_FILES, SCRIPT_CHANGES),
    }
