"""Where data and models of a study come from: every kind of file and function, and what is refused."""

from __future__ import annotations

import contextlib
import io
import json
import pickle
import re
import sys
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn

import standfast
from malformed_studies import Evil
from standfast.data.user_files import as_inputs, read_images
from standfast.question.grid import ModelSource, Samples
from standfast.study.file.model_sources import try_out
from standfast.study.file.names import DATA, MODELS, read_entry
from standfast.study.file.problems import StudyFieldError
from standfast.study.file.sources import build_source
from standfast.study.file.spec import study_from
from standfast.zoo.programs import read_weights

MODULE = """
import numpy as np
import torch
from torch import nn
import standfast
from standfast.question.grid import Samples

def tensor(): return torch.full((3, 5), 0.5)
def array(): return np.full((3, 5), 0.5)
def pair(): return np.full((3, 5), 0.5), [0, 1, 2]
def dataset(): return standfast.data.bundled("digits")[:3]
def samples(): return Samples(torch.full((3, 5), 2.0), torch.tensor([1, 0, 1]), (0.0, 4.0))
def noise(): return torch.rand(3, 5)
def net(width=6): return nn.Sequential(nn.Linear(5, width), nn.ReLU(), nn.Linear(width, 4))
def trained(width=6, seed=9):
    torch.manual_seed(seed)
    return net(width)
def shift(x): return x - 0.5
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = net()
    def forward(self, x): return self.inner(x)
ready = net()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "module_of_sources.py").write_text(MODULE)
    return tmp_path


def data(folder: Path, samples: int | None = None, **entry: Any) -> Samples:
    return build_source(read_entry(entry, DATA))[""][0].load(folder, samples)


def source(folder: Path, **entry: Any) -> ModelSource:
    return build_source(read_entry(entry, MODELS))[""][0].source(folder)


def net(seed: int = 0) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 4))


def exported(module: nn.Module, dynamic: bool = True) -> bytes:
    shapes = ({0: torch.export.Dim("batch")},) if dynamic else None
    program = torch.export.export(module.eval(), (torch.rand(3, 5),), dynamic_shapes=shapes)
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    return buffer.getvalue()


def scripted(module: nn.Module) -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.save(torch.jit.script(module), buffer)
    return buffer.getvalue()


X = torch.linspace(0, 1, 50).reshape(10, 5)
SAMPLES = Samples(X)


# data


@pytest.mark.parametrize(("inputs", "labels"), [("inputs", "labels"), ("x", "y")])
def test_arrays(folder: Path, inputs: str, labels: str) -> None:
    x, y = X.numpy(), np.arange(10, dtype=np.int32)
    np.savez(folder / "a.npz", **{inputs: x, labels: y, "other": np.array(["a"])})
    save_file({inputs: X, labels: torch.from_numpy(y)}, folder / "a.safetensors")
    for name in ("a.npz", "a.safetensors"):
        found = data(folder, path=name)
        assert torch.equal(found.inputs, X)
        assert (found.targets, found.bounds) == (None, (0.0, 1.0))
        found = data(folder, path=name, targets="labels", samples=4)
        assert found.targets.tolist() == [0, 1, 2, 3]
        assert found.targets.dtype == torch.int64
        assert len(found.about["sha256"]) == 64


def test_types_of_numbers(folder: Path) -> None:
    np.save(folder / "bytes.npy", np.array([[0, 51, 255]], dtype=np.uint8))
    assert torch.equal(data(folder, path="bytes.npy").inputs, torch.tensor([[0, 0.2, 1.0]]))
    np.save(folder / "double.npy", X.double().numpy())
    assert torch.equal(data(folder, path="double.npy").inputs, X)
    save_file({"x": X.bfloat16()}, folder / "half.safetensors")
    assert data(folder, path="half.safetensors").inputs.dtype == torch.float32
    # a tensor of the user's own is in the precision they chose
    assert as_inputs(X.double()).dtype == torch.float64
    for wrong in (
        np.ones((2, 2), dtype=bool),
        np.ones((2, 2), dtype=complex),
        np.ones(3),
        np.ones((0, 3)),
        "x",
    ):
        with pytest.raises(standfast.ArgumentError):
            as_inputs(wrong)


def test_shapes_that_are_no_images(folder: Path) -> None:
    for shape in ((4, 7), (4, 2, 16), (4, 3, 8, 8), (4, 1, 2, 3, 4)):
        np.save(folder / "a.npy", np.full(shape, 0.5))
        assert data(folder, path="a.npy").inputs.shape == shape


def test_bounds(folder: Path) -> None:
    np.save(folder / "a.npy", 4 * np.ones((2, 3, 4, 4)) - 6)
    found = data(folder, path="a.npy", bounds=[[-3, -2.5, -2], [2, 2, 2]])
    assert found.bounds[0].shape == (3, 1, 1)
    standfast.Model(
        nn.Sequential(nn.Flatten(), nn.Linear(48, 2)), found.bounds, device="cpu"
    ).logits(found.inputs)
    assert data(folder, path="a.npy", bounds=[-2, 2]).bounds == (-2.0, 2.0)
    for bounds in (None, [-1, 1], [[-3, -2.5, -1], [2, 2, 2]], [[-3, -3], [2, 2]]):
        with pytest.raises(StudyFieldError) as caught:
            data(folder, path="a.npy", bounds=bounds)
        assert caught.value.problems[0].path == ("bounds",)


def test_data_from_functions(folder: Path) -> None:
    def found(name: str, **options: Any) -> Samples:
        return data(folder, function=f"module_of_sources:{name}", **options)

    assert found("tensor").inputs.shape == found("array").inputs.shape == (3, 5)
    assert found("array").inputs.dtype == torch.float32
    assert found("pair").targets is None
    assert found("pair", targets="labels").targets.tolist() == [0, 1, 2]
    assert found("dataset", targets="labels", samples=2).targets.tolist() == [0, 1]
    assert (found("samples").targets.tolist(), found("samples").bounds) == ([1, 0, 1], (0.0, 4.0))
    assert found("samples", targets="predicted").targets is None
    assert found("samples", bounds=[0, 8]).bounds == (0.0, 8.0)
    before = torch.get_rng_state()
    # a study that goes on meets the same data
    assert torch.equal(found("noise").inputs, found("noise").inputs)
    assert torch.equal(before, torch.get_rng_state())
    with pytest.raises(StudyFieldError):
        found("tensor", targets="labels")


def test_images_in_a_folder(folder: Path) -> None:
    for name, value in (("b.png", 255), ("a.png", 0), ("c.bmp", 51), (".hidden.png", 7)):
        Image.new("L", (4, 3), value).save(folder / name)
    (folder / "notes.txt").write_text("no image")
    found = data(folder, path=".")
    assert found.inputs.shape == (3, 1, 3, 4)
    assert found.inputs[:, 0, 0, 0].tolist() == pytest.approx([0.0, 1.0, 0.2])
    assert data(folder, path=".", grayscale=False).inputs.shape == (3, 3, 3, 4)
    assert data(folder, path=".", samples=2).inputs.shape[0] == 2
    with pytest.raises(StudyFieldError, match=r"at most the 3 samples"):
        data(folder, path=".", samples=4)
    with pytest.raises(StudyFieldError, match="no labels"):
        data(folder, path=".", targets="labels")


def test_images_of_classes_take_turns(folder: Path) -> None:
    for label, count in (("cat", 1), ("ant", 3)):
        (folder / "images" / label).mkdir(parents=True)
        for number in range(count):
            Image.new("RGB", (2, 2), (number, 0, len(label))).save(
                folder / "images" / label / f"{number}.png"
            )
    (folder / "images" / "empty").mkdir()
    found = data(folder, path="images", targets="labels")
    assert found.about["classes"] == ["ant", "cat"]
    assert found.targets.tolist() == [0, 1, 0, 0]
    assert (255 * found.inputs[:, 0, 0, 0]).round().tolist() == [0, 0, 1, 2]
    Image.new("L", (2, 2)).save(folder / "images" / "stray.png")
    with pytest.raises(StudyFieldError, match="both in images"):
        data(folder, path="images")


def test_kinds_of_images(folder: Path) -> None:
    red = Image.new("RGB", (6, 6), (255, 0, 0))
    for number, image in enumerate(
        (red, red.convert("P"), red.convert("RGBA"), Image.new("L", (6, 6), 76))
    ):
        image.save(folder / f"{number}.png")
    found = read_images(folder).inputs
    assert found.shape == (4, 3, 6, 6)
    assert found[:3, :, 0, 0].tolist() == [[1.0, 0.0, 0.0]] * 3
    gray = read_images(folder, grayscale=True).inputs
    assert gray[:, 0, 0, 0].tolist() == pytest.approx([0.299, 0.299, 0.299, 76 / 255], abs=1e-3)
    (folder / "deep").mkdir()
    Image.fromarray(np.full((3, 3), 13107, dtype=np.uint16)).save(folder / "deep" / "16.png")
    assert read_images(folder / "deep").inputs.flatten().tolist() == pytest.approx([0.2] * 9)


def test_images_are_resized_smoothly(folder: Path) -> None:
    checks = (np.indices((8, 8)).sum(0) % 2 * 255).astype(np.uint8)
    Image.fromarray(checks).save(folder / "a.png")
    Image.new("L", (5, 9)).save(folder / "b.png")
    found = data(folder, path=".", size=[4, 2]).inputs
    assert found.shape == (2, 1, 4, 2)
    # without antialiasing a pixel would be 0 or 1
    assert 0.4 < float(found[0].min()) <= float(found[0].max()) < 0.6


# models


def sources(folder: Path) -> dict[str, ModelSource]:
    module = net()
    save_file(module.state_dict(), folder / "w.safetensors")
    torch.save({"state_dict": module.state_dict(), "epoch": 3}, folder / "w.pt")
    (folder / "scripted.pt").write_bytes(scripted(module))
    (folder / "exported.pt2").write_bytes(exported(module))
    function = "module_of_sources:net"
    entries: dict[str, dict[str, Any]] = {
        "safetensors": {"function": function, "weights": "w.safetensors"},
        "torch": {"function": function, "weights": "w.pt"},
        "scripted": {"path": "scripted.pt"},
        "exported": {"path": "exported.pt2", "trust": True},
        "class": {"function": "module_of_sources:Net"},
        "ready": {"function": "module_of_sources:ready"},
        "seeded": {"function": function, "options": {"width": 3}},
        "shifted": {"path": "scripted.pt", "preprocess": "module_of_sources:shift"},
        "scaled": {
            "path": "exported.pt2",
            "trust": True,
            "preprocess": {"mean": 0.5, "std": [1, 1, 1, 1, 2]},
        },
    }
    return {name: source(folder, **entry) for name, entry in entries.items()}


def test_every_source_gives_the_same_model_anywhere(folder: Path) -> None:
    found = sources(folder)
    expected = standfast.Model(net(), (0.0, 1.0), device="cpu").logits(X)
    copies = {name: pickle.dumps(kind) for name, kind in found.items()}
    for file in folder.glob("*.p*t*"):  # a worker elsewhere has no files
        file.unlink()
    (folder / "w.safetensors").unlink()
    for name, kind in found.items():
        model = kind.model(SAMPLES, "cpu")
        logits = model.logits(X)
        assert torch.equal(logits, pickle.loads(copies[name]).model(SAMPLES, "cpu").logits(X)), name
        assert torch.equal(logits, kind.model(SAMPLES, "cpu").logits(X)), name
        if name in ("safetensors", "torch", "scripted", "exported"):
            assert torch.allclose(logits, expected, atol=1e-6), name
        if name == "shifted":
            assert torch.allclose(logits, net()(X - 0.5), atol=1e-6)
        if name == "scaled":
            assert torch.allclose(
                logits, net()((X - 0.5) / torch.tensor([1.0, 1, 1, 1, 2])), atol=1e-6
            )
        json.dumps(kind.about)
        try_out(kind, SAMPLES)


def test_gradients_flow_through_programs(folder: Path) -> None:
    found = sources(folder)
    for name in ("scripted", "exported", "scaled"):
        model = found[name].model(SAMPLES, "cpu")
        expected = standfast.Model(net(), (0.0, 1.0), model.preprocess, device="cpu")
        for explainer in ("saliency", "integrated_gradients:steps=3"):
            maps = standfast.explainers.get(explainer)(model, X, 1)
            assert torch.allclose(
                maps, standfast.explainers.get(explainer)(expected, X, 1), atol=1e-6
            ), name
        was = model.module.training
        with model.session():
            assert not model.module.training
        assert model.module.training == was


def test_the_zoo(folder: Path) -> None:
    digits = standfast.data.bundled("digits")[:2].inputs
    model = source(folder, **{"lenet5-mnist": None}).model(Samples(digits), "cpu")
    assert torch.equal(model.module(digits), standfast.zoo.load("lenet5-mnist")(digits))


def test_batch_size_is_handed_on(folder: Path) -> None:
    kind = source(folder, function="module_of_sources:net", batch_size=16)
    assert kind.model(SAMPLES, "cpu").batch_size == 16


def test_a_fixed_batch_is_refused(folder: Path) -> None:
    (folder / "fixed.pt2").write_bytes(exported(net(), dynamic=False))
    with pytest.raises(StudyFieldError, match="dynamic batch"):
        try_out(source(folder, path="fixed.pt2", trust=True), SAMPLES)


def test_weights_with_code_are_refused_and_not_run(folder: Path) -> None:
    evil = Evil(folder / "executed")
    buffer = io.BytesIO()
    torch.save({"state_dict": {"a": evil}}, buffer)
    for content in (
        buffer.getvalue(),
        pickle.dumps(evil, protocol=2),
        pickle.dumps(evil, protocol=4),
    ):
        with pytest.raises(standfast.ArgumentError):
            read_weights(content)
    torch.save(net(), buffer := io.BytesIO())  # a whole module is code, too
    with pytest.raises(standfast.ArgumentError, match="could run code"):
        read_weights(buffer.getvalue())
    torch.save([1, 2], buffer := io.BytesIO())
    with pytest.raises(standfast.ArgumentError, match="a list of other things"):
        read_weights(buffer.getvalue())
    assert not (folder / "executed").exists()


def test_exported_programs_with_code_are_refused_and_not_run(folder: Path) -> None:
    def rewritten(change: Any) -> bytes:
        before, after = zipfile.ZipFile(io.BytesIO(exported(net()))), io.BytesIO()
        with zipfile.ZipFile(after, "w") as archive:
            for name in before.namelist():
                archive.writestr(name, change(name, before.read(name)))
        return after.getvalue()

    torch.save(Evil(folder / "executed"), buffer := io.BytesIO())
    evil = buffer.getvalue()

    def weights(name: str, content: bytes) -> bytes:
        if name.endswith("weights_config.json"):
            return content.replace(b'"use_pickle": false', b'"use_pickle": true').replace(
                b'"use_pickle":false', b'"use_pickle":true'
            )
        return evil if "/weights/weight" in name else content

    def inputs(name: str, content: bytes) -> bytes:
        return evil if "sample_inputs" in name and name.endswith(".pt") else content

    for change in (weights, inputs):
        content = rewritten(change)
        (folder / "evil.pt2").write_bytes(content)
        with pytest.raises(StudyFieldError, match="torch can load"):
            try_out(source(folder, path="evil.pt2", trust=True), SAMPLES)
        assert not (folder / "executed").exists()
    with warnings.catch_warnings():  # what would have happened
        warnings.simplefilter("ignore")
        with pytest.raises(Exception):  # noqa: B017
            torch.export.load(io.BytesIO(rewritten(weights)))
    assert (folder / "executed").exists()


def test_messages_of_programs_are_short(folder: Path) -> None:
    found = sources(folder)
    for name in ("scripted", "exported"):
        with pytest.raises(StudyFieldError) as caught:
            try_out(found[name], Samples(torch.rand(3, 7)))
        said = str(caught.value)
        assert "traceback" not in said.lower()
        assert "7" in said


def test_an_exported_program_is_opened_only_if_it_is_trusted(folder: Path) -> None:
    """torch evaluates the expressions of shapes in such a file as Python."""
    text = b"__import__('pathlib').Path('" + str(folder / "executed").encode() + b"').touch() or 2"
    before, after = zipfile.ZipFile(io.BytesIO(exported(net()))), io.BytesIO()
    changed = 0
    with zipfile.ZipFile(after, "w") as archive:
        for name in before.namelist():
            content, count = re.subn(
                rb'("expr_str": *)"[^"]*"', rb'\1"' + text + b'"', before.read(name)
            )
            changed += count
            archive.writestr(name, content)
    assert changed > 0
    (folder / "evil.pt2").write_bytes(after.getvalue())
    with pytest.raises(
        StudyFieldError,
        match=r"expected trust: true beside evil\.pt2, because opening a file of torch\.export",
    ):
        source(folder, path="evil.pt2")
    assert not (folder / "executed").exists()
    with contextlib.suppress(Exception), warnings.catch_warnings():  # what would have happened
        warnings.simplefilter("ignore")
        torch.export.load(io.BytesIO(after.getvalue()))
    assert (folder / "executed").exists()


ESTIMATOR = """
import numpy as np
import torch
import standfast

