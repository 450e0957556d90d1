"""`standfast train`: names to weights and card, interruption at any point, refusals, and the result in a study."""

from __future__ import annotations

import hashlib
import io
import json
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from refusals import assert_refused
from ruamel.yaml import YAML
from safetensors.torch import load_file
from torch import Tensor, nn
from typer.testing import CliRunner

from standfast import data
from standfast.cli import app, train
from standfast.cli.train import TrainingPlan
from standfast.data import Dataset
from standfast.errors import (
    ArgumentError,
    ModelError,
    StandfastError,
    UnknownNameError,
    UnknownOptionError,
)
from standfast.study.file.spec import study_from
from standfast.training.classifier import accuracy
from standfast.training.loop import Training
from standfast.zoo import architectures


class Tiny(nn.Module):
    """For images of 6x6 pixels; with everything in it that a checkpoint must keep."""

    def __init__(
        self,
        num_classes: int = 10,
        in_channels: int = 1,
        width: int = 4,
        layers: tuple[int, ...] = (),
    ) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(in_channels, width, 3), nn.BatchNorm2d(width), nn.ReLU(), nn.Flatten()
        )
        sizes = (16 * width, *layers)
        dense = [nn.Linear(one, two) for one, two in pairwise(sizes)]
        self.head = nn.Sequential(nn.Dropout(0.1), *dense, nn.Linear(sizes[-1], num_classes))

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(inputs))
        return logits


def stripes(split: str, download: bool) -> Dataset:
    """Bright rows at the top, in the middle or at the bottom, in noise."""
    count, generator = {"train": 48, "test": 30}[split], torch.Generator().manual_seed(len(split))
    labels = torch.arange(count) % 3
    inputs = 0.5 * torch.rand(count, 1, 6, 6, generator=generator)
    inputs[torch.arange(count), :, 2 * labels] += 0.5
    return Dataset(f"stripes:{split}", inputs, labels, ("top", "middle", "bottom"))


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(architectures._entries, "tiny", Tiny)
    for split in ("train", "test"):
        monkeypatch.setitem(data.datasets._entries, f"stripes:{split}", partial(stripes, split))


def plan(**changes: Any) -> TrainingPlan:
    options = {
        "model": "tiny",
        "epochs": 3,
        "batch_size": 16,
        "learning_rate": 0.02,
        "device": "cpu",
    } | changes
    return TrainingPlan(data="stripes", **options)


def run(out: Path, model: str = "tiny", scheme: str = "natural", **options: object) -> Any:
    """The command, with the options of `plan`."""
    given = {"epochs": 3, "batch_size": 16, "learning_rate": 0.02, "device": "cpu"} | options
    text = ",".join(f"{name}={value}" for name, value in given.items())
    arguments = [
        "--model",
        model,
        "--data",
        "stripes",
        "--scheme",
        scheme,
        "--options",
        text,
        "--out",
        str(out),
    ]
    return CliRunner().invoke(app, ["train", *arguments])


