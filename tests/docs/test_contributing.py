"""CONTRIBUTING.md: its six tasks, each carried out on a small plug-in, and its list of files.

The plug-in is a package with entry points. Everything is asked for by name, in Python and in a study, as a user would.
The model is linear, so all numbers are known in closed form.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import torch
from installed_plugin import install

import standfast
import standfast.report  # registers our presentations, before a copy of the registry is made
from standfast.explainers import explainers
from standfast.metrics import metrics
from standfast.neighbourhoods import neighbourhoods
from standfast.neighbourhoods.naming import label_neighbourhood, read_stored
from standfast.registry import Registry
from standfast.report.presentation import presentations
from standfast.report.presentation.safari.terms import name_similarity
from standfast.similarity import similarities
from standfast.study.file.schema import json_schema
from standfast.study.file.spec import load_study
from standfast.testing import check_explainer, check_metric, check_similarity

ROOT = Path(__file__).parents[2]
REGISTRIES: tuple[Registry[Any], ...] = (
    similarities,
    explainers,
    metrics,
    neighbourhoods,
    presentations,
)
WEIGHTS = torch.tensor([[2.0, -1.0, 0.5, 0.0], [0.0, 0.0, 0.0, 0.0]])
#: the maps of `input_x_gradient` are WEIGHTS[0] * INPUTS; the class is 0
INPUTS = torch.tensor([[0.6, -0.4, 0.05, 0.8], [0.5, 0.2, 0.8, -0.6]])

FILES = {
    "agreement.py": """
from dataclasses import dataclass
import torch
from standfast.similarity import Similarity


@dataclass(frozen=True)
class Agreement(Similarity):
    '''The share of features whose values have the same sign.

    Args:
        above: values up to this size have the sign 0.
    '''

    name = "agreement"
    words = "share of equal signs"
    low, high, range = 0.4, 0.6, (0.0, 1.0)
    above: float = 0.0

    def compare(self, a, b):
        signs = [torch.where(maps.abs() > self.above, maps.sign(), 0 * maps) for maps in (a.flatten(1), b.flatten(1))]
        return (signs[0] == signs[1]).to(a.dtype).mean(1) + 0 * (a + b).flatten(1).sum(1)  # NaN stays NaN
""",
    "squared.py": """
from dataclasses import dataclass
from standfast.explainers import Explainer, InputXGradient


@dataclass(frozen=True)
class Squared(Explainer):
    '''The square of input times gradient.

    Args:
        gain: a factor.
    '''

    name = "squared"
    differentiable = True
    gain: float = 1.0

    def attribute(self, model, x, targets, *, create_graph=False):
        maps, logits = InputXGradient().attribute(model, x, targets, create_graph=create_graph)
        return self.gain * maps**2, logits
""",
    "sparsity.py": """
from dataclasses import dataclass
from standfast.errors import check
from standfast.metrics import Metric, Probe, Result, ValueSpec


@dataclass(frozen=True)
class Sparsity(Metric):
    '''The share of features with no relevance.'''

    name = "sparsity"
    values = ValueSpec("Share of features left out", "left out", "higher", decimals=2)

    def evaluate(self, call):
        probe = Probe(call)
        return Result(**probe.common_fields(self), value=self.measure(probe.maps.flatten(1).abs()))

    def measure(self, sizes):
        return (sizes == 0).double().mean(1)


@dataclass(frozen=True)
class SparsityAbove(Sparsity):
    '''The same with an option.

    Args:
        level: a size of relevance that counts as none, as a share of the largest in the map.
    '''

    name = "sparsity_above"
    values = None  # read by its name
    level: float = 0.0

    def __post_init__(self):
        check(0 <= self.level < 1, "level", "a number from 0 to 1", self.level)

    def measure(self, sizes):
        return (sizes <= self.level * sizes.amax(1, keepdim=True)).double().mean(1)
""",
    "fading.py": """
from dataclasses import dataclass
from standfast.neighbourhoods import Range, Transformation, parameter
from standfast.neighbourhoods.transformations import expand


@dataclass(frozen=True)
class Fading(Transformation):
    '''Every value multiplied by one minus a share.

    Args:
        share: from the smallest to the largest; one number r stands for 0 to r.
    '''

    phrase = "faded by {share}"
    takes = "any"
    share: Range = parameter("fading [share]", default=0.5, low=0, high=1)

    def transform(self, inputs, parameters, bounds):
        return inputs * (1 - expand(parameters[:, 0], inputs))
""",
    "words.py": """
