"""Model: flags restored, rows bounded, equal bits whatever the batch size, and errors that show what was given."""

from __future__ import annotations

import random
import subprocess
import sys
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from refusals import assert_refused
from torch import Tensor, nn
from torch.utils.data import DataLoader, Subset, TensorDataset

import standfast
from conftest import SHAPES, small_net
from standfast import Model, explainers
from standfast.errors import ArgumentError, ModelError
from standfast.explainers.gradients.surrogates import smooth_relu

BATCH = TensorDataset(torch.rand(3, 4), torch.zeros(3))


def linear(features: int = 4, classes: int = 3) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(features, classes))


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_same_bits_whatever_the_batch_size(shape: tuple[int, ...]) -> None:
    x = torch.rand(77, *shape)
    results = []
    for rows in (1, 3, 8, 16, 24, 100, 500):
        model = Model(small_net(shape), (0.0, 1.0), device="cpu", batch_size=rows)
        maps = explainers.get("input_x_gradient")(model, x)
        results.append((model.logits(x), maps))
        assert torch.equal(model.logits(x.flip(0)).flip(0), results[0][0])
        assert torch.equal(model.logits(x[40:43]), results[0][0][40:43])
    assert all(torch.equal(a, results[0][0]) and torch.equal(b, results[0][1]) for a, b in results)
    whole = small_net(shape).eval()(x)
    assert torch.allclose(results[0][0], whole, atol=1e-5)


@pytest.mark.parametrize("width", [9, 13])
def test_odd_widths_give_a_row_the_same_bits_at_any_place(width: int) -> None:
    """Here MKL's products depend on where in memory a row lies (unless told not to), and so does torch's softplus."""
    torch.manual_seed(0)
    layers = (
        nn.Linear(5, width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, 3),
    )
    model = Model(nn.Sequential(*layers), (0.0, 1.0), device="cpu", batch_size=64)
    x = torch.rand(32, 5)

    def directions(x: Tensor) -> Tensor:
        with smooth_relu(), torch.enable_grad():
            leaf = x.clone().requires_grad_(True)
            (gradient,) = torch.autograd.grad(
                model.forward(leaf)[:, 0].sum(), leaf, create_graph=True
            )
            (found,) = torch.autograd.grad((gradient * gradient).sum(), leaf)
        return found

    logits, whole = model.logits(x), directions(x)
    for start in range(17):
        rows = slice(start, start + 16)
        assert torch.equal(model.logits(x[rows].clone()), logits[rows])
        assert torch.equal(directions(x[rows].clone()), whole[rows])


def test_work_is_cut_by_forwarded_rows() -> None:
    sizes: list[int] = []

    class Counting(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            sizes.append(len(x))
            return super().forward(x)

    model = Model(Counting(4, 3), (0.0, 1.0), batch_size=64, device="cpu")
    model.logits(torch.rand(200, 4))
    assert sizes == [64, 64, 64, 16]
    sizes.clear()
    explainers.get("integrated_gradients", steps=15)(model, torch.rand(20, 4))
    assert max(sizes) <= 64
    assert sum(sizes) >= 20 * 16
    sizes.clear()
    explainers.get("integrated_gradients", steps=500)(model, torch.rand(2, 4))
    assert max(sizes) <= 64


def test_flags_are_as_they_were_also_after_an_exception() -> None:
    module = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.BatchNorm1d(4), nn.Linear(4, 3))
    module.train()
    module[2].eval()
    module[3].bias.requires_grad_(False)
    flags = [m.training for m in module.modules()], [p.requires_grad for p in module.parameters()]
    statistics = module[2].running_mean.clone()
    model = Model(module, (0.0, 1.0), device="cpu")
    x = torch.rand(6, 4)
    assert torch.equal(model.logits(x), model.logits(x))  # dropout is off inside
    with pytest.raises(RuntimeError, match="stop"), model.session(), model.session():
        assert not module.training
        assert not any(p.requires_grad for p in module.parameters())
        raise RuntimeError("stop")
    with pytest.raises(ModelError):
        model.logits(torch.rand(6, 5))
    assert (
        [m.training for m in module.modules()],
        [p.requires_grad for p in module.parameters()],
    ) == flags
    assert torch.equal(module[2].running_mean, statistics)


class Switched(nn.Linear):
    """Has a mode beside the flag, which only its own `train` changes."""

    mode = True

    def train(self, mode: bool = True) -> Switched:
        self.mode = mode
        return super().train(mode)


class Fixed(nn.Linear):
    """Refuses to change its mode, as an exported program does."""

    def train(self, mode: bool = True) -> Fixed:
        raise NotImplementedError