class Interrupt:
    """Ctrl-C in the middle of an epoch: after so many batches in all."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, batches: int) -> None:
        original, left = Training._make_batch, [batches]

        def batch(training: Training, chosen: Tensor, number: int) -> Any:
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt
            return original(training, chosen, number)

        monkeypatch.setattr(Training, "_make_batch", batch)


# the result


def test_weights_and_card(tmp_path: Path) -> None:
    found = train.fit(plan(epochs=8), tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "tiny-stripes-natural.json",
        found.weights.name,
    ]
    card = json.loads((tmp_path / "tiny-stripes-natural.json").read_bytes())
    assert card == found.card
    assert not found.was_there
    wanted = {
        "architecture": "tiny",
        "num_classes": 3,
        "in_channels": 1,
        "epochs": 8,
        "batch_size": 16,
        "seed": 0,
    }
    assert wanted.items() <= card.items()
    assert card["scheme"].startswith("natural: cross-entropy")
    assert set(card["versions"]) == {"torch", "standfast"}
    assert hashlib.sha256(found.weights.read_bytes()).hexdigest() == card["weights_sha256"]
    module = Tiny(num_classes=3)
    module.load_state_dict(load_file(found.weights))
    assert card["parameters"] == sum(parameter.numel() for parameter in module.parameters())
    training, test = (stripes(split, False) for split in ("train", "test"))
    assert card["train_accuracy"] == accuracy(module, training.inputs, training.labels) > 0.9
    assert card["test_accuracy"] == accuracy(module, test.inputs, test.labels) > 0.9


def test_the_same_plan_gives_the_same_bits_and_another_seed_others(tmp_path: Path) -> None:
    torch.manual_seed(1)
    first = train.fit(plan(), tmp_path / "a").weights.read_bytes()
    torch.manual_seed(2)
    assert train.fit(plan(), tmp_path / "b").weights.read_bytes() == first
    assert train.fit(plan(seed=1), tmp_path / "c").weights.read_bytes() != first


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_mixed_precision_runs_in_it(
    tmp_path: Path, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds: set[torch.dtype] = set()
    original = Tiny.forward

    def forward(self: Tiny, inputs: Tensor) -> Tensor:
        logits = original(self, inputs)
        if self.training:
            kinds.add(logits.dtype)
        return logits

    monkeypatch.setattr(Tiny, "forward", forward)
    found = train.fit(plan(precision=precision, epochs=8), tmp_path)
    assert kinds == {train.PRECISIONS[precision]}
    assert {tensor.dtype for tensor in load_file(found.weights).values()} == {
        torch.float32,
        torch.int64,
    }
    assert found.card["test_accuracy"] > 0.9
    assert found.card["options"]["precision"] == precision


def test_what_auto_means(monkeypatch: pytest.MonkeyPatch) -> None:
    assert plan(device="auto").options()["device"] == (
        "cuda" if torch.cuda.is_available() else "cpu"
    )
    assert plan().options()["precision"] == "float32"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    assert plan(device="auto").options()["device"] == "cuda"
    assert plan(device="cuda:0").options()["precision"] == "bfloat16"
    assert plan(device="cuda", scheme="pgd").options()["precision"] == "bfloat16"
    assert plan(device="cuda", scheme="gradient_hessian").options()["precision"] == "float32"
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: False)
    assert plan(device="cuda").options()["precision"] == "float32"


# interruption


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"scheme": "gradient_hessian:hessian_weight=0.05", "augment": "shift_flip"},
        {"scheme": "pgd:radius=0.1,steps=2,warm_up=2", "precision": "bfloat16"},
        {"precision": "float16"},
    ],
    ids=["natural", "hessian", "pgd", "float16"],
)
def test_an_interrupted_training_ends_with_the_same_bits(
    tmp_path: Path, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train.fit(plan(**changes), tmp_path / "whole").weights
    # of 9, three in an epoch: before anything is kept, in the second epoch, in the third
    for batches in (
        2,
        4,
        8,
    ):
        out = tmp_path / str(batches)
        with monkeypatch.context() as patch:
            Interrupt(patch, batches)
            with pytest.raises(KeyboardInterrupt):
                train.fit(plan(**changes), out)
        left = {file.name for file in out.iterdir()} if out.exists() else set()
        assert left == ({f"{whole.stem}.checkpoint"} if batches >= 3 else set())
        torch.manual_seed(batches)
        found = train.fit(plan(**changes), out)
        assert found.weights.read_bytes() == whole.read_bytes()
        assert sorted(file.suffix for file in out.iterdir()) == [".json", ".safetensors"]


def test_a_crash_while_the_result_is_written_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: object) -> None:
        raise OSError("disk full")

    whole = train.fit(plan(), tmp_path / "whole").weights.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(train, "accuracy", broken)
        with pytest.raises(OSError, match="disk full"):
            train.fit(plan(), tmp_path / "broken")
    monkeypatch.setattr(Training, "_run_epoch", broken)  # nothing is left to train
    assert train.fit(plan(), tmp_path / "broken").weights.read_bytes() == whole


def test_changed_options_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        Interrupt(patch, 4)
        with pytest.raises(KeyboardInterrupt):
            train.fit(plan(), tmp_path)
    changed = plan(epochs=4, seed=1)
    complaint = r"natural.checkpoint was made with .* got epochs is 3 there and 4 now; seed is 0 there and 1 now"
    with pytest.raises(ArgumentError, match=complaint):
        train.fit(changed, tmp_path)
    train.fit(plan(), tmp_path)
    with pytest.raises(ArgumentError, match="natural.json was made with"):
        train.fit(changed, tmp_path)


def test_files_that_are_not_ours_are_not_taken_for_it(tmp_path: Path) -> None:
    class Code:
        def __reduce__(self) -> Any:
            return (Path(tmp_path / "ran").touch, ())

    def pack(content: object) -> bytes:
        stream = io.BytesIO()
        torch.save(content, stream)
        return hashlib.sha256(stream.getvalue()).digest() + stream.getvalue()

    checkpoint, options = tmp_path / "tiny-stripes-natural.checkpoint", plan().options()
    contents = [
        {"format": 1, "options": options, "training": each}
        for each in (Code(), {}, [1], {"module": {}})
    ]
    good = bytearray(pack({"format": 1, "options": [1], "training": {}}))
    flipped = bytearray(good)
    flipped[len(flipped) // 2] ^= 1
    for stored in (b"something else", good, flipped, *map(pack, contents)):
        checkpoint.write_bytes(stored)
        with pytest.raises(StandfastError, match="is damaged, or no checkpoint of this version"):
            train.fit(plan(), tmp_path)
    assert not (tmp_path / "ran").exists()
    checkpoint.unlink()
    found = train.fit(plan(epochs=1), tmp_path)
    found.weights.write_bytes(b"other weights")
    with pytest.raises(StandfastError, match=r"is not what tiny-stripes-natural.json describes"):
        train.fit(plan(epochs=1), tmp_path)
    found.weights.with_suffix(".json").write_bytes(b"{}")
    with pytest.raises(StandfastError, match=r"is no card of a training"):
        train.fit(plan(epochs=1), tmp_path)


def test_a_flipped_bit_in_the_numbers_of_a_checkpoint_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        Interrupt(patch, 4)
        with pytest.raises(KeyboardInterrupt):
            train.fit(plan(), tmp_path)
    (checkpoint,) = tmp_path.iterdir()
    content = bytearray(checkpoint.read_bytes())
    content[len(content) // 2] ^= 1
    checkpoint.write_bytes(content)
    with pytest.raises(StandfastError, match="damaged"):
        train.fit(plan(), tmp_path)


def test_a_folder_that_cannot_be_written_is_told_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Training, "_run_epoch", lambda *arguments: pytest.fail("trained"))
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(OSError, match="file"):
        train.fit(plan(), tmp_path / "file")


# what is refused


def test_plans_are_checked() -> None:
    assert_refused(
        plan, scheme=["natrual"], precision=["half"], device=["gpu", "cuda:99"], seed=[-1]
    )


def test_models_and_data_are_checked(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="architecture: expected one of"):
        TrainingPlan("lenet6", "stripes")
    with pytest.raises(
        UnknownOptionError,
        match=r"widht: expected an option of tiny: width, layers, .* mean 'width'",
    ):
        TrainingPlan("tiny:widht=3", "stripes")
    with pytest.raises(UnknownOptionError, match="num_classes: expected an option of tiny"):
        TrainingPlan("tiny:num_classes=3", "stripes")
    with pytest.raises(
        ArgumentError, match=r"model: expected options that tiny can have, got tiny:width='a': "
    ):
        train.fit(plan(model="tiny:width=a"), tmp_path)
    with pytest.raises(UnknownNameError, match="stripse:train"):
        train.fit(TrainingPlan("tiny", "stripse"), tmp_path)
    with pytest.raises(ModelError, match=r"lenet5 does not take inputs of shape \(1, 6, 6\)"):
        train.fit(TrainingPlan("lenet5", "stripes", device="cpu"), tmp_path)
    fit = lambda **change: train.fit(plan(**change), tmp_path)  # noqa: E731
    refused = {
        "epochs": [0],
        "batch_size": [0],
        "learning_rate": [-1.0],
        "weight_decay": [-1.0],
        "optimizer": ["sgd"],
    }
    assert_refused(fit, **refused)
    assert list(tmp_path.iterdir()) == []


# the command and the study


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        Interrupt(patch, 4)
        stopped = run(tmp_path, scheme="gradient_hessian:hessian_weight=0")
    assert stopped.exit_code == 130
    assert "epoch 1 of 3: loss" in stopped.output
    done = run(tmp_path, scheme="gradient_hessian:hessian_weight=0")
    assert done.exit_code == 0, done.output
    assert "1 of 3 epochs were done before" in done.output
    assert "epoch 2 of 3: loss" in done.output
    assert "epoch 1 of 3" not in done.output
    assert "tiny-stripes-gradient-hessian.safetensors" in done.output
    again = run(tmp_path, scheme="gradient_hessian:hessian_weight=0")
    assert "exists already" in again.output
    for wrong in ({"seed": 1}, {"epoch": 3}, {"epochs": "many"}):
        assert isinstance(
            run(tmp_path, scheme="gradient_hessian:hessian_weight=0", **wrong).exception,
            ArgumentError,
        )
    for kind, name in (("schemes", "gradient_hessian"), ("architectures", "tiny")):
        assert name in CliRunner().invoke(app, ["list", kind]).output.split()


def test_width_and_depth_are_options_of_the_model(tmp_path: Path) -> None:
    """From the command line into the weights, the card and a study."""
    done = run(tmp_path, "tiny: layers=(5,7), width=3", epochs=1)
    assert done.exit_code == 0, done.output
    (file,) = tmp_path.glob("*.safetensors")
    assert file.name == "tiny-layers-5-7-width-3-stripes-natural.safetensors"
    shapes = {name: tuple(tensor.shape) for name, tensor in load_file(file).items()}
    assert (shapes["features.0.weight"], shapes["head.1.weight"]) == ((3, 1, 3, 3), (5, 48))
    assert (shapes["head.2.weight"], shapes["head.3.weight"]) == ((7, 5), (3, 7))
    card = json.loads(file.with_suffix(".json").read_text())
    assert (card["architecture"], card["architecture_options"]) == (
        "tiny",
        {"layers": [5, 7], "width": 3},
    )
    again = train.fit(
        TrainingPlan(
            "tiny:width=3,layers=(5, 7)", "stripes", epochs=1, batch_size=16, learning_rate=0.02
        ),
        tmp_path,
    )
    assert again.was_there, "the same options in another order"
    models = {"mine": yaml_entry(again.study_entry())}
    assert models["mine"]["options"] == {
        "num_classes": 3,
        "in_channels": 1,
        "layers": [5, 7],
        "width": 3,
    }
    metrics: list[Any] = [{"max_sensitivity": {"samples": 2, "neighbourhood": {"linf": 0.1}}}]
    content = {
        "data": ["stripes:test"],
        "models": models,
        "explainers": ["saliency"],
        "metrics": metrics,
    }
    source = study_from(content, tmp_path).grid().models["mine"]
    built = source.entry.build(source.base, "cpu", source.content)
    assert all(
        torch.equal(tensor, load_file(file)[name]) for name, tensor in built.state_dict().items()
    )


def yaml_entry(text: str) -> Any:
    return YAML(typ="safe").load(text)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weights": None}, r"models\.mine\.weights: .*, got nothing"),
        (
            {"architecture": "tinny"},
            r"(?s)models\.mine\.architecture: .* got\s+'tinny'\s+.did\s+you\s+mean",
        ),
        ({"options": {"classes": 3}}, "options of tiny, such as num_classes"),
        ({"options": {"num_classes": 4}}, "weights that fit the Tiny"),
    ],
)
def test_an_entry_that_does_not_fit_is_refused(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    found = train.fit(plan(epochs=1), tmp_path)
    entry = yaml_entry(found.study_entry())
    assert entry["weights"] == "tiny-stripes-natural.safetensors"
    chosen = {key: value for key, value in (entry | changes).items() if value is not None}
    content = {"data": ["stripes:test"], "models": {"mine": chosen}, "explainers": ["saliency"]}
    with pytest.raises(StandfastError, match=message):
        study_from({**content, "metrics": ["aopc"]}, tmp_path).grid()
