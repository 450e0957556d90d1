"""What every metric, explainer and similarity promises, as checks for a test of your own.

standfast's own tests run these checks on everything that is registered. Call them in a test of your package:

    from standfast.testing import check_metric

    def test_blur_consistency():
        check_metric(BlurConsistency(size=5))

A promise that is not kept raises an `AssertionError` that says which.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from standfast.errors import ArgumentError
from standfast.explainers import Explainer, smooth_relu
from standfast.explainers.attention.attention_maps import AttentionExplainer
from standfast.metrics import Metric, Result
from standfast.metrics.base import (
    PRESETS,
    has_neighbourhood,
    preset_options,
    read_values,
    set_neighbourhood,
)
from standfast.metrics.result import COMMON_COLUMNS, STATUSES
from standfast.model import ROW_ALIGNMENT, Model
from standfast.neighbourhoods import L2Ball, LinfBall
from standfast.similarity import Similarity
from standfast.tasks.base import SCALES, Task
from standfast.value_spec import ValueSpec

__all__ = [
    "METRIC_CHECKS",
    "SHAPES",
    "check_explainer",
    "check_metric",
    "check_similarity",
    "check_task",
    "small_net",
    "small_transformer",
]

Shape = tuple[int, ...]
Device = str | torch.device

#: the shapes of inputs that everything is checked on: `(C, H, W)`, `(C, T)` and `(F,)`
SHAPES: dict[str, Shape] = {"image": (1, 8, 8), "series": (2, 16), "flat": (12,)}
CLASSES = 4
#: what rounding may change on a card, as a share of the largest value
_ROUNDING = 1e-3


def check_metric(
    metric: Metric, shapes: Iterable[str] = tuple(SHAPES), device: Device = "cpu"
) -> None:
    """Check that a metric keeps the contract of `standfast.metrics.Metric`; it takes some seconds.

    The result of a sample does not depend on the batch size, the order of the samples or the other samples. The same
    seed gives the same bits. Inputs, the model and global random numbers are left alone. All model evaluations are
    counted. Samples that cannot be evaluated have a status, and the others are evaluated. The frame begins with the
    columns that all metrics share. A neighbourhood of radius 0 gives a finite value. Errors name the argument.

    "Does not depend" means equal bits on a CPU. A card chooses its kernels by the number of rows, and they round
    differently, so there it means: up to rounding. Metrics that search, or that count how many draws are beyond a
    level, may fail this check on a card, because one comparison with another outcome changes what follows. The same
    call again gives the same bits also on a card.

    Args:
        metric: a configuration that takes little time.
        shapes: of the inputs, out of `"image"`, `"series"` and `"flat"`: those that the metric is for.
        device: where the models run.

    Raises:
        AssertionError: it does not keep the contract.

    >>> import standfast
    >>> check_metric(standfast.metrics.AOPC(steps=3, samples=1), shapes=["flat"])
    """
    for shape in shapes:
        for check in METRIC_CHECKS:
            check(metric, SHAPES[shape], device)


def check_batch_independence(metric: Metric, shape: Shape, device: Device = "cpu") -> None:
    """A sample has the same result whatever the batch size, the order of the samples and the other samples."""
    x = _draw_inputs(shape, device=device)
    whole = metric(_classifier(shape, device), "input_x_gradient", x)
    for rows in (8, 64, 200):
        other = metric(_classifier(shape, device, rows), "input_x_gradient", x)
        _require_same(other, whole, [0, 1, 2, 3, 4], f"with a batch size of {rows} instead of 16")
    flipped = metric(_classifier(shape, device), "input_x_gradient", x.flip(0))
    _require_same(flipped, whole, [4, 3, 2, 1, 0], "with the samples in reverse order")
    alone = metric(_classifier(shape, device), "input_x_gradient", x[2:3])
    _require_same(alone, whole, [2], "for a sample alone")


def check_side_effects(metric: Metric, shape: Shape, device: Device = "cpu") -> None:
    """The same seed gives the same bits, and inputs, model and global random numbers are left alone."""
    x = _draw_inputs(shape, device=device)
    model = _classifier(shape, device)
    before = x.clone()
    results = []
    with torch.random.fork_rng(devices=[]):
        for seed in (1, 2):
            torch.default_generator.manual_seed(seed)
            state = torch.random.get_rng_state()
            results.append(metric(model, "saliency", x, generator=torch.Generator().manual_seed(3)))
            _require(
                torch.equal(torch.random.get_rng_state(), state),
                "torch's global generator is left as it is",
            )
    _require_same(results[0], results[1], [0, 1, 2, 3, 4], "for the same seed", exactly=True)
    _require(torch.equal(x, before), "inputs are not written into")
    _require_untouched(model)


def check_result(metric: Metric, shape: Shape, device: Device = "cpu") -> None:
    """The result has a value and a status for each sample, and counts every row that the model was given."""
    module = _Counted(small_net(shape))
    model = Model(module, (0.0, 1.0), device=device, batch_size=16)
    x = _draw_inputs(shape, device=device)
    result = metric(model, "saliency", x)
    _require_well_formed(result, 5, metric)
    counted = int(result.model_evaluations.sum())
    padding = (2 * ROW_ALIGNMENT - 1) * module.calls  # at most, to make batches of the same size
    _require(
        module.rows - padding <= counted <= module.rows,
        f"model_evaluations counts the rows given to the model: {counted} counted, {module.rows} given, of which "
        f"at most {padding} are padding",
    )
    _require(metric.cost().evaluations >= 1, "cost has at least one evaluation")
    budget = math.inf
    if metric.most_evaluations is not None:
        budget = metric.most_evaluations
    most = int(result.model_evaluations.max())
    _require(
        most <= budget,
        f"the budget of {budget} model evaluations is kept, not exceeded by {most - budget}",
    )


def check_neighbourhoods(metric: Metric, shape: Shape, device: Device = "cpu") -> None:
    """A metric with a neighbourhood works in those that it accepts, and a radius of 0 gives a finite value."""
    if not has_neighbourhood(type(metric)):
        return
    x = _draw_inputs(shape, 3, device)
    model = _classifier(shape, device)
    wrong = (model.predict(x) + 1) % CLASSES
    accepted = 0
    for kind in (LinfBall, L2Ball):
        try:
            inside, still = (set_neighbourhood(metric, kind(radius)) for radius in (0.2, 0.0))
        except ArgumentError as error:
            names = (metric.neighbourhood_option, "neighbourhood")
            _require(
                error.argument in names, f"an error names the neighbourhood, not {error.argument}"
            )
            continue
        accepted += 1
        described = inside.options()[metric.neighbourhood_option]
        _require(
            (described["norm"], described["radius"]) == (kind.__name__, 0.2),
            "options() has the neighbourhood",
        )
        _require_well_formed(inside(model, "input_x_gradient", x), 3, metric)
        finite = torch.isfinite(still(model, "input_x_gradient", x).value)
        _require(bool(finite.all()), f"values in a {kind.__name__} of radius 0 are finite")
        skipped = inside(model, "saliency", x, wrong).status
        _require(skipped == ("misclassified",) * 3, "samples with a wrong target are skipped")
    _require(accepted > 0, "a neighbourhood is accepted")
    words = f"({metric.neighbourhood_option}|neighbourhood): expected .*such as LinfBall.* got 0.1"
    _require_error(words, dataclasses.replace, metric, **{metric.neighbourhood_option: 0.1})


class _Fragile(nn.Module):
    """Dark inputs have constant logits, so a constant explanation; bright ones have NaN."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.net = small_net(shape)
        self.constant: Tensor
        self.register_buffer("constant", torch.arange(float(CLASSES)))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.net(x)
        dark = (x.flatten(1).amax(1) < 0.3)[:, None]
        bright = (x.flatten(1).amin(1) > 0.8)[:, None]
        return torch.where(bright, torch.nan, torch.where(dark, self.constant.expand_as(out), out))


