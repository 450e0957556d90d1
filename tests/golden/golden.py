"""Golden numbers: what every metric, explainer, similarity and neighbourhood gives for small fixed models.

They say whether a change of the code moved a number. Networks and inputs come from formulas, not from a random
generator, so that the numbers depend on nothing but the code that is tested and on torch.

    python tests/golden/golden.py            what moved since the numbers were recorded
    python tests/golden/golden.py --write    record new cases and defaults, and drop cases that are gone
    python tests/golden/golden.py --moved    record the numbers of today, on the machine that recorded the others
    python tests/golden/golden.py --machine  record the numbers of today and this machine, for example with a new torch

A number that moves on purpose is recorded again, and a line of the changelog says why it moved.

`*.json` beside this file hold, for each case, the bits of its arrays (a digest of their float64 values) and some of
their values, rounded to six digits. Bits are compared on the torch and the processor that recorded them; a case that
another machine has recorded has none. Elsewhere only the values are, and only where there is no search: a search takes
another path after the smallest difference.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import hashlib
import io
import json
import math
import platform
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
import torch
from defaults import write_defaults
from torch import Tensor, nn

import standfast

HERE = Path(__file__).parent
Arrays = dict[str, np.ndarray[Any, Any]]
#: relative tolerance of values on another torch or processor
TOLERANCE = 1e-3
#: two batch sizes that give the same numbers
BATCH_SIZES = (16, 200)
#: where everything is computed; `benchmarks/on_a_card` sets another one, the recorded numbers are those of the CPU
DEVICE = "cpu"


# Models and inputs


def fill(count: int, seed: int) -> Tensor:
    """Numbers in [-1, 1) that look random, by a formula."""
    steps = torch.arange(1, count + 1, dtype=torch.float64)
    return (
        2 * torch.remainder(torch.sin(steps * 12.9898 + seed * 78.233) * 43758.5453, 1) - 1
    ).float()


def set_weights(module: nn.Module) -> nn.Module:
    """Give a module weights of the usual size, by the formula, and switch it to evaluation."""
    with torch.no_grad():
        for number, (name, values) in enumerate(module.state_dict().items()):
            if not values.is_floating_point():
                continue
            size = 3.0 / math.sqrt(max(1, values[0].numel())) if values.ndim > 1 else 0.3
            new = size * fill(values.numel(), number + 1).reshape(values.shape)
            values.copy_(
                new.abs() + 0.5 if name.endswith("running_var") or ".norm" in name else new
            )
    return module.eval()


class ConvNet(nn.Module):
    """Convolution, batch normalisation, a residual sum, pooling, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(1, 6, 3, padding=1), nn.BatchNorm2d(6)
        self.second, self.pool = nn.Conv2d(6, 6, 3, padding=1), nn.MaxPool2d(2)
        self.head = nn.Linear(6 * 5 * 5, 4)

    def forward(self, x: Tensor) -> Tensor:
        a = torch.relu(self.norm(self.first(x)))
        b = self.pool(torch.relu(self.second(a)) + a)
        out: Tensor = self.head(b.flatten(1))
        return out


class Attention(nn.Module):
    """Two layers of a transformer on patches of the image, with a class token."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, 8, 2, stride=2)
        self.token = nn.Parameter(torch.zeros(1, 1, 8))
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        patches = self.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(len(x), -1, -1), patches], 1)
        out: Tensor = self.head(self.layers(tokens)[:, 0])
        return out


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "conv": (ConvNet, (1, 10, 10)),
    "attention": (Attention, (1, 8, 8)),
    "mlp": (
        lambda: nn.Sequential(
            nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4)
        ),
        (12,),
    ),
}


def make_classifier(network: str, batch_size: int) -> standfast.Model:
    module = set_weights(NETWORKS[network][0]())
    return standfast.Model(module, bounds=(0.0, 1.0), device=DEVICE, batch_size=batch_size)


def make_inputs(network: str, count: int = 3, dtype: torch.dtype = torch.float32) -> Tensor:
    shape = NETWORKS[network][1]
    return fill(count * math.prod(shape), 99).reshape(count, *shape).abs().to(dtype)


# Cases


@dataclasses.dataclass(frozen=True)
class Case:
    """One thing that is computed.

    Attributes:
        run: gives, for a batch size, arrays by name, each with a row per sample. An error of the library is a result as
            well, of which the type is recorded.
        searches: whether the result depends on a search or on a comparison of random draws with a level.
    """

    run: Callable[[int], Mapping[str, Any]]
    searches: bool = False


def vary(kind: type, base: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Options of a dataclass: the `base`, and each other choice of its options that are a `Literal` or a `bool`."""
    yield "", dict(base)
    hints = get_type_hints(kind)
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        choices = (
            get_args(hint) if get_origin(hint) is Literal else (True, False) if hint is bool else ()
        )
        if not field.init or field.name == "preset":
            continue
        for choice in choices:
            if choice != base.get(field.name, field.default):
                yield f" {field.name}={choice}", {**base, field.name: choice}


