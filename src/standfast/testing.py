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
        when = f"with a batch size of {rows} instead of 16"
        _require_same(other, whole, [0, 1, 2, 3, 4], when)
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
            torch.manual_seed(seed)
            state = torch.random.get_rng_state()
            generator = torch.Generator().manual_seed(3)
            results.append(metric(model, "saliency", x, generator=generator))
            is_as_before = torch.equal(torch.random.get_rng_state(), state)
            _require(is_as_before, "torch's global generator is left as it is")
    first, second = results
    _require_same(first, second, [0, 1, 2, 3, 4], "for the same seed", exactly=True)
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
            inside = set_neighbourhood(metric, kind(0.2))
            still = set_neighbourhood(metric, kind(0.0))
        except ArgumentError as error:
            names = (metric.neighbourhood_option, "neighbourhood")
            _require(
                error.argument in names, f"an error names the neighbourhood, not {error.argument}"
            )
            continue
        accepted += 1
        described = inside.options()[metric.neighbourhood_option]
        is_described = described["norm"] == kind.__name__ and described["radius"] == 0.2
        _require(is_described, "options() has the neighbourhood")
        _require_well_formed(inside(model, "input_x_gradient", x), 3, metric)
        values = still(model, "input_x_gradient", x).value
        are_finite = bool(torch.isfinite(values).all())
        _require(are_finite, f"values in a {kind.__name__} of radius 0 are finite")
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
        brightest = x.flatten(1).amax(1)
        darkest = x.flatten(1).amin(1)
        is_dark = (brightest < 0.3)[:, None]
        is_bright = (darkest > 0.8)[:, None]
        out = torch.where(is_dark, self.constant.expand_as(out), out)
        return torch.where(is_bright, torch.nan, out)