from standfast.report.presentation import Presentation


class SparsityWords(Presentation):
    words = "{% macro question(options, spec) %}How much is left out?{% endmacro %}"
""",
    "linear.py": f"""
import torch


def build():
    module = torch.nn.Linear(4, 2, bias=False)
    module.weight.data = torch.tensor({WEIGHTS.tolist()})
    return module


def load():
    return torch.tensor({INPUTS.tolist()})
""",
}
POINTS = """
[standfast.similarities]
agreement = tiny_plugin.agreement:Agreement
[standfast.explainers]
squared = tiny_plugin.squared:Squared
[standfast.metrics]
sparsity = tiny_plugin.sparsity:Sparsity
sparsity_above = tiny_plugin.sparsity:SparsityAbove
[standfast.neighbourhoods]
fading = tiny_plugin.fading:Fading
[standfast.presentations]
sparsity = tiny_plugin.words:SparsityWords
"""


@pytest.fixture(scope="module", autouse=True)
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The package, installed for this file; afterwards nobody knows its names."""
    folder = tmp_path_factory.mktemp("site")
    package = folder / "tiny_plugin"
    package.mkdir()
    for name, text in {"__init__.py": "", **FILES}.items():
        (package / name).write_text(text)
    install(folder, "tiny-plugin", POINTS)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        for registry in REGISTRIES:
            patch.setattr(registry, "_entries", dict(registry._entries))
            vars(registry).pop("plugins", None)  # they are looked up once
        yield
    for registry in REGISTRIES:
        vars(registry).pop("plugins", None)
    for name in [name for name in sys.modules if name.partition(".")[0] == "tiny_plugin"]:
        del sys.modules[name]


@pytest.fixture
def model() -> standfast.Model:
    module = torch.nn.Linear(4, 2, bias=False)
    module.weight.data = WEIGHTS.clone()
    return standfast.Model(module, bounds=(-1.0, 1.0), device="cpu")


def run(
    out: Path, metrics: list[Any], explainers: tuple[Any, ...] = ("input_x_gradient",)
) -> standfast.Results:
    """A study of the linear model and its two inputs."""
    data = {"rows": {"function": "tiny_plugin.linear:load", "bounds": [-1, 1], "trust": True}}
    study = {
        "data": data,
        "models": {"linear": {"function": "tiny_plugin.linear:build", "trust": True}},
        "device": "cpu",
    }
    study |= {"explainers": list(explainers), "metrics": metrics, "controls": False}
    found = standfast.run_study(study, out=out, progress=False)
    assert not found.failures
    return found


def values_of(found: standfast.Results, **where: str) -> list[float]:
    return found.samples.sort("sample").filter(**where)["value"].to_list()


def test_a_similarity_is_added(model: standfast.Model, tmp_path: Path) -> None:
    a, b = torch.tensor([[1.0, -2.0, 0.1, 0.0]]), torch.tensor([[3.0, 2.0, -0.1, 0.0]])
    assert standfast.similarity.get("agreement")(a, b).item() == 0.5
    assert standfast.similarity.get("agreement:above=0.5")(a, b).item() == 0.75
    check_similarity(standfast.similarity.get("agreement"))
    assert name_similarity({"similarity": "agreement:above=0.5"}) == "share of equal signs"
    worst = {"neighbourhood": {"linf": 0.1}, "similarity": "agreement", "absolute": False}
    worst |= {"search": "random", "budget": 60}
    found = run(tmp_path, [{"worst_case": worst}])
    # in the ball only the third feature of the first input changes its sign; no input of the second one does
    assert values_of(found) == [0.75, 1.0]


def test_an_explainer_is_added(model: standfast.Model, tmp_path: Path) -> None:
    squared = (WEIGHTS[0] * INPUTS) ** 2
    assert torch.equal(standfast.explainers.get("squared")(model, INPUTS), squared)
    assert torch.equal(standfast.explainers.get("squared:gain=3.0")(model, INPUTS), 3.0 * squared)
    check_explainer(standfast.explainers.get("squared"), ["flat"])
    # one of four features has no weight, and a share of the largest relevance is not changed by the gain
    above = {"sparsity_above": {"level": 0.1}}
    found = run(tmp_path, [above], ("input_x_gradient", {"squared": {"gain": 3.0}}))
    assert values_of(found, explainer="input_x_gradient") == [0.5, 0.25]
    assert values_of(found, explainer="squared") == [0.5, 0.5]