#: explainers that take long by default, with less of what takes it
QUICK: dict[str, dict[str, Any]] = {
    "extremal_perturbations": {"steps": 4},
    "rise": {"samples": 60},
    "shapley_sampling": {"permutations": 3},
    "lime": {"samples": 60},
    "context_cite": {"samples": 60},
    "kernel_shap": {"samples": 60},
    "smoothgrad": {"samples": 6},
    "gradient_shap": {"samples": 6},
    "integrated_gradients": {"steps": 8},
}


def list_explainers() -> Iterator[tuple[str, Case]]:
    for name in own_names(standfast.explainers.explainers):
        choices = list(vary(standfast.explainers.explainers[name], QUICK.get(name, {})))
        # a composite with a name is one choice of the options of `lrp_composite`
        for words, options in (
            choices[:1] if name.startswith(("lrp_epsilon_", "deep_taylor")) else choices
        ):
            for network in NETWORKS:

                def run(
                    batch_size: int,
                    name: str = name,
                    options: dict[str, Any] = options,
                    network: str = network,
                ) -> Mapping[str, Any]:
                    explainer = standfast.explainers.get(name, **options)
                    return {
                        "maps": explainer(
                            make_classifier(network, batch_size), make_inputs(network)
                        )
                    }

                yield f"{name}{words} on {network}", Case(run)


def list_metrics() -> Iterator[tuple[str, Case]]:
    for name in own_names(standfast.metrics.metrics):
        example = standfast.metrics.metrics[name].example()
        base = {
            field.name: getattr(example, field.name)
            for field in dataclasses.fields(example)
            if field.init
        }
        choices = list(vary(type(example), base))
        # the choices of a probability are below
        for words, options in choices[:1] if name == "misinterpretation_probability" else choices:
            for network in NETWORKS if not words else ("conv",):
                yield (
                    f"{name}{words} on {network}",
                    metric_case(name, options, network, needs_search(name)),
                )
    ball, l2, turn = (
        standfast.LinfBall(0.1),
        standfast.L2Ball(0.6),
        standfast.neighbourhoods.Rotation(15),
    )
    event_names = ("changed_explanation", "changed_class", "misclassification")
    for search in standfast.algorithms.searches.names():
        for region in (turn,) if search == "grid" else (ball, l2, turn):
            for event in event_names:
                options = {"neighbourhood": region, "search": search, "event": event, "budget": 60}
                words = f"worst_case {search} {event} {type(region).__name__}"
                # drafts are for explainers with a dial
                explainer = (
                    "integrated_gradients:steps=8" if search == "draft" else "input_x_gradient"
                )
                yield (
                    f"{words} on conv",
                    metric_case("worst_case", options, "conv", True, explainer),
                )
    for event in event_names:
        for method in ("subset", "monte_carlo"):
            for region in (ball, l2, turn):
                options = {
                    "neighbourhood": region,
                    "event": event,
                    "method": method,
                    "particles": 40,
                    "first": 4.0,
                    "moves": 2,
                }
                options |= {"floor": -8.0, "samples": 100}
                words = f"misinterpretation_probability {method} {event} {type(region).__name__}"
                yield (
                    f"{words} on conv",
                    metric_case("misinterpretation_probability", options, "conv", True),
                )
    options = {
        "neighbourhood": ball,
        "particles": 40,
        "first": 4.0,
        "moves": 2,
        "floor": -8.0,
        "threshold": 0.95,
    }
    options |= {"from_event": True}
    case = metric_case("misinterpretation_probability", options, "conv", True)
    yield "misinterpretation_probability from_event on conv", case
    for attack in own_names(standfast.algorithms.distortion.base.attacks):
        fewer = ":steps=30,searches=2" if attack == "cw" else ""
        for network in ("conv", "mlp"):
            yield (
                f"c_eval {attack} on {network}",
                metric_case("c_eval", {"attack": attack + fewer}, network, True),
            )
    for attack in own_names(standfast.metrics.lens.attribution_objectives.attribution_attacks):
        options = {"neighbourhood": ball, "attack": attack, "steps": 5, "restarts": 2}
        yield (
            f"attribution_attack {attack} on conv",
            metric_case("attribution_attack", options, "conv", True),
        )
    for similarity in own_names(standfast.similarity.similarities):
        options = {
            "neighbourhood": ball,
            "similarity": similarity,
            "search": "random",
            "budget": 20,
        }
        yield (
            f"worst_case random {similarity} on conv",
            metric_case("worst_case", options, "conv", True),
        )