def check_skipped_samples(metric: Metric, shape: Shape, device: Device = "cpu") -> None:
    """A NaN, a constant explanation, a wrong target: the status says so, and other samples get what they get alone."""
    model = Model(_Fragile(shape), (0.0, 1.0), device=device, batch_size=16)
    x = _draw_inputs(shape, 4, device)
    # one dark and one bright input, in the sense of `_Fragile`
    x[1], x[2] = 0.05, 0.95
    targets = torch.tensor([0, CLASSES - 1, 0, 0], device=device)
    targets[[0, 3]] = model.predict(x[[0, 3]])
    targets[3] = (targets[3] + 1) % CLASSES
    result = metric(model, "saliency", x, targets)
    _require_well_formed(result, 4, metric)
    for sample, what, allowed in (
        (0, "an ordinary sample", ("ok",)),
        (1, "a constant explanation", ("ok", "degenerate")),
        (2, "NaN from the model", ("nonfinite",)),
        (3, "a target that the model does not predict", ("misclassified",)),
    ):
        status = result.status[sample]
        _require(status in allowed, f"{what} has the status {' or '.join(allowed)}, not {status}")
    settled = result.status[1] == "degenerate" or not bool(result.value[1].isnan())
    _require(settled, "a constant explanation has a value, or the status degenerate")
    alone = metric(model, "saliency", x[:1], targets[:1])
    _require_same(alone, result, [0], "beside samples that are skipped")
    none = metric(model, "saliency", x[2:], targets[2:])
    _require(none.status == ("nonfinite", "misclassified"), "there may be no sample to evaluate")
    _require_well_formed(none, 2, metric)


