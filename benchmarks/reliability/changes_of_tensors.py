"""Changes of study files of tensors: of a module, of what it reads, of entries, and of code of the user's beside it."""

from __future__ import annotations

from collections.abc import Mapping

from changes import AGAIN, NAMED, RUN_STUDY, Change, Expected, Scene

MAKE = """
import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

class Frozen(nn.Module):
    def __init__(self, k: float) -> None:
        super().__init__()
        self.k = k
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, :3] * self.k

inputs = np.random.default_rng(0).random((6, 4)).astype(np.float32)
np.savez("data.npz", inputs=inputs, labels=np.arange(6) % 3)
save_file({"layer.weight": torch.arange(12.0).reshape(3, 4) % 5 - 2, "layer.bias": torch.zeros(3)}, "w.safetensors")
torch.jit.script(Frozen(1.0)).save("m.pt")
"""
STUDY = """
samples_per_job: 6
seed: {seed}
device: cpu
data: {{d: {{path: data.npz, targets: {targets}, bounds: [0, 1]}}}}
models: {{m: {model}}}
explainers: [{explainer}]
metrics: [aopc, {metric}]
sanity: false
controls: false
"""
EXPLAIN = "def explain(module, inputs, targets):\n    return inputs{}\n"


def write_study(
    seed: str = "0",
    targets: str = "labels",
    model: str = '{function: "net:build"}',
    explainer: str = "input_x_gradient",
    metric: str = "{local_lipschitz: {samples: 2, neighbourhood: {linf: 0.1}}}",
) -> str:
    return STUDY.format(seed=seed, targets=targets, model=model, explainer=explainer, metric=metric)


def write_net(
    top: str = "",
    before: str = "pass",
    init: str = "pass",
    body: str = "return self.layer(x)",
    build: str = "",
) -> str:
    """A module with a builder, with some of its parts replaced."""
    return f"""
import functools, importlib, os, random, sys
import numpy as np
import torch
from torch import nn
HERE = os.path.dirname(os.path.abspath(__file__))
{top}
class Net(nn.Module):
    def __init__(self, **options):
        super().__init__()
        {before}
        self.layer = nn.Linear(4, 3)
        self.layer.weight.data = torch.arange(12.0).reshape(3, 4) % 5 - 2
        {init}
    def forward(self, x):
        {body}
def build(**options):
    net = Net(**options)
    {build}
    return net.eval()
"""


def pair(
    before: Mapping[str, str],
    after: Mapping[str, str],
    environment: Mapping[str, str] | None = None,
    expected: Expected = AGAIN,
) -> Scene:
    """A study with one change."""
    files = {
        "make.py": MAKE,
        "net.py": write_net(),
        "study.yaml": write_study(),
        "script.py": RUN_STUDY,
        **before,
    }
    return Scene(files, {"": Change(after, expected, environment or {})})


def change(parts: Mapping[str, str], old: str, new: str) -> Scene:
    """A change of the text of a module."""
    before = write_net(**parts)
    assert old in before
    return pair({"net.py": before}, {"net.py": before.replace(old, new)})


def beside(name: str, old: str, new: str, expected: Expected = AGAIN, **parts: str) -> Scene:
    """A change of a file beside a module."""
    return pair({"net.py": write_net(**parts), name: old}, {name: new}, expected=expected)


def study(**after: str) -> Scene:
    """A change of an entry of the study file."""
    return pair({}, {"study.yaml": write_study(**after)})


def made(old: str, new: str, **before: str) -> Scene:
    """A change of a file that is no text, by what makes it."""
    assert old in MAKE
    return pair({"study.yaml": write_study(**before)}, {"make.py": MAKE.replace(old, new)})