@pytest.mark.parametrize("training", [True, False])
def test_modes_change_beside_a_module_that_refuses(training: bool) -> None:
    module = nn.Sequential(nn.Sequential(Fixed(4, 4)), Switched(4, 4), nn.Linear(4, 3))
    module[1].train(training)
    flags = [m.training for m in module.modules()]
    model = Model(module, (0.0, 1.0), device="cpu")
    for _ in range(2):
        with model.session():
            assert not module[1].mode
            assert not any(m.training for m in module.modules())
        assert module[1].mode == training
        assert [m.training for m in module.modules()] == flags


def test_a_transfer_that_fails_keeps_the_watcher(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model(linear(), (0.0, 1.0), device="cpu", batch_size=16)
    seen: list[int] = []

    def fail(*_: object) -> Tensor:
        raise RuntimeError("no transfer")

    with model.watch(seen.append):
        with monkeypatch.context() as patch, pytest.raises(ModelError, match="no transfer"):
            patch.setattr(Tensor, "to", fail)
            model.map_rows(lambda x: (x,), torch.rand(3, 4))
        model.logits(torch.rand(3, 4))
    assert seen == [3]


def test_a_row_budget_is_found_once_for_each_shape() -> None:
    model = Model(linear(), (0.0, 1.0), device="cpu")
    model.logits(torch.rand(10, 4))
    assert model._budgets == {}
    model.logits(torch.rand(1000, 4))
    (key,) = model._budgets
    assert key == ((4,), "forward")
    assert 16 <= model._budgets[key] <= 8192


def test_a_few_photos_are_no_reason_for_a_large_batch() -> None:
    rows: list[int] = []
    module = nn.Sequential(nn.AvgPool2d(32), nn.Flatten(), nn.Linear(147, 3))
    nn.init.constant_(module[2].bias, 2.0)  # outputs within [0, 1] are looked at in one more pass
    module.register_forward_hook(lambda _module, args, _out: rows.append(len(args[0])))
    model = Model(module, (0.0, 1.0), device="cpu")
    model.logits(torch.zeros(16, 3, 224, 224))
    assert model._budgets == {}  # 16 rows are the smallest batch there is
    assert rows == [16]
    model.logits(torch.zeros(40, 3, 224, 224))
    assert set(model._budgets) == {((3, 224, 224), "forward")}


def test_the_number_of_rows_follows_from_the_module_and_not_from_the_time() -> None:
    def rows(width: int) -> int:
        model = Model(
            nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 3)),
            (0.0, 1.0),
            device="cpu",
        )
        return model.row_budget(torch.zeros(1, 4), count=10**6)

    # 2 x width + 3 numbers of 4 bytes each; a power of two that fits into 16 MB, at least 16 and at most 8,192
    assert [rows(width) for width in (8, 10_000, 1_000_000)] == [8192, 128, 16]
    assert rows(10_000) == rows(10_000)


