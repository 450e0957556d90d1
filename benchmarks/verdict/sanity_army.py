"""The error rates of the sanity checks: an army of bad explainers, and good ones, on images, series, tables and text.

    python benchmarks/verdict/sanity_army.py [--quick] [--parts 200] [--kind tables ...] [--folder FOLDER]
        [--out army.json]

Each kind of data has five trained models. Each explainer is measured once on a pool of samples for each model. Then the
checks decide on random parts of the pool: 200 (`--parts`) of 8, 24 and 100 samples, for each model. No bad
explainer should pass; a good one should fail in at most 2% of the parts. What is printed is the share that passed /
failed / stayed undecided, over the models, and for each check that failed how often it did.

The measurements are those of the pool: the values at removed features are those of samples of the pool, and the nearby
input lies on the way to one of them. The similarity of pairs is computed again for each part. A part has as many groups
with scrambled models of their own as a direct call would make. `--validate` compares the decisions with those of direct
calls on the parts.

Models and measurements are kept in the folder, so margins can be tried without measuring again.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import polars as pl
import torch
from army_models import KINDS, Subject
from torch import Tensor

from standfast.explainers import Explainer, RandomisedExplainer, get
from standfast.metrics.sanity import SanityChecks
from standfast.metrics.sanity.checks import name_gain
from standfast.metrics.sanity.pairs import find_pseudo_values, pair_samples
from standfast.metrics.sanity.scrambling import SCRAMBLED, divide_into_groups
from standfast.model import Model
from standfast.results.sanity import decide_checks, decide_columns
from standfast.tensors import Array

SIZES = (8, 24, 100)
#: what the decisions read
COLUMNS = ["status", "value", "nearby", "within", "scrambled", "removal", "learned", "other_class"]
COLUMNS += ["negative", "linear", "classes", "outside", "gap", "correct", "group"]
COLUMNS += [name_gain(place) for place in range(SCRAMBLED)]
Change = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Changed(Explainer):
    """The maps of another explainer, changed: `change(maps, x, classes)`; for the class `shift` further on."""

    inner: Explainer
    change: Change = lambda maps, x, classes: maps
    shift: int = 0
    model: Model | None = None
    name: ClassVar[str] = "changed"
    differentiable: ClassVar[bool] = False

    @property
    def rows_per_input(self) -> int:
        return self.inner.rows_per_input

    def attribute(
        self, model: Model, x: Tensor, targets: Tensor | None, *, create_graph: bool = False
    ) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            logits = model.forward(x.clone())
        classes = logits.argmax(1) if targets is None else targets
        wanted = (classes + self.shift) % logits.shape[1]
        maps, _ = self.inner.attribute(self.model or model, x, wanted)
        return self.change(maps, x, classes), logits


def make_good(subject: Subject) -> dict[str, Explainer]:
    """Explainers that should pass, with baselines that lie in the data."""
    baseline = {"baseline": subject.baseline}
    window = {"window": 4, "stride": 4} if subject.inputs.ndim == 4 else {}
    found: dict[str, Explainer] = {
        "occlusion": get("occlusion", output="logit", **window, **baseline),
        "kernel_shap": get("kernel_shap", samples=48, **baseline, **subject.segments),
        "lime": get("lime", samples=48, **baseline, **subject.segments),
    }
    if subject.inputs.ndim == 2:
        found["shapley_sampling"] = get("shapley_sampling", permutations=5, **baseline)
    if subject.model.black_box is None:
        found |= {name: get(name) for name in ("saliency", "input_x_gradient")}
        found["integrated_gradients"] = get("integrated_gradients", steps=8, **baseline)
        found["deeplift"] = get("deeplift", **baseline)
        low, high = subject.model.bounds
        # the noise is a share of their range, here for a third of the spread of the data
        if low.isfinite().all():
            noise = 0.3 * float(subject.inputs.std() / (high - low).max())
            found["smoothgrad"] = get("smoothgrad", samples=10, noise=noise)
        found["lrp_epsilon_plus"] = get("lrp_epsilon_plus")
    return found


def make_bad(subject: Subject) -> dict[str, Explainer]:
    """Explainers that must not pass."""
    black_box = subject.model.black_box is not None
    signed = (
        get("occlusion", output="logit", baseline=subject.baseline)
        if black_box
        else get("input_x_gradient")
    )
    example, generator = subject.inputs[:1], torch.Generator().manual_seed(1)
    fixed = torch.randn(example.shape, generator=generator)
    order = torch.randperm(example.numel(), generator=generator)
    # one cycle: no feature keeps its place
    moved = torch.empty_like(order).scatter_(0, order, order.roll(1))
    templates = torch.stack(
        [subject.inputs[subject.labels == k].mean(0) for k in range(subject.classes)]
    )
    found: dict[str, Explainer] = {
        "constant": Changed(
            get("input_copy"), lambda maps, x, classes: fixed.expand(x.shape).clone()
        ),
        "centre": get("centre"),
        "input copy": get("input_copy"),
        "random": get("random"),
        "other class": Changed(signed, shift=1),
        "untrained": Changed(signed, model=subject.untrained),
        "shuffled": Changed(
            signed, lambda maps, x, classes: maps.flatten(1)[:, moved].view_as(maps)
        ),
        "flipped": Changed(signed, lambda maps, x, classes: -maps),
        "label": Changed(get("input_copy"), lambda maps, x, classes: templates[classes]),
    }
    if subject.inputs.ndim > 2:
        found["edges"] = get("edges")
    else:
        far = subject.inputs.abs().amax(0) * 1000 + 1000
        found["impossible occlusion"] = get(
            "occlusion", output="logit", baseline=tuple(far.tolist())
        )
        if not black_box:
            found["impossible gradients"] = get(
                "integrated_gradients", baseline=tuple(far.tolist())
            )
    if not black_box:
        for seed in range(100, 103):
            found[f"randomised input_x_gradient {seed}"] = RandomisedExplainer(
                get("input_x_gradient"), seed=seed
            )
        found["randomised saliency"] = RandomisedExplainer(get("saliency"), seed=100)
    return found


@dataclass(frozen=True)
class Measured:
    """The measurements of one explainer on the pool, and the similarity of all pairs of its maps `(n, n)`."""

    rows: pl.DataFrame
    pairs: Tensor
    classes: Tensor
    seconds: float

    def take(self, part: Tensor) -> dict[str, Array]:
        """The columns of a part of the pool, with the excess within the part."""
        taken = {name: values[part.numpy()] for name, values in self.columns.items()}
        ok = taken["status"] == "ok"
        fine = part[torch.from_numpy(ok)]
        for column, same in (("value", False), ("within", True)):
            first, second = pair_samples(self.classes[fine], same)
            taken[column][ok] = float("nan")
            if len(first):
                nearby = torch.from_numpy(taken["nearby"][ok])
                alike = self.pairs[fine[first], fine[second]]
                taken[column][ok] = find_pseudo_values(alike, first, second, nearby)[1].numpy()
        return taken

    @cached_property
    def columns(self) -> dict[str, Array]:
        return {name: self.rows[name].to_numpy().copy() for name in COLUMNS}


def measure(subject: Subject, explainer: Explainer) -> Measured:
    """All measurements on the pool."""
    checks, start = (
        SanityChecks(samples=len(subject.inputs), labels=subject.labels),
        time.perf_counter(),
    )
    rows = checks(
        subject.model, explainer, subject.inputs, generator=torch.Generator().manual_seed(0)
    ).frame()
    seconds = time.perf_counter() - start
    with subject.model.session():
        maps, logits = explainer.attribute_all(subject.model, subject.inputs, None)
    flat = maps.double().flatten(1)
    flat = flat - flat.mean(1, keepdim=True)
    flat = flat / flat.norm(dim=1, keepdim=True).clamp(min=1e-12)
    return Measured(rows, flat @ flat.T, logits.argmax(1), seconds)


def draw_parts(count: int, size: int, repeats: int) -> Iterator[Tensor]:
    """Random parts of a pool of `count` samples, each of so many of its groups as a direct call would make."""
    generator = torch.Generator().manual_seed(size)
    pool_groups = divide_into_groups(torch.empty(count), weights=0)
    part_groups = divide_into_groups(torch.empty(size), weights=0)
    for _ in range(repeats):
        chosen = torch.randperm(count_groups(pool_groups), generator=generator)
        part = []
        for group, number in enumerate(part_groups.bincount().tolist()):
            members = (pool_groups == chosen[group]).nonzero()[:, 0]
            order = torch.randperm(len(members), generator=generator)
            part.append(members[order[:number]])
        yield torch.cat(part)


def count_groups(groups: Tensor) -> int:
    return int(groups.max()) + 1


def decide(measured: Measured, repeats: int) -> dict[str, dict[str, float]]:
    """By the size of the parts: the shares of the states, and of the checks that failed or stayed undecided."""
    found = {}
    for size in SIZES:
        counts: Counter[str] = Counter()
        for part in draw_parts(len(measured.rows), size, repeats):
            checked = decide_columns(measured.take(part))
            counts[checked.state] += 1
            counts.update(f"{check.question} {check.state}" for check in checked.checks)
        found[str(size)] = {name: count / repeats for name, count in counts.items()}
    return found


def validate(subject: Subject, explainer: Explainer, measured: Measured) -> float:
    """The share of 10 parts of 24 samples on which a direct call decides as the measurements of the pool do."""
    checks, same = SanityChecks(labels=subject.labels), 0
    for part in draw_parts(len(measured.rows), 24, 10):
        rows = checks(
            subject.model,
            explainer,
            subject.inputs[part],
            generator=torch.Generator().manual_seed(0),
        )
        same += decide_checks(rows.frame()).state == decide_columns(measured.take(part)).state
    return same / 10


def report(kind: str, found: dict[str, list[dict[str, Any]]]) -> None:
    """Print the shares over the models: passed / failed / undecided in percent, and the checks that decided."""
    for name, each in found.items():
        cells, reasons = [], Counter()
        for size in map(str, SIZES):
            shares = [sum(one[size].get(state, 0) for one in each) / len(each) for state in STATES]
            cells.append("/".join(f"{100 * share:5.1f}" for share in shares))
        for one in each:
            reasons.update(
                {
                    key: share / len(each)
                    for key, share in one["24"].items()
                    if key.endswith("failed") and " " in key
                }
            )
        said = " ".join(
            f"{key.split()[0]} {100 * share:.1f}" for key, share in reasons.most_common(4)
        )
        print(f"{kind:7s}{name:32s}{'  '.join(cells)}  {said}")


STATES = ("passed", "failed", "undecided")


def save(measured: Measured, place: Path) -> None:
    """Keep it as plain values and tensors, so that reading it runs no code."""
    parts = {"pairs": measured.pairs, "classes": measured.classes, "seconds": measured.seconds}
    torch.save({**parts, "rows": measured.rows.to_dict(as_series=False)}, place)


def load(place: Path) -> Measured:
    parts = torch.load(place, weights_only=True)
    rows = pl.DataFrame(parts.pop("rows"), infer_schema_length=None)
    return Measured(rows, **parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="two models of each kind, pools of 40, 20 parts"
    )
    parser.add_argument("--kind", nargs="*", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "sanity_army")
    parser.add_argument("--out", type=Path)
    parser.add_argument(
        "--parts", type=int, default=200, help="how many random parts of each size decide"
    )
    parser.add_argument("--models", action="store_true", help="print the shares of each model, too")
    parser.add_argument(
        "--measured", action="store_true", help="only decide on what the folder has"
    )
    parser.add_argument("--validate", action="store_true", help="compare with direct calls")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    pool, models, repeats = (110, 2, 20) if options.quick else (160, 5, options.parts)
    result: dict[str, Any] = {}
    for kind in options.kind:
        both: dict[str, dict[str, list[dict[str, Any]]]] = {"good": {}, "bad": {}}
        for name, make in list(KINDS[kind].items())[:models]:
            subject = make(options.folder / "models", pool)
            for group, explainers in (("good", make_good(subject)), ("bad", make_bad(subject))):
                for label, explainer in explainers.items():
                    place = options.folder / f"{pool}" / f"{kind} {name} {label}.pt"
                    place.parent.mkdir(parents=True, exist_ok=True)
                    if options.measured and not place.exists():
                        continue
                    try:
                        if place.exists():
                            measured = load(place)
                        else:
                            measured = measure(subject, explainer)
                    except Exception as error:  # no rule for a layer, such as LRP of an LSTM
                        print(f"{kind} {name} {label}: {type(error).__name__}: {str(error)[:100]}")
                        continue
                    save(measured, place)
                    shares = decide(measured, repeats) | {
                        "model": name,
                        "seconds": measured.seconds,
                    }
                    if options.validate:
                        shares["same"] = validate(subject, explainer, measured)
                    both[group].setdefault(label, []).append(shares)
                    if options.models:
                        report(kind, {f"{name} {label}": [shares]})
        for group, found in both.items():
            print(
                f"{kind}: {group} explainers, in % passed/failed/undecided of parts of {SIZES} samples"
            )
            report(kind, found)
        result[kind] = both
    if options.out:
        options.out.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