def test_a_metric_is_added(model: standfast.Model, tmp_path: Path) -> None:
    assert standfast.metrics.get("sparsity")(model, "input_x_gradient", INPUTS).value.tolist() == [
        0.25,
        0.25,
    ]
    check_metric(standfast.metrics.get("sparsity"), ["flat"])
    assert values_of(run(tmp_path, ["sparsity"])) == [0.25, 0.25]


def test_an_option_is_added_to_a_metric(model: standfast.Model, tmp_path: Path) -> None:
    level = json_schema()["$defs"]["metric.sparsity_above"]["properties"]["level"]
    assert "a size of relevance that counts as none" in level["description"]
    assert level["default"] == 0.0
    # by its default nothing changes
    plain, same = (standfast.metrics.get(name) for name in ("sparsity", "sparsity_above"))
    assert torch.equal(
        plain(model, "saliency", INPUTS).value, same(model, "saliency", INPUTS).value
    )
    # maps are (1.2, 0.4, 0.025, 0) and (1, -0.2, 0.4, 0)
    half = standfast.metrics.get("sparsity_above:level=0.5")
    assert half(model, "input_x_gradient", INPUTS).value.tolist() == [0.75, 0.75]
    options = [{"none": "sparsity_above"}, {"quarter": {"sparsity_above": {"level": 0.25}}}]
    found = run(tmp_path / "out", options)
    assert values_of(found, label="none") == [0.25, 0.25]
    assert values_of(found, label="quarter") == [0.5, 0.5]
    start = "data: {digits: digits}\nmodels: {lenet: lenet5-mnist}\nexplainers: [saliency]\n"
    (tmp_path / "wrong.yaml").write_text(start + "metrics:\n  - sparsity_above: {level: 2}\n")
    with pytest.raises(
        standfast.StandfastError, match=r"level \(line 5\): expected a number from 0 to 1, got 2"
    ):
        load_study(tmp_path / "wrong.yaml").grid()


def test_a_neighbourhood_is_added(model: standfast.Model, tmp_path: Path) -> None:
    kind = neighbourhoods["fading"]
    region = kind(0.5).around(INPUTS, (-1.0, 1.0))
    points, rows = torch.tensor([[0.5], [0.25]]), torch.tensor([0, 1])
    assert torch.equal(region.perturb(points, rows), INPUTS * torch.tensor([[0.5], [0.75]]))
    worst = {"neighbourhood": {"fading": 0.5}, "similarity": "mse", "search": "grid", "budget": 40}
    found = run(tmp_path / "out", [{"worst_case": worst}])
    # the map fades with the input, so the largest distance is at the end of the range
    expected = ((0.5 * WEIGHTS[0] * INPUTS) ** 2).mean(1).tolist()
    assert values_of(found) == pytest.approx(expected, rel=1e-6)
    assert found.samples["fading [share]"].to_list() == [0.5, 0.5]
    found.to_html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "faded by 0 to 0.5" in page
    assert label_neighbourhood(kind(0.5)) == "fading 0 to 0.5"


def test_a_stored_neighbourhood_finds_its_plug_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a report, which has asked for no name."""
    monkeypatch.delitem(neighbourhoods._entries, "fading", raising=False)
    broken = EntryPoint("broken", "tiny_plugin.fading:Nothing", "standfast.neighbourhoods")
    monkeypatch.setitem(neighbourhoods.plugins, "broken", broken)
    found = read_stored(
        {"transformation": "Fading", "share": [0.0, 0.25], "distribution": "uniform"}
    )
    assert found == neighbourhoods["fading"](0.25)
    assert read_stored({"transformation": "Nothing"}) is None  # a plug-in that cannot be loaded
    # and one that is not asked for does no harm
    assert label_neighbourhood(standfast.LinfBall(0.1)) == "linf 0.1"


def test_a_label_is_fixed(tmp_path: Path) -> None:
    found = run(tmp_path / "out", ["sparsity", "sparsity_above"])
    found.to_html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "How much is left out?" in page
    assert "not installed here" not in page
    assert "Share of features left out" in page
    assert "Sparsity above" in page  # nothing declared: the name
    assert metrics["sparsity_above"].direction == "higher"


def test_files_named_by_the_page_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    folders = "|".join(path.name for path in ROOT.iterdir() if path.is_dir())
    named = re.findall(rf"`((?:{folders})/[\w./-]*|[\w-]+\.(?:toml|txt|md|yml))`", text)
    assert len(named) > 20
    assert [name for name in named if not (ROOT / name).exists()] == []