def test_modules_may_start_in_place_or_ignore_their_input() -> None:
    in_place = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 3))
    x = torch.rand(300, 4)
    assert explainers.get("saliency")(Model(in_place, (0.0, 1.0), device="cpu"), x).shape == x.shape

    class Constant(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.tensor([[1.0, 0.0]]).repeat(len(x), 1)

    constant = Model(Constant(), (0.0, 1.0), device="cpu")
    assert not explainers.get("occlusion")(constant, x[:20]).any()
    with pytest.raises(ModelError, match="logits have no gradients"):
        explainers.get("saliency")(constant, x)


def test_bounds_of_other_units_than_the_inputs_are_warned_of_once() -> None:
    model = Model(nn.Linear(4, 3), (0.0, 255.0), device="cpu")
    with pytest.warns(
        UserWarning, match=r"use less than 1% of the bounds \[0, 255\]. Do both have the same units"
    ):
        model.warn_of_units(torch.rand(5, 4))
    for fine in (torch.rand(5, 4), torch.rand(1, 4), torch.zeros(5, 4), 255 * torch.rand(5, 4)):
        model.warn_of_units(fine)
    Model(nn.Linear(4, 3), (-torch.inf, torch.inf), device="cpu").warn_of_units(torch.rand(5, 4))


class Greedy(nn.Linear):
    """Runs out of memory above some number of rows, as a GPU would."""

    most = 20

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if len(x) > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return super().forward(x)


@pytest.mark.parametrize("batch_size", ["auto", 512])
def test_rows_are_halved_when_memory_runs_out(batch_size: int | str) -> None:
    model = Model(Greedy(4, 3), (0.0, 1.0), device="cpu", batch_size=batch_size)  # type: ignore[arg-type]
    x = torch.rand(300, 4)
    with torch.no_grad():
        expected = nn.functional.linear(x, model.module.weight, model.module.bias)
    with pytest.warns(UserWarning, match="memory ran out"):
        assert torch.allclose(model.logits(x), expected, atol=1e-6)
    assert model.row_budget(x, kind="forward") <= 20
    model.module.most = 0
    with (
        pytest.warns(UserWarning, match="memory ran out"),
        pytest.raises(ModelError, match="expected one input of shape \\(4,\\) to fit into memory"),
    ):
        model.logits(x)


_LIMITED = """
import resource
import sys
import torch
from torch import nn
import standfast

torch.set_num_threads(1)
rows = []
layers = [nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 3)]
module = nn.Sequential(*layers)
module.register_forward_hook(lambda _module, args, _out: rows.append(len(args[0])))
x, saliency = torch.rand(20, 3, 224, 224), standfast.explainers.get("saliency")
expected = saliency(standfast.Model(module, (0.0, 1.0), device="cpu", batch_size=10), x)
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 250_000_000,) * 2)
for batch_size in (20, "auto"):
    rows.clear()
    model = standfast.Model(module, (0.0, 1.0), device="cpu", batch_size=batch_size)
    assert torch.equal(saliency(model, x), expected)
    assert max(rows) < 20, rows
    print(batch_size, rows)
assert "torch._dynamo" not in sys.modules  # nothing is compiled, and the import takes a second
"""


@pytest.mark.skipif(sys.platform != "linux", reason="a limit of the address space")
def test_a_limit_of_memory_is_kept() -> None:
    """A batch of 20 photos needs 385 MB in this network: an activation of 128 MB, that of its ReLU, and a gradient."""
    done = subprocess.run(
        [sys.executable, "-c", _LIMITED], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("20 [")


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (
            lambda x: (x, x),
            r"got a tuple of a tensor of shape \(N, 4\), a tensor of shape \(N, 4\)",
        ),
        (lambda x: x[:, 0], r"got a tensor of shape \(N,\) for inputs of shape \(N, 4\)"),
        (lambda x: x[:, :1], r"got a tensor of shape \(N, 1\)"),
        (
            lambda x: x[:3],
            r"got a tensor of shape \(3, 4\) for a batch of N = 16 \(small batches are padded\)",
        ),
        (
            lambda x: x * float("nan"),
            "expected finite logits, got NaN or infinity for 5 of 5 inputs",
        ),
    ],
)
def test_modules_that_are_no_classifiers(output: object, message: str) -> None:
    class Odd(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return output(super().forward(x))  # type: ignore[operator]

    with pytest.raises(ModelError, match=message):
        Model(Odd(4, 4), (0.0, 1.0), device="cpu").logits(torch.rand(5, 4))


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([[0.5]], "inputs: expected a torch.Tensor, got list$"),
        (
            np.zeros((3, 4)),
            r"inputs: expected a torch.Tensor, got ndarray: use torch.from_numpy\(x\).float\(\)",
        ),
        (
            (torch.rand(3, 4), torch.zeros(3)),
            "got tuple: give the inputs alone, or a standfast.data.Dataset",
        ),
        (
            DataLoader(BATCH),
            r"got DataLoader: use one batch, such as x, labels = next\(iter\(loader\)\)",
        ),
        (BATCH, r"got TensorDataset: use dataset.tensors\[0\]"),
        (Subset(BATCH, [0]), r"got Subset: use torch.stack\(\[x for x, _ in dataset\]\)"),
        (
            pd.DataFrame(np.zeros((3, 4))),
            r"got DataFrame: use torch.tensor\(frame.to_numpy\(\), dtype=torch.float32\)",
        ),
        (torch.rand(3, 4, dtype=torch.float64), r"got torch.float64: use x.float\(\)$"),
        (
            torch.zeros(3, 4, dtype=torch.int64),
            r"got torch.int64: use x.float\(\); for token ids, .*Emb",
        ),
        (torch.zeros(3, 4, dtype=torch.uint8), r"got torch.uint8: use x.float\(\), divided by 255"),
        (
            torch.rand(4),
            r"inputs: expected a non-empty batch of shape \(N, ...\), got shape \(4,\)",
        ),
        (torch.rand(0, 4), r"non-empty batch .* got shape \(0, 4\)"),
        (
            torch.rand(3, 4) + 1,
            r"inputs: expected values within the bounds \[0, 1\], got values in \[1",
        ),
        (
            torch.full((3, 4), torch.nan),
            "inputs: expected finite values .*impute.*, got NaN or infinity",
        ),
    ],
)
def test_bad_inputs(inputs: object, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        Model(linear(), (0.0, 1.0), device="cpu").logits(inputs)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("inner", "shape", "use"),
    [
        ((3, 8, 8), (2, 8, 8, 3), "x.movedim(-1, 1)"),
        ((3, 8, 8), (3, 8, 8), "x[None]"),
        ((3, 8, 8), (8, 8, 3), "x.movedim(-1, 0)[None]"),
        ((1, 8, 8), (4, 8, 8), "x[:, None]"),
        ((1, 8, 8), (8, 8), "x[None, None]"),
        ((3, 20), (5, 20, 3), "x.movedim(-1, 1)"),
        ((3, 20), (20, 3), "x.movedim(-1, 0)[None]"),
        ((1, 20), (5, 20), "x[:, None]"),
        ((3, 8, 8), (2, 3, 9, 3), ""),  # a wrong size, but not wrong axes
        ((3, 8, 8), (2, 5, 8, 8), ""),
    ],
)
def test_the_layout_that_the_module_takes_is_found(
    inner: tuple[int, ...], shape: tuple[int, ...], use: str
) -> None:
    kind = nn.Conv2d if len(inner) == 3 else nn.Conv1d
    module = nn.Sequential(kind(inner[0], 2, 3), nn.Flatten(), nn.LazyLinear(2))
    module(torch.rand(1, *inner))
    model, x = Model(module, (0.0, 1.0), device="cpu"), torch.rand(shape)
    for call in (
        model.logits,
        lambda x: explainers.get("saliency")(model, x),
        lambda x: standfast.metrics.AOPC(steps=2)(model, "saliency", x),
        lambda x: standfast.evaluate(model, "saliency", x, "aopc", controls=False, progress=False),
    ):
        with pytest.raises(
            ArgumentError if use else ModelError, match="module: failed on inputs"
        ) as caught:
            call(x)
        assert (f"of shape {shape}: use {use} (" in str(caught.value)) == bool(use)
        assert "use x" not in str(caught.value) or use
    if use:
        assert model.logits(eval(use, {"x": x})).shape[1] == 2