def needs_search(name: str) -> bool:
    """Whether a metric searches, or counts how many random draws lie beyond a level."""
    counts = (
        "data_sensitivity_consistency",
        "parameter_sensitivity_consistency",
        "misinterpretation_probability",
    )
    return name in (
        *counts,
        "worst_case",
        "attribution_attack",
        "c_eval",
        "c_eval_plot",
        "near_affinity",
    )


def metric_case(
    name: str,
    options: Mapping[str, Any],
    network: str,
    searches: bool,
    explainer: str = "input_x_gradient",
) -> Case:
    def run(batch_size: int) -> Mapping[str, Any]:
        metric = standfast.metrics.get(name, **options)
        model, generator = make_classifier(network, batch_size), torch.Generator().manual_seed(5)
        result = metric(model, explainer, make_inputs(network), generator=generator)
        return {"status": [hash_text(status) for status in result.status], **columns_of(result)}

    return Case(run, searches)


def columns_of(result: standfast.metrics.Result) -> dict[str, Any]:
    """Everything of a result that has a number for each sample."""
    found = {}
    for field in dataclasses.fields(result):
        values = getattr(result, field.name)
        if (
            isinstance(values, Tensor)
            and values.shape[:1] == (len(result),)
            and field.metadata.get("per_sample", True)
        ):
            found[field.name] = values
    return found


def list_similarities() -> Iterator[tuple[str, Case]]:
    shapes = {"image": (2, 9, 9), "series": (2, 16), "table": (12,)}
    for name in own_names(standfast.similarity.similarities):
        for kind, shape in shapes.items():

            def run(_: int, name: str = name, shape: tuple[int, ...] = shape) -> Mapping[str, Any]:
                similarity = standfast.similarity.get(name)
                a, noise = (fill(4 * math.prod(shape), seed).reshape(4, *shape) for seed in (1, 2))
                b = a + torch.tensor([0.0, 0.1, 0.5, 2.0]).reshape(4, *[1] * len(shape)) * noise
                a, b = similarity.of_maps(a.to(DEVICE)), similarity.of_maps(b.to(DEVICE))
                seen = torch.ones(4, *a.shape[1:], dtype=torch.bool, device=DEVICE)
                seen[..., :2] = False
                return {
                    "value": similarity(a, b),
                    "where seen": similarity.compare_masked(a, b, seen),
                }

            yield f"{name} of {kind}", Case(run)