READ = "return self.layer(x) * float(open({}).read())"
MINE = '{function: "mine:explain"}'
METRIC = "{local_lipschitz: {samples: 2, neighbourhood: {linf: 0.1}}}"
FUNCTION = """
class F(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.clone()
    @staticmethod
    def backward(context, g):
        return g * 1.0
"""
OWN_METRIC = """
from dataclasses import dataclass
from typing import ClassVar
from standfast.metrics import LocalLipschitz
@dataclass(frozen=True)
class Mine(LocalLipschitz):
    name: ClassVar[str] = "mine"
    def evaluate(self, call):
        result = super().evaluate(call)
        result.value.mul_(1.0)
        return result
"""


def list_scenes() -> dict[str, Scene]:
    """All studies by name."""
    body = "return self.layer(x) * {}".format
    return {
        # the state and the code of a model
        "a constant in forward": change({"body": body("1.0")}, "1.0", "2.0"),
        "a global constant": change({"top": "K = 1.0", "body": body("K")}, "K = 1.0", "K = 2.0"),
        "an attribute": change(
            {"init": "self.k = 1.0", "body": body("self.k")}, "k = 1.0", "k = 2.0"
        ),
        "a private attribute": change(
            {"init": "self._k = 1.0", "body": body("self._k")}, "_k = 1.0", "_k = 2.0"
        ),
        "a mangled attribute": change(
            {"init": "self.__k = 1.0", "body": body("self.__k")}, "__k = 1.0", "__k = 2.0"
        ),
        "an attribute of the class": change(
            {"top": "class B:\n    k = 1.0", "body": body("B.k")}, "k = 1.0", "k = 2.0"
        ),
        "an object with slots": change(
            {
                "top": "class S:\n    __slots__ = ('k',)",
                "init": "self.s = S(); self.s.k = 1.0",
                "body": body("self.s.k"),
            },
            "s.k = 1.0",
            "s.k = 2.0",
        ),
        "a list in an attribute": change(
            {"init": "self.k = [1.0]", "body": body("self.k[0]")}, "[1.0]", "[2.0]"
        ),
        "a closure": change(
            {"init": "k = 1.0; self.f = lambda: k", "body": body("self.f()")}, "k = 1.0", "k = 2.0"
        ),
        "a partial": change(
            {"init": "self.f = functools.partial(max, 1.0)", "body": body("self.f(0)")},
            "max, 1.0",
            "max, 2.0",
        ),
        "a default argument": change(
            {"top": "def f(k=1.0):\n    return k", "body": body("f()")}, "k=1.0", "k=2.0"
        ),
        "a keyword default": change(
            {"top": "def f(*, k=1.0):\n    return k", "body": body("f()")}, "k=1.0", "k=2.0"
        ),
        "a decorator": change(
            {
                "top": "def by(k):\n    return lambda f: lambda *a: f(*a) * k\n@by(1.0)\ndef f(x):\n    return x",
                "body": "return f(self.layer(x))",
            },
            "by(1.0)",
            "by(2.0)",
        ),
        "a property": change(
            {
                "top": "class P:\n    @property\n    def k(self):\n        return 1.0",
                "body": body("P().k"),
            },
            "return 1.0",
            "return 2.0",
        ),
        "a class made by type()": change(
            {"top": "T = type('T', (), {'k': 1.0})", "body": body("T.k")}, "1.0", "2.0"
        ),
        "code in exec": change(
            {"top": "exec('K = 1.0')", "body": body("globals()['K']")}, "K = 1.0", "K = 2.0"
        ),
        "a forward hook": change(
            {"build": "net.register_forward_hook(lambda m, i, o: o * 1.0)"}, "o * 1.0", "o * 2.0"
        ),
        "a forward pre-hook": change(
            {"build": "net.register_forward_pre_hook(lambda m, i: (i[0] * 1.0,))"}, "* 1.0", "* 2.0"
        ),
        "a gradient hook": change(
            {
                "body": "y = self.layer(x); y.requires_grad and y.register_hook(lambda g: g * 1.0); return y"
            },
            "g * 1.0",
            "g * 2.0",
        ),
        "a patched method": change(
            {"build": "net.forward = lambda x: net.layer(x) * 1.0"}, "* 1.0", "* 2.0"
        ),
        "a parametrization": change(
            {
                "top": "class P(nn.Module):\n    def forward(self, w):\n        return w * 1.0",
                "build": "nn.utils.parametrize.register_parametrization(net.layer, 'weight', P())",
                "before": "import torch.nn.utils.parametrize",
            },
            "w * 1.0",
            "w * 2.0",
        ),
        "a weight": change(
            {"build": "net.layer.bias.data.fill_(0.0)"}, "fill_(0.0)", "fill_(1e-7)"
        ),
        "a buffer that is not stored": change(
            {
                "init": "self.register_buffer('k', torch.tensor(1.0), persistent=False)",
                "body": body("self.k"),
            },
            "tensor(1.0)",
            "tensor(2.0)",
        ),
        "a part of the same shape": change(
            {"body": "return torch.relu(self.layer(x))"}, "relu", "tanh"
        ),
        "an autograd function": change(
            {
                "top": FUNCTION,
                "body": "return F.apply(self.layer(x))",
            },
            "g * 1.0",
            "g * 2.0",
        ),
        "NumPy's seed": change(
            {
                "build": "net.layer.bias.data = torch.from_numpy(np.random.RandomState(0).rand(3)).float()"
            },
            "State(0)",
            "State(1)",
        ),
        "Python's seed": change(
            {"build": "random.seed(0); net.layer.bias.data.fill_(random.random())"},
            "seed(0)",
            "seed(1)",
        ),
        "torch's seed": change(
            {"build": "torch.manual_seed(0); net.layer.reset_parameters()"}, "seed(0)", "seed(1)"
        ),
        # what it reads
        "a variable of the environment": pair(
            {"net.py": write_net(body=body("float(os.environ.get('STUDY_K', '1'))"))},
            {},
            {"STUDY_K": "2"},
        ),
        "a file of text": beside(
            "k.txt", "1", "2", body=READ.format("os.path.join(HERE, 'k.txt')")
        ),
        "a file in a folder": beside(
            "d/k.txt", "1", "2", body=READ.format("os.path.join(HERE, 'd', 'k.txt')")
        ),
        "a file by a computed name": beside(
            "k.txt", "1", "2", body=READ.format("HERE + '/' + 'txt.k'[::-1]")
        ),
        "a file in the current folder": beside("k.txt", "1", "2", body=READ.format("'k.txt'")),
        "a module that it imports": beside(
            "other.py", "K = 1.0", "K = 2.0", top="import other", body=body("other.K")
        ),
        "a name from a module": beside(
            "other.py", "K = 1.0", "K = 2.0", top="from other import K", body=body("K")
        ),
        "a module of a package": beside(
            "pack/inner.py",
            "K = 1.0",
            "K = 2.0",
            top="import pack.inner",
            body=body("pack.inner.K"),
        ),
        "an import in a function": beside(
            "other.py", "K = 1.0", "K = 2.0", body="import other; return self.layer(x) * other.K"
        ),
        "an import by a computed name": beside(
            "other.py", "K = 1.0", "K = 2.0", body=body("importlib.import_module('ot' + 'her').K")
        ),
        "a module that a module imports": pair(
            {
                "net.py": write_net(top="import other", body=body("other.third.K")),
                "other.py": "import third",
                "third.py": "K = 1.0",
            },
            {"third.py": "K = 2.0"},
        ),
        "a star import": beside(
            "other.py", "K = 1.0", "K = 2.0", top="from other import *", body=body("K")
        ),
        # entries of the study file
        "the seed of the study": study(seed="1"),
        "an option of the builder": pair(
            {"net.py": write_net(init="self.k = options.get('k', 1.0)", body=body("self.k"))},
            {"study.yaml": write_study(model='{function: "net:build", options: {k: 2}}')},
        ),
        "another builder": pair(
            {"net.py": write_net(build="net.layer.bias.data.fill_(0.0)")},
            {"study.yaml": write_study(model='{function: "net:Net"}')},
        ),
        "a scaling": study(model='{function: "net:build", preprocess: {mean: 0.1, std: 1.0}}'),
        "a preprocessing function": pair(
            {
                "study.yaml": write_study(model='{function: "net:build", preprocess: "other:f"}'),
                "other.py": "def f(x):\n    return x * 1.0\n",
            },
            {"other.py": "def f(x):\n    return x * 2.0\n"},
        ),
        "a forward function": pair(
            {
                "study.yaml": write_study(model='{function: "net:build", forward: "other:f"}'),
                "other.py": "def f(m, x):\n    return m(x) * 1.0\n",
            },
            {"other.py": "def f(m, x):\n    return m(x) * 2.0\n"},
        ),
        "mixed precision": study(model='{function: "net:build", mixed_precision: bfloat16}'),
        "a file of weights": made(
            "% 5 - 2", "% 5 - 1", model='{function: "net:build", weights: w.safetensors}'
        ),
        "a TorchScript file": made("x[:, :3]", "x[:, 1:]", model="{path: m.pt}"),
        "a constant in a TorchScript file": made(
            "Frozen(1.0)", "Frozen(1.5)", model="{path: m.pt}"
        ),
        "an option of an explainer": study(explainer="{integrated_gradients: {steps: 8}}"),
        "an option of a metric": study(metric=METRIC.replace("2", "3", 1)),
        "a neighbourhood": study(metric=METRIC.replace("0.1", "0.2")),
        "a similarity": study(
            metric="{worst_case: {budget: 20, similarity: spearman, neighbourhood: {linf: 0.1}}}"
        ),
        "inputs": made("default_rng(0)", "default_rng(1)"),
        "the labels as targets": study(targets="predicted"),
        # explainers and metrics of the user
        "a user's explainer": pair(
            {"study.yaml": write_study(explainer=MINE), "mine.py": EXPLAIN.format("")},
            {"mine.py": EXPLAIN.format(" * 2")},
        ),
        "what a user's explainer imports": pair(
            {
                "study.yaml": write_study(explainer=MINE),
                "mine.py": "import other\n" + EXPLAIN.format(" + other.K"),
                "other.py": "K = 1.0",
            },
            {"other.py": "K = 2.0"},
        ),
        "a file that a user's explainer reads": pair(
            {
                "study.yaml": write_study(explainer=MINE),
                "mine.py": EXPLAIN.format(" + float(open('k.txt').read())"),
                "k.txt": "1",
            },
            {"k.txt": "2"},
        ),
        "a user's metric": pair(
            {
                "study.yaml": write_study(
                    metric='{function: "own:Mine", options: {neighbourhood: {linf: 0.1}, samples: 2}}'
                ),
                "own.py": OWN_METRIC,
            },
            {"own.py": OWN_METRIC.replace("1.0", "2.0")},
        ),
        # what cannot be noticed
        "what acts on no input that is seen": pair(
            {
                "net.py": write_net(
                    body="return self.layer(x) + (x > 9).sum(1, keepdim=True) * float(open(HERE + '/k.txt').read())"
                ),
                "k.txt": "1",
            },
            {"k.txt": "2"},
            expected=NAMED,
        ),
        "less than the tolerance": beside(
            "k.txt", "1", "1.0001", NAMED, body=READ.format("os.path.join(HERE, 'k.txt')")
        ),
        "a file that a user's metric reads": pair(
            {
                "study.yaml": write_study(
                    metric='{function: "own:Mine", options: {neighbourhood: {linf: 0.1}, samples: 2}}'
                ),
                "own.py": OWN_METRIC.replace("mul_(1.0)", "mul_(float(open('k.txt').read()))"),
                "k.txt": "1",
            },
            {"k.txt": "2"},
            expected=NAMED,
        ),
        "what an explainer reads for later inputs": pair(
            {
                "study.yaml": write_study(explainer=MINE),
                "mine.py": EXPLAIN.format(
                    " * (1 if len(inputs) < 3 else float(open('k.txt').read()))"
                ),
                "k.txt": "1",
            },
            {"k.txt": "2"},
            expected=NAMED,
        ),
    }