def check_skipped_samples(metric: Metric, shape: Shape, device: Device = "cpu") -> None:
    """A NaN, a constant explanation, a wrong target: the status says so, and other samples get what they get alone."""
    model = Model(_Fragile(shape), (0.0, 1.0), device=device, batch_size=16)
    x = _draw_inputs(shape, 4, device)
    # one dark and one bright input, in the sense of `_Fragile`
    x[1], x[2] = 0.05, 0.95
    targets = torch.tensor([0, CLASSES - 1, 0, 0], device=device)
    first_and_last = [0, 3]
    targets[first_and_last] = model.predict(x[first_and_last])
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
        words = " or ".join(allowed)
        _require(status in allowed, f"{what} has the status {words}, not {status}")
    has_value = not bool(result.value[1].isnan())
    settled = result.status[1] == "degenerate" or has_value
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
    has_name = isinstance(metric.name, str) and bool(metric.name)
    _require(has_name, "the metric has a name")
    is_direction = metric.direction in ("higher", "lower", None)
    _require(is_direction, "direction is 'higher', 'lower' or None")
    # as a manifest does, in JSON
    described = json.loads(json.dumps(metric.describe_values()))
    spec = read_values(type(metric), metric.options())
    same = ValueSpec.from_stored(described) == spec
    _require(same, "how its numbers are read can be stored and read again")
    options = metric.options()
    names = {field.name for field in dataclasses.fields(metric)}
    _require(set(options) >= names, "options() has every field")
    json.dumps(options)
    is_of_metric = isinstance(type(metric).example(), type(metric))
    _require(is_of_metric, "example() is a configuration of the metric")
    cost = metric.cost()
    _require(min(cost.predictions, cost.explanations) >= 0, "no number of cost is below 0")
    for preset in metric.presets:  # that their options exist is checked when a metric is made
        _require(preset in PRESETS, f"the preset {preset!r} is one of {', '.join(PRESETS)}")
        options_of_preset = preset_options(type(metric), preset)
        variant = dataclasses.replace(metric, **options_of_preset, preset=preset)
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
    for name in shapes:
        shape = SHAPES[name]
        # more than a batch of 16, so that the last one has to be filled up
        x = _draw_inputs(shape, 17, device)
        model = _classifier(shape, device, net=net)
        before = x.clone()
        maps = explainer(model, x)
        shape_of_maps = tuple(maps.shape)
        _require(
            maps.shape == x.shape,
            f"maps have the shape of the inputs, {tuple(x.shape)}, not {shape_of_maps}",
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
        alone = explainer(model, x[7:8])
        _require(_is_same(alone[0], maps[7]), "the map of a sample alone is the same")
        nearly = explainer(_classifier(shape, device, 1, net), x[:5])
        is_close = torch.allclose(nearly, maps[:5], atol=1e-5)
        _require(is_close, "maps are nearly the same with a batch size of 1")
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
    for name in shapes:
        shape = SHAPES[name]
        a = _draw_inputs(shape, 6, device) - 0.5
        b = a.flip(0)
        # one pair of equal maps, and one of zeros
        b[1] = a[1]
        a[2], b[2] = 0.0, 0.0
        a_before, b_before = a.clone(), b.clone()
        values = similarity(a, b)
        are_finite = bool(torch.isfinite(values).all())
        _require(are_finite, "values are finite, also for two maps of zeros")
        are_as_before = torch.equal(a, a_before) and torch.equal(b, b_before)
        _require(are_as_before, "maps are not written into")
        in_reverse = similarity(a.flip(0), b.flip(0))
        _require(_is_same(in_reverse.flip(0), values), "the order of the pairs has no effect")
        alone = similarity(a[3:4], b[3:4])
        _require(_is_same(alone[0], values[3]), "a pair alone has the same value")
        equal = values[1]
        others = values[[0, 3, 4, 5]]
        if similarity.larger_is_closer:
            is_best, expected = equal >= others, 1.0
        else:
            is_best, expected = equal <= others, 0.0
        _require(bool(is_best.all()), "equal maps have the best value")
        _require(
            abs(equal.item() - expected) <= 1e-5,
            f"equal maps have the value {expected}, not {equal.item()}",
        )
        broken = a.clone()
        broken[0] = torch.nan
        with_nan = similarity(broken, b)
        _require(bool(torch.isnan(with_nan[0])), "a map with NaN has the value NaN")
        are_same = _is_same(with_nan[1:], values[1:])
        _require(are_same, "NaN in one map does not change the values of others")


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
        is_table = outputs.is_floating_point() and len(outputs) == count
        _require(is_table, "outputs have a row for each input")
    answer = task.answer(clean)
    exists = task.exists(clean, answer)
    named = task.describe(answer)
    fits = answer.ndim in (1, 2) and len(answer) == count
    _require(fits, "answers are (N,) or (N, k)")
    is_kept = task.margin(clean, answer)[exists] < 0
    _require(bool(is_kept.all()), "the margin of a clean answer is below 0")
    is_whole = named.shape == (count,) and not named.is_floating_point()
    _require(is_whole, "what is explained is a whole number")
    is_independent = torch.equal(task.answer(clean[order]), answer[order])
    _require(is_independent, "the answer of a row does not depend on others")
    for scale in SCALES:
        functions: dict[str, Callable[..., Tensor]] = {
            "score": task.score,
            "margin": task.margin,
            "guide": task.guide,
        }
        for name, function in functions.items():
            values = function(after, answer, scale)
            are_numbers = values.shape == (count,) and bool(values.isfinite().all())
            _require(are_numbers, f"{name} is a number for each input")
            rows = function(after[order], answer[order], scale)
            is_independent = torch.equal(rows, values[order])
            _require(is_independent, f"the {name} of a row does not depend on others")
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
        body: list[nn.Module]
        if len(shape) == 3:
            convolution: nn.Module = nn.Conv2d(shape[0], 6, 3, padding=1)
            body = [convolution, nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
        elif len(shape) == 2:
            convolution = nn.Conv1d(shape[0], 6, 3, padding=1)
            body = [convolution, nn.ReLU(), nn.MaxPool1d(2), nn.Flatten()]
        else:
            body = [nn.Linear(shape[0], 24), nn.ReLU()]
        out = nn.Sequential(*body)(torch.zeros(1, *shape))
        hidden = nn.Linear(out.shape[1], 16)
        return nn.Sequential(*body, hidden, nn.ReLU(), nn.Linear(16, classes))


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
        # of a flat input each feature is a patch
        channels, size = 1, 1
        patches = shape
        if len(shape) > 1:
            channels, size = shape[0], 2
            patches = tuple(n // size for n in shape[1:])
        self.patches = convolution(channels, width, size, stride=size)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, math.prod(patches) + 1, width))
        layers = []
        for _ in range(2):
            layer = nn.TransformerEncoderLayer(
                width, 2, 2 * width, batch_first=True, norm_first=True, dropout=0.0
            )
            layers.append(layer)
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim == 2:
            x = x[:, None]
        patches = self.patches(x).flatten(2).transpose(1, 2)
        token = self.token.expand(len(x), -1, -1)
        tokens = torch.cat([token, patches], 1) + self.places
        first_token = self.layers(tokens)[:, 0]
        logits: Tensor = self.head(first_token)
        return logits


class _Counted(nn.Module):
    """A network that counts how often it was called, and with how many rows."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net
        self.calls = 0
        self.rows = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.rows += len(x)
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
    generator = torch.Generator().manual_seed(1)
    return torch.rand(count, *shape, generator=generator).to(device)


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
    words = ", ".join(STATUSES)
    _require(set(result.status) <= set(STATUSES), f"each status is one of {words}")
    for name in ("value", "low", "high", "targets", "model_evaluations", "degenerate", "nonfinite"):
        column = getattr(result, name)
        is_missing = column is None and name in ("low", "high")
        fits = is_missing or column.shape == (count,)
        _require(fits, f"{name} has one number for each sample")
    is_evaluated = bool((result.model_evaluations >= 1).all())
    _require(is_evaluated, "every sample has at least one model evaluation")
    are_both = (result.low is None) == (result.high is None)
    _require(are_both, "low and high are both there, or neither")
    if result.low is not None and result.high is not None:
        is_reversed = bool((result.low > result.high).any())
        _require(not is_reversed, "low is not above high")
    frame = result.frame()
    _require(frame.height == count, "the frame has a row for each sample")
    _require(
        tuple(frame.columns[:5]) == COMMON_COLUMNS,
        f"the frame begins with {', '.join(COMMON_COLUMNS)}",
    )
    numbers = []
    for value, fine in zip(result.value.tolist(), ok, strict=True):
        numbers.append(value if fine and not math.isnan(value) else None)
    _require(frame["value"].to_list() == numbers, "the frame has the values of evaluated samples")
    _require_readable(result, metric, frame.columns)


def _require_readable(result: Result, metric: Metric, columns: list[str]) -> None:
    """The frame and the stored arrays have all that the metric's `value_spec` names."""
    spec = metric.value_spec(metric.options())
    named = {spec.column, *spec.only}
    if spec.censored:
        named.add(spec.censored)
    if spec.varied:
        named.add(spec.varied)
    for name in sorted(named):
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
        if not per_sample or not isinstance(values, Tensor):
            continue
        if values.shape[:1] == (len(result),):
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