#: each neighbourhood with options and the shape of the inputs that it takes, also for `tests/neighbourhoods`
NEIGHBOURHOODS: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "linf": ({"radius": 0.1}, (1, 6, 6)),
    "l2": ({"radius": 0.5}, (1, 6, 6)),
    "amplitude": ({"percent": 20}, (2, 12)),
    "brightness": ({}, (3, 6, 6)),
    "contrast": ({}, (3, 6, 6)),
    "corruption": ({"name": "fog"}, (3, 12, 12)),
    "defocus_blur": ({}, (3, 8, 8)),
    "drift": ({"size": 0.3}, (2, 12)),
    "dropped_samples": ({"percent": 30}, (2, 12)),
    "gamma": ({}, (3, 6, 6)),
    "gaussian_blur": ({}, (3, 8, 8)),
    "gaussian_noise": ({}, (3, 6, 6)),
    "hue": ({}, (3, 6, 6)),
    "impulse_noise": ({}, (3, 6, 6)),
    "jitter": ({"size": 0.2}, (2, 12)),
    "jpeg": ({"quality": (30, 32)}, (3, 8, 8)),
    "motion_blur": ({}, (3, 8, 8)),
    "occlusion": ({"size": 3}, (3, 8, 8)),
    "perspective": ({"degrees": 10}, (3, 8, 8)),
    "pixelate": ({}, (3, 8, 8)),
    "rotation": ({"degrees": 10}, (3, 8, 8)),
    "saturation": ({}, (3, 6, 6)),
    "scale": ({}, (3, 8, 8)),
    "shear": ({}, (3, 8, 8)),
    "shot_noise": ({}, (3, 6, 6)),
    "speckle_noise": ({}, (3, 6, 6)),
    "table": ({"changes": "5%"}, (6,)),
    "time_shift": ({"samples": 3}, (2, 12)),
    "time_stretch": ({"percent": 20}, (2, 12)),
    "time_warp": ({"percent": 30}, (2, 12)),
    "translation": ({"pixels": 2}, (3, 8, 8)),
    "window_crop": ({"percent": 30}, (2, 12)),
}
#: they need more than options: `tests/neighbourhoods` has them
NOT_HERE = ("compose", "token_swaps", "typos", "casing", "punctuation", "deletion")


def list_neighbourhoods() -> Iterator[tuple[str, Case]]:
    for name in own_names(standfast.neighbourhoods.neighbourhoods):
        if name in NOT_HERE:
            continue
        options, shape = NEIGHBOURHOODS[name]
        kind = standfast.neighbourhoods.neighbourhoods[name]
        known = [field.name for field in dataclasses.fields(kind)]
        for distribution in ("uniform", "truncated_normal") if "distribution" in known else (None,):

            def run(
                _: int,
                kind: Any = kind,
                options: dict[str, Any] = options,
                shape: tuple[int, ...] = shape,
                distribution: str | None = distribution,
            ) -> Mapping[str, Any]:
                own = options if distribution is None else {**options, "distribution": distribution}
                inputs = fill(2 * math.prod(shape), 3).reshape(2, *shape).abs().to(DEVICE)
                region = kind(**own).around(inputs, (0.0, 1.0))
                points = region.sample(4, region.streams(7))
                rows = torch.arange(2, device=DEVICE).repeat_interleave(4)
                flat = points.flatten(0, 1)
                return {
                    "points": points,
                    "inputs": region.perturb(flat, rows).unflatten(0, (2, 4)),
                    "settled": region.effective_points(flat, rows).unflatten(0, (2, 4)),
                    "projected": region.project(points + 0.3),
                }

            yield f"{name}{'' if distribution is None else ' ' + distribution}", Case(run)


def own_names(registry: Any) -> list[str]:
    """The names of what the package itself registers, without plug-ins."""
    return [name for name in registry.names() if name not in registry.plugins]


# Studies: the summary of every cell


def list_studies() -> Iterator[tuple[str, Case]]:
    # where a picture is flat, the last bit decides which pixel a max-pooling takes: maps of LeNet-5 move as searches do
    for study in (evaluate_controls, evaluate_bounds, run_two_models):
        yield (
            study.__name__,
            Case(lambda size, study=study: summarise(study(size)), study is not evaluate_controls),
        )