def check_errors(metric: Metric, shape: Shape, device: Device = "cpu") -> None:
    """What cannot be evaluated at all is an error that names the argument."""
    x = _draw_inputs(shape, device=device)
    model = _classifier(shape, device)
    _require_error("expected one of .*did you mean 'saliency'", metric, model, "salience", x)
    bare = small_net(shape)
    _require_error("model: expected a standfast Model, got Sequential", metric, bare, "saliency", x)
    _require_error("inputs: expected values within the bounds", metric, model, "saliency", x + 1)
    _require_error("targets: expected classes from 0 to 3", metric, model, "saliency", x, 9)


def check_description(metric: Metric, shape: Shape, device: Device = "cpu") -> None:
    """What reports and files say of the metric."""
    _require(isinstance(metric.name, str) and bool(metric.name), "the metric has a name")
    _require(
        metric.direction in ("higher", "lower", None), "direction is 'higher', 'lower' or None"
    )
    # as a manifest does, in JSON
    described = json.loads(json.dumps(metric.describe_values()))
    same = ValueSpec.from_stored(described) == read_values(type(metric), metric.options())
    _require(same, "how its numbers are read can be stored and read again")
    options = metric.options()
    _require(
        set(options) >= {field.name for field in dataclasses.fields(metric)},
        "options() has every field",
    )
    json.dumps(options)
    _require(
        isinstance(type(metric).example(), type(metric)),
        "example() is a configuration of the metric",
    )
    cost = metric.cost()
    _require(min(cost.predictions, cost.explanations) >= 0, "no number of cost is below 0")
    for preset in metric.presets:  # that their options exist is checked when a metric is made
        _require(preset in PRESETS, f"the preset {preset!r} is one of {', '.join(PRESETS)}")
        variant = dataclasses.replace(metric, **preset_options(type(metric), preset), preset=preset)
        _require(variant.preset == preset, f"the preset {preset!r} makes a metric")


#: what `check_metric` runs: functions of a metric, a shape and a device
METRIC_CHECKS: tuple[Callable[[Metric, Shape, Device], None], ...] = (
    check_description,
    check_result,
    check_batch_independence,
    check_side_effects,
    check_neighbourhoods,
    check_skipped_samples,
    check_errors,
)


def check_explainer(
    explainer: Explainer, shapes: Iterable[str] = tuple(SHAPES), device: Device = "cpu"
) -> None:
    """Check that an explainer keeps the contract of `standfast.explainers.Explainer`; it takes some seconds.

    An explanation has the shape of its input and depends on nothing but the input, the target and the model. The model
    is left alone. `differentiable` is true: the explanation has a derivative, or asking for one is an error.

    The model is `small_net`; for explainers of attention (`AttentionExplainer`) it is `small_transformer`. On a card,
    maps are the same for other batch sizes and orders up to rounding (see `check_metric`).

    Args:
        explainer: a configuration that takes little time.
        shapes: of the inputs, out of `"image"`, `"series"` and `"flat"`: those that the explainer is for.
        device: where the models run.

    Raises:
        AssertionError: it does not keep the contract.

    >>> import standfast
    >>> check_explainer(standfast.explainers.get("saliency"), shapes=["flat"])
    """
    net = small_transformer if isinstance(explainer, AttentionExplainer) else small_net
    for shape in (SHAPES[name] for name in shapes):
        # more than a batch of 16, so that the last one has to be filled up
        x = _draw_inputs(shape, 19, device)
        model = _classifier(shape, device, net=net)
        before = x.clone()
        maps = explainer(model, x)
        _require(
            maps.shape == x.shape,
            f"maps have the shape of the inputs, {tuple(x.shape)}, not {tuple(maps.shape)}",
        )
        _require(not maps.requires_grad, "maps are detached")
        _require(torch.equal(x, before), "inputs are not written into")
        _require(torch.equal(explainer(model, x), maps), "maps are the same a second time")
        for other_maps, whatever in (
            (explainer(_classifier(shape, device, 64, net), x), "with another batch size"),
            (explainer(model, x.flip(0)).flip(0), "with the samples in reverse order"),
            (explainer(model, x, model.predict(x)), "with the predicted classes as targets"),
        ):
            _require(_is_same(other_maps, maps), f"maps are the same {whatever}")
        _require(
            _is_same(explainer(model, x[7:8])[0], maps[7]), "the map of a sample alone is the same"
        )
        nearly = explainer(_classifier(shape, device, 1, net), x)
        _require(
            torch.allclose(nearly, maps, atol=1e-5),
            "maps are nearly the same with a batch size of 1",
        )
        _require_untouched(model)
        _check_derivative(explainer, model, x[:5])