def test_a_shape_the_module_cannot_take() -> None:
    """The shape is the user's; what torch says follows, with the size of the batch where it is another one."""
    model, x = Model(linear(), (0.0, 1.0), device="cpu"), torch.rand(2, 5)
    start = r"module: failed on inputs of shape \(2, 5\), dtype torch.float32. It says"
    with pytest.raises(ModelError, match=rf"{start}: .*mat1.*\(2x5 "):
        model.logits(x)
    with (
        pytest.raises(ModelError, match=rf"{start}, of a batch of 1: .*mat1.*\(1x5 "),
        model.naming(x),
    ):
        model.logits(x[:1])


def test_bad_constructor_arguments() -> None:
    def make(**arguments: object) -> object:
        return Model(**({"module": linear(), "bounds": (0.0, 1.0)} | arguments))

    assert_refused(
        make, bounds=[(1.0, 0.0), (torch.tensor([0.0, 0.5, 2.0]), torch.tensor([1.0, 0.5, 1.0])), 3]
    )
    assert_refused(make, batch_size=[0, True], module=[len], preprocess=[1])


@pytest.mark.parametrize(
    "value",
    [
        torch.rand(9, 9),
        torch.rand(40, dtype=torch.float64),
        np.ones((30, 3)),
        [0.5] * 500,
        [torch.rand(3)] * 99,
    ],
    ids=lambda value: type(value).__name__,
)
def test_no_error_prints_a_whole_tensor(value: Any) -> None:
    model, x = Model(linear(), (0.0, 1.0), device="cpu"), torch.rand(3, 4)
    for call in (
        lambda: Model(linear(), value, device="cpu"),
        lambda: Model(linear(), (value, "a"), device="cpu"),  # type: ignore[arg-type]
        lambda: Model(linear(), (0.0, 1.0), batch_size=value),
        lambda: standfast.LinfBall(value),
        lambda: standfast.metrics.MaxSensitivity(standfast.LinfBall(0.1), samples=value),
        lambda: standfast.metrics.get(value),
        lambda: explainers.get(value),
        lambda: explainers.get("saliency")(model, x, value),
        lambda: standfast.data.Dataset("d", x, torch.zeros(3, dtype=torch.int64), value),
    ):
        with pytest.raises(standfast.StandfastError) as caught:
            call()
        assert len(str(caught.value)) < 400


def test_bounds_per_channel_and_preprocess() -> None:
    mean, std = torch.tensor([0.4, 0.5])[:, None, None], torch.tensor([0.2, 0.1])[:, None, None]
    module = linear(8)
    x = torch.rand(5, 2, 2, 2)
    outside = Model(module, (0.0, 1.0), preprocess=lambda v: (v - mean) / std, device="cpu")
    inside = Model(module, ((0 - mean) / std, (1 - mean) / std), device="cpu")
    assert torch.allclose(outside.logits(x), inside.logits((x - mean) / std), atol=1e-5)
    gradients = [
        explainers.get("saliency")(c, v) for c, v in ((outside, x), (inside, (x - mean) / std))
    ]
    assert torch.allclose(gradients[0], gradients[1] / std, atol=1e-4)