def summarise(found: Any) -> dict[str, Any]:
    """Value, interval, verdict, rank and control test of every cell, as arrays with a row for each cell.

    The verdicts and ranks are those of the numbers alone; `sanity`, `quality` and `checked verdict` are with the sanity
    checks, which these networks of formulas do not pass.
    """
    checked = {(row.model, row.explainer, row.label): row for row in found.summary.rows}
    by_numbers = dataclasses.replace(found, manifest={**found.manifest, "sanity": None})
    table = by_numbers.table()
    columns = {name: table[name].to_list() for name in table.columns}
    if "failure" in columns:
        columns["failure"] = [reason is not None for reason in columns["failure"]]
    entries = by_numbers.summary.rows
    models = [each.model for each in entries]
    ranks = {(each.model, each.explainer, each.label): each.mean_rank for each in entries}
    pairs = zip(
        columns.get("model", [models[0]] * len(table)),
        columns["explainer"],
        columns["metric"],
        strict=True,
    )
    places = list(pairs)
    columns["rank"] = [ranks.get(place) for place in places]
    for name, attribute in {
        "sanity": "sanity",
        "quality": "quality",
        "checked verdict": "standing",
    }.items():
        columns[name] = [getattr(checked.get(place), attribute, None) for place in places]
    keys = [
        " / ".join(str(columns[name][row]) for name in KEYS if name in columns)
        for row in range(len(table))
    ]
    order = sorted(range(len(table)), key=keys.__getitem__)
    return {
        name: np.array([as_number(values[row]) for row in order])
        for name, values in {"cell": keys, **columns}.items()
        if name not in KEYS
    }


KEYS = ("data", "model", "explainer", "metric")


def as_number(value: object) -> float:
    """A cell of a table as a number; text by a digest, so that it is compared as a whole."""
    if value is None:
        return math.nan
    return hash_text(value) if isinstance(value, str) else float(value)  # type: ignore[arg-type]