def _check_derivative(explainer: Explainer, model: Model, x: Tensor) -> None:
    x = x.clone().requires_grad_(True)
    with model.session():
        if not explainer.differentiable:
            _require_error("create_graph", explainer.attribute, model, x, None, create_graph=True)
            return
        # a rectifier has no second derivative, so the softplus of white-box searches is asked
        with smooth_relu():
            maps, _ = explainer.attribute(model, x, None, create_graph=True)
            (second,) = torch.autograd.grad((maps**2).sum(), x)
    _require(bool(torch.isfinite(second).all()), "the derivative of the explanation is finite")
    _require(bool(second.abs().sum() > 0), "the derivative of the explanation is not 0")


def check_similarity(
    similarity: Similarity, shapes: Iterable[str] = tuple(SHAPES), device: Device = "cpu"
) -> None:
    """Check that a similarity gives one finite number for each pair of maps, and the best one for equal maps.

    Args:
        similarity: what is checked; `standfast.similarity.get` makes one of a function.
        shapes: of the maps, out of `"image"`, `"series"` and `"flat"`: those that it can compare.
        device: where the maps are; on a card, the order and the other pairs have no effect up to rounding.

    Raises:
        AssertionError: it does not keep the contract.

    >>> import standfast
    >>> check_similarity(standfast.similarity.get("pearson"))
    """
    for shape in (SHAPES[name] for name in shapes):
        a = _draw_inputs(shape, 6, device) - 0.5
        b = a.flip(0)
        b[1], a[2], b[2] = a[1], 0.0, 0.0
        before = a.clone(), b.clone()
        values = similarity(a, b)
        _require(
            bool(torch.isfinite(values).all()), "values are finite, also for two maps of zeros"
        )
        _require(
            torch.equal(a, before[0]) and torch.equal(b, before[1]), "maps are not written into"
        )
        _require(
            _is_same(similarity(a.flip(0), b.flip(0)).flip(0), values),
            "the order of the pairs has no effect",
        )
        _require(
            _is_same(similarity(a[3:4], b[3:4])[0], values[3]), "a pair alone has the same value"
        )
        equal = values[1]
        others = values[[0, 3, 4, 5]]
        best = (equal >= others) if similarity.larger_is_closer else (equal <= others)
        _require(bool(best.all()), "equal maps have the best value")
        expected = 1.0 if similarity.larger_is_closer else 0.0
        _require(
            abs(equal.item() - expected) <= 1e-5,
            f"equal maps have the value {expected}, not {equal.item()}",
        )
        broken = a.clone()
        broken[0] = torch.nan
        with_nan = similarity(broken, b)
        _require(bool(torch.isnan(with_nan[0])), "a map with NaN has the value NaN")
        _require(
            _is_same(with_nan[1:], values[1:]),
            "NaN in one map does not change the values of others",
        )