def test_bounds_must_not_enlarge_the_input() -> None:
    model = Model(linear(), (torch.zeros(3, 1, 1), torch.ones(3, 1, 1)), device="cpu")
    with pytest.raises(
        ArgumentError, match=r"a sample shape that bounds of shape \(3, 1, 1\) broadcast to"
    ):
        model.logits(torch.rand(2, 1, 2, 2))
    with pytest.raises(
        ArgumentError, match=r"axes are swapped.* of shape \(2, 4, 4, 3\): use x.movedim\(-1, 1\)"
    ):
        model.logits(torch.rand(2, 4, 4, 3))


def test_half_precision_inputs_are_checked_too() -> None:
    for dtype, other in ((torch.bfloat16, torch.float16), (torch.float16, torch.bfloat16)):
        model = Model(linear().to(dtype), (0.0, 1.0), device="cpu")
        x = torch.rand(2, 4).to(dtype)
        assert torch.equal(model.check_inputs(x), x.float())
        assert torch.equal(model.logits(x), model.logits(x.float()))
        assert model.logits(x).dtype == torch.float32
        with pytest.raises(ArgumentError, match=r"values within the bounds \[0, 1\]"):
            model.logits(x + 1)
        with pytest.raises(ArgumentError, match=f"inputs: expected dtype torch.float32 or {dtype}"):
            model.logits(x.to(other))


def test_targets() -> None:
    model = Model(linear(), (0.0, 1.0), device="cpu")
    x = torch.rand(3, 4)
    assert torch.equal(model.check_targets(None, x), model.predict(x))
    assert model.check_targets(2, x).tolist() == [2, 2, 2]
    for bad, message in (
        (3, "classes from 0 to 2"),
        (torch.tensor([0, 1]), "shape"),
        (torch.rand(3), "whole numbers"),
    ):
        with pytest.raises(ArgumentError, match=message):
            model.check_targets(bad, x)


def test_float64_modules_and_no_mutation() -> None:
    model = Model(linear().double(), (0.0, 1.0), device="cpu")
    x = torch.rand(3, 4, dtype=torch.float64)
    before = x.clone()
    assert model.logits(x).dtype == torch.float64
    assert torch.equal(x, before)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu() -> None:
    model = Model(small_net((1, 8, 8)), (0.0, 1.0))
    assert model.device.type == "cuda"
    x = torch.rand(300, 1, 8, 8)
    on_cpu = Model(small_net((1, 8, 8)), (0.0, 1.0), device="cpu").logits(x)
    assert torch.allclose(model.logits(x).cpu(), on_cpu, atol=1e-4)


def test_watch_counts_the_inputs_of_the_outermost_call_only() -> None:
    """An explainer that runs the model within a chunk makes no evaluations of its own."""
    model = Model(
        nn.Sequential(nn.Flatten(), nn.Linear(4, 3)), (0.0, 1.0), device="cpu", batch_size=16
    )

    def run(x: Tensor) -> tuple[Tensor]:
        return (model.map_rows(lambda y: (model.forward(y),), torch.cat([x, x]))[0][: len(x)],)

    seen: list[int] = []
    with model.session(), model.watch(seen.append), torch.no_grad():
        model.map_rows(run, torch.rand(20, 4))
    model.logits(torch.rand(3, 4))
    assert seen == [16, 4]


def test_watch_may_stop_what_runs_and_is_over_then() -> None:
    model = Model(
        nn.Sequential(nn.Flatten(), nn.Linear(4, 3)), (0.0, 1.0), device="cpu", batch_size=16
    )

    def stop(count: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), model.watch(stop):
        model.logits(torch.rand(20, 4))
    assert model.logits(torch.rand(20, 4)).shape == (20, 3)

    def fail(x: Tensor) -> tuple[Tensor]:
        raise ValueError("no")

    seen: list[int] = []
    with model.watch(seen.append):
        with pytest.raises(ValueError, match="no"):
            model.map_rows(fail, torch.rand(20, 4))
        model.logits(torch.rand(3, 4))
    assert seen == [3]


def test_outputs_like_probabilities_are_warned_of_once() -> None:
    model = Model(nn.Sequential(linear(), nn.Softmax(1)), (0.0, 1.0), device="cpu")
    with pytest.warns(
        UserWarning, match="outputs look like probabilities .*return logits, without softmax"
    ) as caught:
        model.logits(torch.rand(5, 4))
    assert caught[0].filename == __file__  # the user's line, not one of standfast
    model.logits(torch.rand(5, 4))  # a second warning would be an error
    logits = Model(linear(), (0.0, 1.0), device="cpu")
    logits.logits(torch.rand(5, 4))


def split(z: torch.Tensor) -> torch.Tensor:
    """Two classes of one number `(N, 1)`."""
    return torch.cat([-z, z], 1) / 2