def evaluate_controls(batch_size: int) -> Any:
    """Several metrics without a search, controls, an explainer that fails, and one that gives constant maps."""

    def fail(module: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        raise RuntimeError("no map today")

    def flat(module: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        return torch.ones_like(inputs)

    metrics = {
        "AOPC": standfast.metrics.AOPC(steps=6, samples=2),
        "curve": standfast.metrics.CorruptionCurve(fractions=(0.2, 0.6, 1.0), samples=2),
        "sensitivity": standfast.metrics.MaxSensitivity(standfast.LinfBall(0.05), samples=5),
    }
    explainers = {
        "saliency": "saliency",
        "gradcam": "gradcam",
        "lrp": "lrp",
        "fails": fail,
        "flat": flat,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return standfast.evaluate(
            make_classifier("conv", batch_size),
            explainers,
            make_inputs("conv", 14),
            metrics,
            seed=3,
            progress=False,
        )


def evaluate_bounds(batch_size: int) -> Any:
    """Probabilities of which some are only bounds, and worst cases."""
    probability = standfast.metrics.MisinterpretationProbability(
        standfast.LinfBall(0.03), threshold=0.8, particles=40, moves=2, floor=-3.0
    )
    metrics = {
        "P": probability,
        "worst": standfast.metrics.WorstCase(standfast.LinfBall(0.1), budget=40),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return standfast.evaluate(
            make_classifier("mlp", batch_size),
            ["saliency", "input_x_gradient"],
            make_inputs("mlp", 8),
            metrics,
            progress=False,
        )


def run_two_models(_: int) -> Any:
    """A study file with two models and repeats, run into a folder and read from it."""
    study = {
        "data": {"digits": "digits"},
        "samples": 8,
        "repeats": 2,
        "seed": 1,
        "controls": False,
        "device": DEVICE,
        "models": {"natural": "lenet5-mnist", "adversarial": "lenet5-mnist-pgd"},
        "neighbourhood": {"linf": 0.05},
        "explainers": ["saliency", "input_x_gradient", {"smoothgrad": {"samples": 4}}],
        "metrics": [
            {"aopc": {"steps": 6, "samples": 2}},
            "log_odds",
            {"local_lipschitz": {"samples": 4}},
        ],
    }
    with tempfile.TemporaryDirectory() as folder:
        standfast.run_study(study, out=folder, progress=False)
        found = standfast.load_results(folder)
        assert found.summary.rows  # read while the folder is there
        return found


# Study files with something wrong: the exit code and where the problems are


def run_command(*arguments: str) -> float:
    """The exit code of a command line, whose output is hidden."""
    from standfast.cli import main as run_main

    before, sys.argv = sys.argv, ["standfast", *arguments]
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            run_main()
    except SystemExit as stopped:
        return float(stopped.code or 0)
    finally:
        sys.argv = before
    return 0.0


def list_broken(folder: Path) -> Iterator[tuple[str, Case]]:

    from malformed_studies import MALFORMED, prepare
    from standfast.study.file.document import StudyError
    from standfast.study.file.spec import load_study

    prepare(folder)
    for name, (text, _) in MALFORMED.items():

        def run(_: int, text: str = text) -> Mapping[str, Any]:
            path = folder / "study.yaml"
            path.write_text(text)
            code = run_command("run", str(path), "--dry-run")
            places = []
            try:
                load_study(path).grid()
            except StudyError as error:
                places = [f"{'.'.join(map(str, each.path))} {each.line}" for each in error.problems]
            except standfast.StandfastError as error:
                places = [type(error).__name__]
            return {"exit code": [code], "places": [hash_text(each) for each in sorted(places)]}

        yield name, Case(run)


# Recording and comparing

GROUPS: dict[str, Callable[[], Iterator[tuple[str, Case]]]] = {
    "explainers": list_explainers,
    "metrics": list_metrics,
    "similarities": list_similarities,
    "neighbourhoods": list_neighbourhoods,
    "studies": list_studies,
}
ALL_GROUPS = [*GROUPS, "broken_studies"]


def list_cases(group: str, folder: Path) -> dict[str, Case]:
    return dict(list_broken(folder) if group == "broken_studies" else GROUPS[group]())


def hash_text(text: str) -> float:
    """A text as a whole number below 2^32."""
    return float(int(hashlib.sha256(text.encode()).hexdigest()[:8], 16))


def as_array(values: Any) -> np.ndarray[Any, Any]:
    return np.asarray(
        values.detach().double().cpu().numpy() if isinstance(values, Tensor) else values,
        dtype=np.float64,
    )


def digest(arrays: Mapping[str, Any]) -> dict[str, str]:
    """A digest of the bits of each array; all NaN are equal, and so are both zeros."""
    plain = {
        name: np.where(np.isnan(a := as_array(values)), np.nan, a) + 0.0
        for name, values in arrays.items()
    }
    return {
        name: hashlib.sha256(str(a.shape).encode() + a.tobytes()).hexdigest()[:12]
        for name, a in plain.items()
    }


def round_values(values: Any) -> list[float | str]:
    """Six digits of an array: of each number, or of the sums and the norms of its rows if there are many."""
    a = as_array(values)
    if a.ndim > 1 and a.size > 12:
        rows = a.reshape(len(a), -1)
        a = np.stack([rows.sum(1), np.sqrt((rows**2).sum(1))])
    return [float(f"{x:.6g}") if math.isfinite(x) else str(x) for x in a.ravel()]


def compute(case: Case, batch_size: int = BATCH_SIZES[0]) -> dict[str, Any]:
    """What is stored of a case; a refusal by the library is a result as well."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            arrays = case.run(batch_size)
    except (standfast.ArgumentError, standfast.ModelError, ValueError) as error:
        return {"refused": type(error).__name__}
    finally:
        torch.set_num_threads(before)
    values = {name: round_values(each) for name, each in arrays.items()}
    return {"searches": case.searches, "bits": digest(arrays), "values": values}


def describe_machine() -> dict[str, str]:
    """What bits depend on besides the code."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), ""
    )
    capability = torch.backends.cpu.get_cpu_capability()
    return {
        "torch": torch.__version__,
        "processor": f"{model or platform.processor()} {capability}",
    }


def find_moves(
    case: Mapping[str, Any], recorded: Mapping[str, Any], same_machine: bool
) -> list[str]:
    """What of a case differs from its recorded numbers, in words."""
    if "refused" in case or "refused" in recorded:
        same = case.get("refused") == recorded.get("refused")
        return (
            []
            if same
            else [f"{recorded.get('refused', 'a result')} became {case.get('refused', 'a result')}"]
        )
    if recorded["searches"] and not (same_machine and recorded["bits"]):
        return []
    moved = []
    for name, old in recorded["values"].items():
        new, bits = case["values"].get(name), recorded["bits"].get(name) if same_machine else None
        if new is None:
            moved.append(f"{name} is gone")
        elif not is_close(new, old) if bits is None else case["bits"][name] != bits:
            moved.append(f"{name}: {old[:6]} became {new[:6]}")
    return moved


def is_close(new: list[Any], old: list[Any]) -> bool:
    a, b = np.array(new, dtype=float), np.array(old, dtype=float)
    return a.shape == b.shape and bool(
        np.allclose(a, b, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)
    )


def read(group: str) -> dict[str, Any]:
    file = HERE / f"{group}.json"
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    return found or {"machine": describe_machine(), "cases": {}}


def write(group: str, moved: bool, new_machine: bool) -> int:
    """Record the cases of a group that are new or have no bits yet, or all of them, and return how many."""
    recorded, machine = read(group), describe_machine()
    same = new_machine or recorded["machine"] == machine
    if moved and not same:
        raise SystemExit(
            f"{group}: recorded on {recorded['machine']}, and this is {machine}; see --machine"
        )
    with tempfile.TemporaryDirectory() as folder:
        cases = list_cases(group, Path(folder))
        old = (
            {}
            if moved or new_machine
            else {name: own for name, own in recorded["cases"].items() if name in cases}
        )
        waiting = [
            name for name in cases if name not in old or (same and old[name].get("bits") == {})
        ]
        found = {name: compute(cases[name]) for name in waiting}
    if not same:
        found = {
            name: {**case, "bits": {}} if "bits" in case else case for name, case in found.items()
        }
    lines = ",\n".join(
        f"{json.dumps(name)}: {json.dumps({**old, **found}[name])}" for name in cases
    )
    head = f'{{"machine": {json.dumps(machine if new_machine else recorded["machine"])},\n"cases": {{\n'
    (HERE / f"{group}.json").write_text(f"{head}{lines}\n}}}}\n")
    return len(found)


def compare(group: str, found: Mapping[str, Any]) -> list[str]:
    """What differs from the recorded numbers of a group, a line for each number."""
    recorded = read(group)
    same_machine = recorded["machine"] == describe_machine()
    old = recorded["cases"]
    moves = {
        name: find_moves(found[name], old[name], same_machine) for name in found if name in old
    }
    return [f"{name}: {words}" for name, lines in moves.items() for words in lines]


def find_renamed(group: str, names: Iterable[str]) -> list[str]:
    """The cases of a group that are new or gone."""
    recorded = read(group)["cases"].keys()
    return [
        f"{name}: {'gone' if name in recorded else 'new'}" for name in sorted(recorded ^ set(names))
    ]


def compute_all(group: str, batch_size: int = BATCH_SIZES[0]) -> dict[str, Any]:
    """All cases of a group, computed now."""
    with tempfile.TemporaryDirectory() as folder:
        return {
            name: compute(case, batch_size)
            for name, case in list_cases(group, Path(folder)).items()
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--write",
        action="store_true",
        help="record what is new, all defaults, and drop what is gone",
    )
    parser.add_argument("--moved", action="store_true", help="record all numbers of today")
    parser.add_argument(
        "--machine", action="store_true", help="record all numbers of today, and this machine"
    )
    parser.add_argument("--only", choices=ALL_GROUPS, help="one file of numbers")
    chosen = parser.parse_args()
    sys.path.append(str(HERE.parent / "stand_ins"))
    if chosen.write:
        print("\n".join(["defaults:", *write_defaults()]))
    for group in [chosen.only] if chosen.only else ALL_GROUPS:
        if chosen.write or chosen.moved or chosen.machine:
            print(f"{group}: {write(group, chosen.moved, chosen.machine)} cases recorded")
        else:
            found = compute_all(group)
            print(
                "\n  ".join(
                    [
                        f"{group}: {len(found)} cases",
                        *find_renamed(group, found),
                        *compare(group, found),
                    ]
                )
            )


if __name__ == "__main__":
    main()