def check_task(task: Task, output: Any, changed: Any) -> None:
    """Check that a task treats each row alone, and that a clean input has the answer that it gives.

    Args:
        task: what is checked.
        output: what a module returns for some clean inputs, at least two: a tensor, or a list.
        changed: what it returns for the same inputs, changed a little.

    Raises:
        AssertionError: it does not keep the contract of `standfast.tasks.Task`.

    >>> import torch
    >>> from standfast.tasks import Binary
    >>> check_task(Binary(), torch.linspace(-2, 2, 5), torch.linspace(-1, 2, 5))
    """
    count = len(output)
    # one twice and one left out, so rows that know each other are noticed
    order = torch.tensor([count - 1, 0, 0, count // 2])
    clean = task.read(output, count)
    after = task.read(changed, count)
    for outputs in (clean, after):
        _require(
            outputs.is_floating_point() and len(outputs) == count,
            "outputs have a row for each input",
        )
    answer = task.answer(clean)
    exists = task.exists(clean, answer)
    named = task.describe(answer)
    _require(answer.ndim in (1, 2) and len(answer) == count, "answers are (N,) or (N, k)")
    _require(
        bool((task.margin(clean, answer)[exists] < 0).all()),
        "the margin of a clean answer is below 0",
    )
    _require(
        named.shape == (count,) and not named.is_floating_point(),
        "what is explained is a whole number",
    )
    _require(
        torch.equal(task.answer(clean[order]), answer[order]),
        "the answer of a row does not depend on others",
    )
    for scale in SCALES:
        functions: dict[str, Callable[..., Tensor]] = {
            "score": task.score,
            "margin": task.margin,
            "guide": task.guide,
        }
        for name, function in functions.items():
            values = function(after, answer, scale)
            _require(
                values.shape == (count,) and bool(values.isfinite().all()),
                f"{name} is a number for each input",
            )
            rows = function(after[order], answer[order], scale)
            _require(
                torch.equal(rows, values[order]), f"the {name} of a row does not depend on others"
            )
        ways = task.rivals(after, answer, scale)
        _require(ways.ndim == 2 and len(ways) == count, "rivals are (N, R)")
        leaf = after.detach().clone().requires_grad_(True)
        _require(task.score(leaf, answer, scale).requires_grad, "a score can be differentiated")


def small_net(shape: Shape, classes: int = CLASSES, seed: int = 0) -> nn.Module:
    """A small network for images `(C, H, W)`, series `(C, T)` or flat features `(F,)`; every ReLU is a module.

    >>> small_net((2, 16))(torch.zeros(3, 2, 16)).shape
    torch.Size([3, 4])
    """
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        if len(shape) == 3:
            body = [nn.Conv2d(shape[0], 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
        elif len(shape) == 2:
            body = [nn.Conv1d(shape[0], 6, 3, padding=1), nn.ReLU(), nn.MaxPool1d(2), nn.Flatten()]
        else:
            body = [nn.Linear(shape[0], 24), nn.ReLU()]
        features = nn.Sequential(*body)(torch.zeros(1, *shape)).shape[1]
        return nn.Sequential(*body, nn.Linear(features, 16), nn.ReLU(), nn.Linear(16, classes))


def small_transformer(shape: Shape, classes: int = CLASSES, seed: int = 0) -> nn.Module:
    """A small vision transformer for inputs `(N, *shape)`, with a class token; of a table each feature is a token.

    >>> small_transformer((2, 16))(torch.zeros(3, 2, 16)).shape
    torch.Size([3, 4])
    """
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return _SmallTransformer(shape, classes)


class _SmallTransformer(nn.Module):
    def __init__(self, shape: Shape, classes: int) -> None:
        super().__init__()
        width = 8
        convolution = (nn.Conv1d, nn.Conv1d, nn.Conv2d)[len(shape) - 1]
        size = 1 if len(shape) == 1 else 2  # of a patch
        self.patches = convolution(1 if len(shape) == 1 else shape[0], width, size, stride=size)
        count = math.prod(shape if len(shape) == 1 else (n // size for n in shape[1:]))
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, count + 1, width))
        self.layers = nn.Sequential(
            *(
                nn.TransformerEncoderLayer(
                    width, 2, 2 * width, batch_first=True, norm_first=True, dropout=0.0
                )
                for _ in range(2)
            )
        )
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim == 2:
            x = x[:, None]
        patches = self.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(len(x), -1, -1), patches], 1) + self.places
        logits: Tensor = self.head(self.layers(tokens)[:, 0])
        return logits


class _Counted(nn.Module):
    """A network that counts how often it was called, and with how many rows."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net
        self.calls = 0
        self.rows = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls, self.rows = self.calls + 1, self.rows + len(x)
        out: Tensor = self.net(x)
        return out


def _classifier(
    shape: Shape,
    device: Device,
    batch_size: int = 16,
    net: Callable[[Shape], nn.Module] = small_net,
) -> Model:
    return Model(net(shape), (0.0, 1.0), device=device, batch_size=batch_size)


def _draw_inputs(shape: Shape, count: int = 5, device: Device = "cpu") -> Tensor:
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(1)).to(device)


def _is_same(actual: Tensor, expected: Tensor, exactly: bool = False) -> bool:
    """Equal bits on a CPU, or `exactly`; on a card up to rounding, as a share of the largest value. NaN equals NaN."""
    if exactly or actual.device.type == "cpu" or not actual.is_floating_point():
        # any number that no result has, as NaN differs from itself
        return torch.equal(actual.nan_to_num(nan=-7.0), expected.nan_to_num(nan=-7.0))
    if expected.numel():
        largest = float(expected.nan_to_num(0.0, 0.0, 0.0).abs().amax())
    else:
        largest = 0.0
    return torch.allclose(
        actual, expected, rtol=_ROUNDING, atol=_ROUNDING * largest, equal_nan=True
    )


def _require(holds: bool, claim: str) -> None:
    if not holds:
        raise AssertionError(f"does not hold: {claim}")


def _require_error(
    words: str, function: Callable[..., Any], *arguments: Any, **options: Any
) -> None:
    try:
        function(*arguments, **options)
    except ArgumentError as error:
        _require(
            re.search(words, str(error)) is not None, f"an error says {words!r}, not {str(error)!r}"
        )
    else:
        raise AssertionError(f"does not hold: there is an error that says {words!r}")


def _require_untouched(model: Model) -> None:
    module = model.module
    _require(module.training, "the module is in training mode again")
    _require(
        all(p.requires_grad for p in module.parameters()), "parameters require gradients again"
    )
    hooks = any(
        m._forward_hooks or m._forward_pre_hooks or m._backward_hooks for m in module.modules()
    )
    _require(not hooks, "hooks are removed")


def _require_well_formed(result: Result, count: int, metric: Metric) -> None:
    """`count` samples with a status and a value, and a frame that begins with what all frames begin with."""
    ok = [status == "ok" for status in result.status]
    _require(len(result) == count, f"there are {count} samples, not {len(result)}")
    _require(set(result.status) <= set(STATUSES), f"each status is one of {', '.join(STATUSES)}")
    for name in ("value", "low", "high", "targets", "model_evaluations", "degenerate", "nonfinite"):
        column = getattr(result, name)
        is_missing = column is None and name in ("low", "high")
        fits = is_missing or column.shape == (count,)
        _require(fits, f"{name} has one number for each sample")
    _require(
        bool((result.model_evaluations >= 1).all()),
        "every sample has at least one model evaluation",
    )
    _require(
        (result.low is None) == (result.high is None), "low and high are both there, or neither"
    )
    if result.low is not None and result.high is not None:
        _require(not bool((result.low > result.high).any()), "low is not above high")
    frame = result.frame()
    _require(frame.height == count, "the frame has a row for each sample")
    _require(
        tuple(frame.columns[:5]) == COMMON_COLUMNS,
        f"the frame begins with {', '.join(COMMON_COLUMNS)}",
    )
    values = zip(result.value.tolist(), ok, strict=True)
    numbers = [value if fine and not math.isnan(value) else None for value, fine in values]
    _require(frame["value"].to_list() == numbers, "the frame has the values of evaluated samples")
    _require_readable(result, metric, frame.columns)


def _require_readable(result: Result, metric: Metric, columns: list[str]) -> None:
    """The frame and the stored arrays have all that the metric's `value_spec` names."""
    spec = metric.value_spec(metric.options())
    censored = {spec.censored} if spec.censored else set()
    varied = {spec.varied} if spec.varied else set()
    for name in sorted({spec.column, *spec.only, *censored, *varied}):
        _require(name in columns, f"the frame has the column {name!r}, which value_spec names")
    for name in spec.compared_arrays:
        _require(
            name in result.tensors(),
            f"the result stores the array {name!r}, which value_spec names",
        )


def _rows_of(result: Result) -> dict[str, Any]:
    """All that a result says of each sample."""
    rows: dict[str, Any] = {"status": list(result.status)}
    for field in dataclasses.fields(result):
        values = getattr(result, field.name)
        per_sample = field.metadata.get("per_sample", True)
        if per_sample and isinstance(values, Tensor) and values.shape[:1] == (len(result),):
            rows[field.name] = values
    return rows


def _require_same(
    result: Result, whole: Result, order: list[int], when: str, exactly: bool = False
) -> None:
    """Row i of `result` is row `order[i]` of `whole`: bit for bit on a CPU, or with `exactly`."""
    actual = _rows_of(result)
    expected = _rows_of(whole)
    _require(actual.keys() == expected.keys(), f"the result has the same fields {when}")
    for name, values in actual.items():
        if isinstance(values, Tensor):
            same = _is_same(values, expected[name][order], exactly)
        else:
            same = values == [expected[name][row] for row in order]
        _require(same, f"{name} is the same {when}")