def write(out: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    """The first columns of `out` replaced, in place."""
    out[:, : columns.shape[1]] = columns
    return out


ALIKE: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], str]] = {
    "sigmoids": (torch.sigmoid, "several labels"),
    "clamped": (lambda z: torch.special.expit(z).clamp(1e-6, 1 - 1e-6), "several labels"),
    "in single precision": (
        lambda z: nn.functional.hardsigmoid(z).double().float(),
        "several labels",
    ),
    "saturated": (lambda z: (1e9 * z + 1e9).sigmoid(), "several labels"),
    "two softmaxes": (lambda z: z.reshape(-1, 2, 2).softmax(2).flatten(1), "several labels"),
    "by logarithms": (lambda z: nn.functional.logsigmoid(z).exp(), "several labels"),
    "written in place": (
        lambda z: write(torch.zeros(len(z), 3), z[:, :2].sigmoid()),
        "several labels",
    ),
    "one probability": (lambda z: split(z[:, :1].sigmoid()), "class 1 always wins"),
    "its negative, not halved": (lambda z: 2 * split(z[:, :1].sigmoid()), "class 1 always wins"),
    "beside zero": (
        lambda z: torch.stack([torch.zeros(len(z)), z[:, 1].sigmoid()], 1),
        "several labels",
    ),
    "logits that are in [0, 1]": (lambda z: 0.01 * z + 0.5, ""),
    "one logit that is in [0, 1]": (lambda z: split(0.01 * z[:, :1] + 0.5), ""),
    "logits made of a sigmoid": (lambda z: 20 * (z.sigmoid() - 0.5), ""),
    "a gate": (lambda z: (0.01 * z + 0.5) * z.sigmoid(), ""),
    "logarithms of both": (
        lambda z: torch.stack([1 - z[:, 0].sigmoid(), z[:, 0].sigmoid()], 1).log(),
        "",
    ),
}


@pytest.mark.parametrize("name", ALIKE)
def test_sigmoids_are_told_from_logits(name: str) -> None:
    """By the last functions, also of one sample, because logits of untrained networks are often within [0, 1]."""
    function, words = ALIKE[name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module, x = nn.Linear(4, 4), torch.rand(5, 4)
    for rows in (x, x[:1]):
        model = Model(module, (0.0, 1.0), device="cpu", forward=lambda layer, x: function(layer(x)))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            logits = model.logits(rows)
            model.logits(rows)
        torch.testing.assert_close(logits, function(module(rows)).detach())
        assert [words in str(warning.message) for warning in caught] == ([True] if words else [])


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_sigmoids_in_a_scripted_module() -> None:
    scripted, x = torch.jit.script(nn.Sequential(linear(), nn.Sigmoid()).eval()), torch.rand(4, 4)
    with pytest.warns(UserWarning, match="several labels"):
        Model(scripted, (0.0, 1.0), device="cpu").logits(x)


class OfTransformers(nn.Module):
    """A model with the configuration of a model of transformers, within another module."""

    def __init__(self, outputs: int, kind: str | None) -> None:
        super().__init__()
        self.inner = nn.Linear(4, outputs)
        self.inner.config = SimpleNamespace(problem_type=kind, num_labels=outputs)  # type: ignore[assignment]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z: torch.Tensor = self.inner(x)
        return z


@pytest.mark.parametrize("kind", ["multi_label_classification", "regression"])
def test_the_problem_type_of_transformers_is_heeded(kind: str) -> None:
    x = torch.rand(5, 4)
    for outputs in (2, 4):
        module = OfTransformers(outputs, kind)
        with pytest.warns(UserWarning, match=kind) as caught:
            Model(module, (0.0, 1.0), device="cpu").logits(x)
        assert len(caught) == 1
        for function in (
            lambda module, x: split(module(x)[:, 1:2]),
            lambda module, x: torch.stack(
                [1 - module(x)[:, 1].sigmoid(), module(x)[:, 1].sigmoid()], 1
            ).log(),
        ):
            # a warning would be an error
            recipe = Model(module, (0.0, 1.0), device="cpu", forward=function)
            torch.testing.assert_close(
                recipe.logits(x).softmax(1)[:, 1], module(x)[:, 1].sigmoid().detach()
            )
    with pytest.raises(ModelError, match=kind):
        Model(OfTransformers(1, kind), (0.0, 1.0), device="cpu").logits(x)
    for single in (None, "single_label_classification"):
        Model(OfTransformers(3, single), (0.0, 1.0), device="cpu").logits(x)
    with pytest.raises(ModelError, match="task='binary'"):
        Model(OfTransformers(1, None), (0.0, 1.0), device="cpu").logits(x)


CONV = [nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 6 * 6, 3)]