class Estimator:
    def __init__(self, at=0.5):
        self.at = at
    def predict_proba(self, rows):
        share = np.where(rows[:, 0] > self.at, 0.9, 0.2)
        return np.stack([1 - share, share], axis=1)
    def predict(self, rows):
        return self.predict_proba(rows).argmax(1)

def build(at=0.5): return Estimator(at)
def model():
    return standfast.Model.from_callable(build().predict_proba, (0.0, 2.0), dtype=torch.float64, batch_size=32)
def number(): return 3
fitted = Estimator()
"""


@pytest.fixture
def estimators(folder: Path) -> Iterator[Path]:
    (folder / "module_of_estimators.py").write_text(ESTIMATOR)
    yield folder
    sys.modules.pop("module_of_estimators", None)


def test_an_estimator_is_the_function_predict_proba(estimators: Path) -> None:
    for entry in ("build", "fitted"):
        kind = source(estimators, function=f"module_of_estimators:{entry}", batch_size=64)
        try_out(kind, SAMPLES)
        model = kind.model(SAMPLES, "cpu")
        assert not model.differentiable
        assert model.batch_size == 64
        expected = torch.where(X[:, :1] > 0.5, torch.tensor([0.1, 0.9]), torch.tensor([0.8, 0.2]))
        torch.testing.assert_close(model.logits(X).softmax(1), expected)
    kind = source(estimators, function="module_of_estimators:model")
    model = kind.model(SAMPLES, "cpu")
    assert (model.dtype, model.batch_size, model.bounds[1].item()) == (torch.float64, 32, 2.0)
    with pytest.raises(
        StudyFieldError,
        match="batch_size: expected no such key beside a function that returns a standfast.Model",
    ):
        source(estimators, function="module_of_estimators:model", batch_size=8).model(
            SAMPLES, "cpu"
        )
    with pytest.raises(
        StudyFieldError, match=r"a torch.nn.Module, or an estimator with predict_proba"
    ):
        source(estimators, function="module_of_estimators:number").model(SAMPLES, "cpu")


def test_a_pickle_is_opened_only_if_it_is_trusted(
    estimators: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Touching:
        def __reduce__(self) -> tuple[object, ...]:
            return Path.touch, (estimators / "executed",)

    evil = pickle.dumps(Touching())
    for name in ("evil.pkl", "evil.pickle", "evil.joblib"):
        (estimators / name).write_bytes(evil)
        with pytest.raises(
            StudyFieldError,
            match=rf"expected trust: true beside {name}, because opening a pickle runs",
        ):
            source(estimators, path=name)
    assert not (estimators / "executed").exists()
    with pytest.raises(StudyFieldError, match="an estimator with predict_proba, got none"):
        source(estimators, path="evil.pkl", trust=True).model(SAMPLES, "cpu")
    assert (estimators / "executed").exists()  # what would have happened
    monkeypatch.syspath_prepend(str(estimators))
    from module_of_estimators import build  # type: ignore[import-not-found]

    (estimators / "model.pkl").write_bytes(pickle.dumps(build()))
    wanted = (
        source(estimators, function="module_of_estimators:build").model(SAMPLES, "cpu").logits(X)
    )
    assert torch.equal(
        source(estimators, path="model.pkl", trust=True).model(SAMPLES, "cpu").logits(X), wanted
    )
    joblib = pytest.importorskip("joblib")
    joblib.dump(build(), estimators / "model.joblib", compress=3)
    found = source(estimators, path="model.joblib", trust=True).model(SAMPLES, "cpu")
    assert torch.equal(found.logits(X), wanted)


def test_a_study_of_an_estimator_goes_on_where_it_was(estimators: Path) -> None:
    """What needs gradients fails alone; the same fit is known again, and another one is not."""

    def run(at: float) -> tuple[standfast.Results, int]:
        content = {
            "data": {"rows": {"function": "module_of_sources:array"}},
            "models": {"mine": {"function": "module_of_estimators:build", "options": {"at": at}}},
            "explainers": ["occlusion", "saliency"],
            "metrics": [{"max_sensitivity": {"neighbourhood": {"linf": 0.1}, "samples": 3}}],
            "executor": {"workers": 1},
            "sanity": False,
            "controls": False,
        }
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", message="(?s).*saliency.*no gradients", category=UserWarning
            )
            found = standfast.run_study(
                study_from(content, estimators), estimators / "results", progress=False
            )
        return found, found.run.done

    first, done = run(0.5)
    assert (done, len(first.failures)) == (1, 1)
    assert "has no gradients, got saliency" in first.failures[0]["traceback"]
    assert run(0.5)[1] == 0
    assert run(0.4)[1] == 1


def test_files_of_the_wrong_kind(folder: Path) -> None:
    save_file(net().state_dict(), folder / "w.safetensors")
    torch.save(net().state_dict(), folder / "w.pt")
    for name in ("w.safetensors", "w.pt"):
        with pytest.raises(StudyFieldError, match="looks like weights"):
            source(folder, path=name)
    for old in (False, True):
        torch.save(net(), folder / "whole.pt", _use_new_zipfile_serialization=not old)
        with pytest.raises(
            StudyFieldError,
            match="path: .*'whole.pt', which is a pickled module, .*module.state_dict",
        ):
            source(folder, path="whole.pt")
        with pytest.raises(standfast.ArgumentError, match="weights: .* got a pickled module"):
            read_weights((folder / "whole.pt").read_bytes())
    (folder / "cut.pt2").write_bytes(exported(net())[:-100])
    with pytest.raises(StudyFieldError, match="a TorchScript or torch.export file"):
        source(folder, path="cut.pt2")


def test_seeds_of_a_function_are_models_of_their_own(folder: Path) -> None:
    """`seeds: 3` makes three jobs, whose models are those of the seeds 0, 1 and 2; other options stay."""
    entry = {"function": "module_of_sources:trained", "options": {"width": 5}, "seeds": 3}
    content = {
        "data": {"mine": {"function": "module_of_sources:tensor"}},
        "models": {"net": entry},
        "explainers": ["saliency"],
        "metrics": [{"seed_agreement": {"seeds": 3}}],
        "sanity": False,
        "controls": False,
    }
    found = standfast.run_study(study_from(content, folder), folder / "out", progress=False)
    assert found.samples["model"].unique().sort().to_list() == ["net#0", "net#1", "net#2"]
    agreement = found.agreement()
    assert agreement.variance["trained"].to_list() == [3]
    assert agreement.variance["within model"].to_list() == [0.0]
    assert agreement.variance["between models"].item() > 0.01
    for seed in range(3):
        module = (
            source(folder, function="module_of_sources:trained", options={"width": 5, "seed": seed})
            .model(SAMPLES, "cpu")
            .module
        )
        torch.manual_seed(seed)
        assert torch.equal(next(module.parameters()), nn.Linear(5, 5).weight)