def test_one_sample_without_a_batch_is_said_to_be_one() -> None:
    def call(model: Model, x: Tensor) -> object:
        return standfast.metrics.AOPC(steps=2)(model, "saliency", x)

    model = Model(nn.Sequential(*CONV), (0.0, 1.0), device="cpu")
    words = (
        r"got one sample of shape \(3, 8, 8\): use x\[None\] \(module: failed on .* It says.*: \S"
    )
    with pytest.raises(ArgumentError, match=words):
        call(model, torch.rand(3, 8, 8))
    with pytest.raises(
        ModelError, match=r"inputs of shape \(5, 1, 8, 8\), .*to have 3 channels, but got 1"
    ) as caught:
        call(model, torch.rand(5, 1, 8, 8))
    assert "16" not in str(caught.value)  # to which small batches are padded
    with pytest.raises(ModelError, match=r"inputs of shape \(5, 3, 9, 9\)"):
        call(model, torch.rand(5, 3, 9, 9))
    assert model.logits(torch.rand(2, 3, 8, 8)).shape == (2, 3)
    with pytest.raises(ArgumentError, match="use x"):  # preprocessing changes nothing of that
        call(
            Model(nn.Sequential(*CONV), (0.0, 1.0), lambda v: (v - 0.5) / 0.2, "cpu"),
            torch.rand(3, 8, 8),
        )
    # a batch of which a wrong preprocessing takes one channel is no sample
    with pytest.raises(ModelError, match=r"module: failed on inputs of shape \(3, 3, 8, 8\)"):
        call(
            Model(nn.Sequential(*CONV), (0.0, 1.0), lambda v: v[:, 0], "cpu"),
            torch.rand(3, 3, 8, 8),
        )


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: build(bounds=("a", "b")),
            r"bounds: expected a pair \(lower, upper\) of numbers or tensors, got",
        ),
        (lambda: build(bounds=(0j, 1j)), "bounds: expected a pair"),
        (lambda: build(device="warp"), "device: expected auto, or a device of torch"),
        (
            lambda: build(nn.Linear(4, 3, device="meta")),
            "'weight' on the device meta: load the weights first",
        ),
        (lambda: build(nn.LazyLinear(3)), "'weight' that is lazy: run the module once"),
        (lambda: build().check_targets("a", torch.rand(2, 4)), "targets: expected whole numbers"),
        (lambda: build(device="hpu"), "device: expected one that this torch has here, got hpu: "),
        (lambda: build(device="meta"), "device: expected a CPU or a CUDA device"),
        (
            lambda: build().check_inputs(torch.nested.nested_tensor([torch.rand(4)])),
            "with values, got a nested one",
        ),
        (
            lambda: build(preprocess=lambda x: None).logits(torch.rand(2, 4)),
            "preprocess: expected a tensor",
        ),
        (
            lambda: build(Rounding()).logits(torch.rand(2, 4)),
            "as floating-point numbers, got torch.int64",
        ),
    ],
)
def test_what_torch_would_stumble_over_is_named(call: Callable[[], object], words: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that lazy modules are new
        with pytest.raises(standfast.StandfastError, match=words):
            call()


class Rounding(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[:, :3].round().to(torch.int64)


def build(
    module: nn.Module | None = None, bounds: Any = (0.0, 1.0), **options: Any
) -> standfast.Model:
    return standfast.Model(
        nn.Linear(4, 3) if module is None else module, bounds, **{"device": "cpu", **options}
    )


@pytest.mark.parametrize(
    ("explain", "words"),
    [
        (lambda x: x.to(torch.complex64), "got torch.complex64"),
        (lambda x: x.to_sparse(), "got .*sparse"),
        (lambda x: np.full(x.shape, None), "got object"),
    ],
)
def test_maps_that_are_no_real_numbers_are_refused(
    explain: Callable[[Tensor], Any], words: str
) -> None:
    explainer = standfast.explainers.from_callable(lambda module, x, targets: explain(x))
    with pytest.raises(standfast.ModelError, match=words):
        explainer(build(), torch.rand(2, 4))
    turned = standfast.explainers.from_callable(lambda module, x, targets: x.numpy()[:, ::-1])
    x = torch.rand(2, 4)
    assert turned(build(), x).equal(x.flip(1))
    swapped = standfast.explainers.from_callable(lambda module, x, targets: x.numpy().astype(">f8"))
    assert swapped(build(), x).equal(x)


def test_a_few_units_in_the_last_place_beyond_the_bounds_are_rounding() -> None:
    assert build().check_inputs(torch.full((1, 4), 1.000005)).max() == 1.0


def test_an_explainer_names_what_it_needs_instead_of_a_module() -> None:
    with pytest.raises(
        ArgumentError, match=r"model: expected standfast\.Model\(module, .*, got a Linear"
    ):
        standfast.explainers.get("saliency")(nn.Linear(4, 3), torch.rand(2, 4))  # type: ignore[arg-type]


class Noisy(nn.Module):
    """Logits of a linear layer, with noise of this size from one of the generators."""

    def __init__(self, draw: Callable[[Tensor], Tensor], size: float = 1.0) -> None:
        super().__init__()
        self.layer, self.draw, self.size = nn.Linear(4, 3), draw, size

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.layer(x)
        return logits + self.size * self.draw(logits)


OWN = torch.Generator().manual_seed(0)
NOISE = {
    "torch": torch.randn_like,
    "dropout": nn.functional.dropout,
    "NumPy": lambda logits: torch.from_numpy(np.random.normal(size=logits.shape)).float(),  # noqa: NPY002
    "Python": lambda logits: torch.full_like(logits, random.random()),
}


@pytest.mark.parametrize("size", [1.0, 1e-4])
@pytest.mark.parametrize("draw", NOISE.values(), ids=NOISE)
def test_random_numbers_in_forward_are_noticed_in_direct_calls(
    draw: Callable[[Tensor], Tensor], size: float
) -> None:
    model, x = Model(Noisy(draw, size), (0.0, 1.0), device="cpu"), torch.rand(5, 4)
    for call in (
        standfast.metrics.MaxSensitivity(standfast.LinfBall(0.1), samples=2),
        standfast.metrics.AOPC(steps=2, samples=1),
    ):
        for _ in range(2):  # an error does not count as a check
            with pytest.raises(
                ModelError, match="same logits for the same inputs.*two calls.*draws random numbers"
            ):
                call(model, "saliency", x)
    with pytest.raises(ModelError, match="same logits for the same inputs"):
        standfast.evaluate(model, "saliency", x, "aopc", controls=False, progress=False)


def test_a_generator_of_its_own_is_blamed_before_the_batch() -> None:
    def draw(logits: Tensor) -> Tensor:
        return torch.randn(logits.shape, generator=OWN)

    model, x = Model(Noisy(draw), (0.0, 1.0), device="cpu"), torch.rand(5, 4)
    with pytest.raises(ModelError, match=r"same inputs.*a random generator of its own"):
        model.check_repeatable(x)
    # so small that the identical calls alone are taken for rounding
    turns = iter([0.0, 1e-4, 1.0, 0.0])
    shaky = Model(
        Noisy(lambda logits: torch.full_like(logits, next(turns))), (0.0, 1.0), device="cpu"
    )
    with pytest.raises(ModelError, match="same logits for the same inputs"):
        shaky.check_repeatable(x, in_batches=True)


def test_the_check_runs_once_and_leaves_no_trace() -> None:
    class Counting(nn.Linear):
        rows = 0

        def forward(self, x: Tensor) -> Tensor:
            self.rows = self.rows + len(x)
            seen.append(len(x))
            return super().forward(x) + 0.0 * torch.rand(())  # drawn, without an effect

    seen: list[int] = []
    model, x = Model(Counting(4, 3), (0.0, 1.0), device="cpu", batch_size=16), torch.rand(3, 4)
    counted: list[int] = []
    with torch.random.fork_rng(devices=[]):
        state, numbers = torch.get_rng_state(), random.getstate()
        with model.watch(counted.append):
            model.check_repeatable(x)
        assert torch.equal(torch.get_rng_state(), state)
        assert random.getstate() == numbers
    assert (counted, seen, model.module.rows) == ([], [16, 16], 0)
    model.check_repeatable(x)
    assert len(seen) == 2
    result = standfast.metrics.MaxSensitivity(standfast.LinfBall(0.1), samples=2)(
        model, "saliency", x
    )
    assert result.model_evaluations.tolist() == [3, 3, 3]
    model.module = Noisy(torch.rand_like)  # another module is checked again
    with pytest.raises(ModelError, match="same inputs"):
        model.check_repeatable(x)


def test_sigmoids_are_found_where_hooks_and_modes_of_explainers_are() -> None:
    """The module runs once more for it, but not among them: a named layer runs once, and rules see one pass."""
    torch.manual_seed(0)
    body = nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(108, 3), nn.Sigmoid()
    )
    for explainer in ("gradcam:layer='0'", "deeplift", "saliency"):
        model = Model(body, (0.0, 1.0), device="cpu")
        with pytest.warns(UserWarning, match="several labels"):
            standfast.explainers.get(explainer)(model, torch.rand(2, 1, 8, 8))


def test_outputs_are_looked_at_once_more_without_a_demand_on_the_module() -> None:
    class Strict(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            if x.requires_grad:
                raise ValueError("no gradients here")
            return x.sigmoid()

    assert Model(Strict(), (0.0, 1.0), device="cpu").logits(torch.rand(3, 4)).shape == (3, 4)
