"""The numbers and the figure of papers/senc/README.md and docs/senc-bias.md.

    python scripts/senc_bias.py              bias of the published sum; writes papers/senc/senc-bias.svg (a minute)
    python scripts/senc_bias.py --readings   perfectly consistent weights, and other readings of the sum (a minute)
    python scripts/senc_bias.py --pooled     error rate and coverage of the test and interval over inputs (a minute)
    python scripts/senc_bias.py --masks      how many masks real digits need for a tolerance (minutes)
    python scripts/senc_bias.py --coverage   how often intervals cover and early stopping keeps its word (10 minutes)

Everything is seeded; the same command prints the same numbers.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import standfast
from standfast.algorithms.masks.random_masks import (
    Consistency,
    draw_masks,
    is_settled,
    measure_consistency,
    plan_checks,
)
from standfast.report.charts import COLOURS
from standfast.report.page.render import CONFIG
from standfast.statistics.paired import bootstrap_interval
from standfast.statistics.pooling import pool_inputs
from standfast.tensors import Streams

# a clone has papers/ beside this folder
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from papers.senc.readings import average_over_masks, divide_by_mask_sums

FIGURE = Path(__file__).resolve().parents[1] / "papers" / "senc" / "senc-bias.svg"
MASKS, FEATURES, KEEP, RUNS = 5000, 20, 0.8, 400
# mean and spread of the weights of prediction and explanation, which have nothing to do with each other
SETTINGS = (
    ((0.9, 0.1), (0.5, 0.1)),
    ((0.7, 0.25), (0.5, 0.15)),
    ((0.5, 0.3), (0.3, 0.2)),
    ((0.9, 0.1), (0.0, 0.1)),
)
ESTIMATORS = ("paper", "centred")


def expected_rho(
    prediction: tuple[float, float], explanation: tuple[float, float], features: int
) -> float:
    """Mean rho of the published sum for independent weights of given mean and spread.

    The two sums of a feature correlate over features by the cosine of the two weight vectors; the rest is the mean of
    Spearman's rho in samples of two normal variables (Moran 1948).
    """
    cosine = math.prod(
        mean / math.hypot(mean, spread) for mean, spread in (prediction, explanation)
    )
    return (
        6
        / (math.pi * (features + 1))
        * (math.asin(cosine) + (features - 2) * math.asin(cosine / 2))
    )


def independent(
    setting: tuple[tuple[float, float], tuple[float, float]], seed: int
) -> dict[str, Consistency]:
    """`RUNS` problems with independent weights, by estimator."""
    streams = Streams([seed * 1_000_003 + run for run in range(RUNS)], torch.device("cpu"))
    masks = draw_masks(MASKS, FEATURES, KEEP, streams)
    weights = [mean + spread * streams.normal((MASKS,), torch.float64) for mean, spread in setting]
    return {
        name: measure_consistency(
            *weights, masks, estimator=name, permutations=199, resamples=0, streams=streams
        )
        for name in ESTIMATORS
    }


def bias() -> None:
    print(f"Independent weights: {MASKS} masks, {FEATURES} features, {KEEP:.0%} kept, {RUNS} runs")
    print("weights                 estimator  mean rho  (formula)  sd    top-1  top-3  p < 0.05")
    rhos: list[tuple[str, str, Tensor]] = []
    for seed, setting in enumerate(SETTINGS):
        title = " and ".join(f"{mean} ± {spread}" for mean, spread in setting)
        for name, found in independent(setting, seed).items():
            expected = f"{expected_rho(*setting, FEATURES):.2f}" if name == "paper" else "0.00"
            print(
                f"{title:24}{name:10} {found.rho.mean():8.2f}   ({expected})   {found.rho.std():6.2f}"
                f" {found.top1.mean():6.2f} {found.top3.mean():6.2f} {(found.p_value < 0.05).double().mean():6.3f}"
            )
            rhos.append((title, name, found.rho))
    draw(rhos)


def draw(rhos: list[tuple[str, str, Tensor]]) -> None:
    """Histograms of rho, one panel for each setting."""
    import vl_convert

    width = 0.05
    values: list[dict[str, Any]] = []
    for title, name, rho in rhos:
        counts = torch.histc(rho, bins=round(2 / width), min=-1, max=1) / len(rho)
        values += [
            {
                "setting": title,
                "sum": name,
                "from": -1 + width * place,
                "to": -1 + width * (place + 1),
                "share": share,
            }
            for place, share in enumerate(counts.tolist())
            if share > 0
        ]
    names = {"paper": "published sum", "centred": "centred"}
    for value in values:
        value["sum"] = names[value["sum"]]
    panel = {
        "width": 520,
        "height": 75,
        "mark": {"type": "bar", "opacity": 0.75, "binSpacing": 0.5},
        "encoding": {
            "x": {
                "field": "from",
                "type": "quantitative",
                "bin": {"binned": True, "step": width},
                "scale": {"domain": [-1, 1]},
                "axis": {"values": [-1, -0.5, 0, 0.5, 1], "format": ".1f"},
                "title": "rho of weights that have nothing to do with each other",
            },
            "x2": {"field": "to"},
            "y": {
                "field": "share",
                "type": "quantitative",
                "stack": None,
                "axis": {"format": "%", "tickCount": 3},
                "title": "runs",
            },
            "color": {
                "field": "sum",
                "type": "nominal",
                "scale": {"domain": list(names.values()), "range": [COLOURS[1], COLOURS[0]]},
                "legend": {"orient": "top", "title": None},
            },
        },
    }
    spec = {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "data": {"values": values},
        "facet": {
            "row": {
                "field": "setting",
                "type": "nominal",
                "sort": list(dict.fromkeys(value["setting"] for value in values)),
                "header": {
                    "title": "mean ± spread of the weights: prediction and explanation",
                    "labelOrient": "top",
                    "labelAnchor": "start",
                    "labelAngle": 0,
                    "labelFontSize": 12,
                    "titleFontSize": 12,
                    "titleOrient": "top",
                    "titleFontWeight": "normal",
                },
            }
        },
        "spec": panel,
        "resolve": {"scale": {"y": "independent"}},
        "spacing": 14,
        "padding": 8,
        "config": {**CONFIG, "background": "white"},
    }
    FIGURE.write_text(vl_convert.vegalite_to_svg(spec, allowed_base_urls=[]) + "\n")
    print(f"wrote {FIGURE.name}")


def readings(runs: int = 100) -> None:
    """Perfectly consistent weights and unrelated ones, by the published sum, the centred one and two other readings."""
    streams = Streams(range(50_000, 50_000 + runs), torch.device("cpu"))
    masks = draw_masks(MASKS, FEATURES, KEEP, streams)
    effects = (1 + torch.arange(FEATURES, dtype=torch.float64)) / (FEATURES * (FEATURES + 1) / 2)
    change = (~masks).to(torch.float64) @ effects  # 0 if all is kept, 1 if nothing is
    cases = {
        f"consistent: 1 - {size} c and {mean} - c": (1 - size * change, mean - change)
        for size, mean in (
            (0.2, 1.0),
            (0.2, 0.5),
            (0.05, 0.5),
            (0.05, 0.2),
            (0.05, 0.15),
            (0.02, 0.0),
        )
    }
    for setting in SETTINGS[:2]:
        drawn = [
            mean + spread * streams.normal((MASKS,), torch.float64) for mean, spread in setting
        ]
        cases[f"unrelated: {' and '.join(f'{mean} ± {spread}' for mean, spread in setting)}"] = (
            drawn[0],
            drawn[1],
        )
    print(f"{'weights':44} published  centred  divided by mask sums  average over masks (20 runs)")
    for title, weights in cases.items():
        found = [
            measure_consistency(
                *weights, masks, estimator=name, permutations=0, resamples=0
            ).rho.mean()
            for name in ESTIMATORS
        ]
        divided = [
            divide_by_mask_sums(each, masks).argsort(1).argsort(1).to(torch.float64)
            for each in weights
        ]
        gap = (divided[0] - divided[1]).square().sum(1)
        found.append((1 - 6 * gap / (FEATURES * (FEATURES**2 - 1))).mean())
        ones = torch.ones(FEATURES)
        averages = [
            average_over_masks(weights[0][r], weights[1][r], masks[r], ones)
            for r in range(min(20, runs))
        ]
        print(
            f"{title:44}"
            + "".join(f"{value:10.3f}" for value in (*found, torch.stack(averages).mean())),
            flush=True,
        )


def pooled(runs: int = 4000) -> None:
    """How often the pooled test rejects unrelated weights, and how often the interval of the mean covers."""
    print("inputs  estimator  p < 0.05  p < 0.01")
    for inputs in (2, 5, 20):
        groups = runs // inputs
        streams = Streams(range(inputs * groups), torch.device("cpu"))
        masks = draw_masks(100, 12, KEEP, streams)
        weights = [
            m + s * streams.normal((100,), torch.float64) for m, s in ((0.9, 0.1), (0.5, 0.1))
        ]
        for name in ESTIMATORS:
            found = measure_consistency(
                *weights, masks, estimator=name, permutations=199, resamples=0, streams=streams
            )
            rho, p = (each.reshape(groups, inputs).numpy() for each in (found.rho, found.p_value))
            together = [pool_inputs(a, b, 199).p_value for a, b in zip(rho, p, strict=True)]
            shares = [sum(one < level for one in together) / groups for level in (0.05, 0.01)]
            print(f"{inputs:6}  {name:9}" + "".join(f"{share:10.3f}" for share in shares))
    print("inputs  median of rho's distribution  covered  claimed")
    generator = np.random.default_rng(0)
    for inputs in (5, 10, 40):
        for centre, spread in ((0.0, 0.3), (0.5, 0.4), (1.2, 0.5), (2.5, 0.7)):
            true, drawn = (
                math.tanh(centre),
                np.tanh(generator.normal(centre, spread, (2000, inputs))),
            )
            found = [bootstrap_interval(row) for row in drawn]
            covered = sum((each.low or 0.0) <= true <= (each.high or 0.0) for each in found) / len(
                found
            )
            print(f"{inputs:6}  {true:28.2f} {covered:8.3f} {found[0].coverage:8.3f}")


def needed_masks(most: int = 40_000, count: int = 4) -> None:
    """How far the ends of rho's interval are from rho, on real digits, by the number of masks."""
    digits = standfast.data.bundled("digits")[:count]
    model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    print(
        "masks   digits whose interval is within 0.1 of rho (0.2)   median distance of the farther end"
    )
    for masks in plan_checks(most, 1000)[::2]:
        metric = standfast.metrics.DataSensitivityConsistency(
            masks=masks, permutations=1, resamples=200
        )
        found = metric(model, "input_x_gradient", digits.inputs)
        reach = torch.maximum(found.value - found.low, found.high - found.value)
        within = [int((reach * 1.2 <= tolerance).sum()) for tolerance in (0.1, 0.2)]
        print(
            f"{masks:6}  {within[0]}/{count} ({within[1]}/{count}) {reach.median():10.3f}",
            flush=True,
        )


def linear_weights(
    kind: str, agreement: float, signal: float, masks: Tensor, streams: Streams
) -> tuple[Tensor, Tensor, Tensor]:
    """Weights that are linear in the mask, plus noise, so that the rho of infinitely many masks is known.

    The effects of the features are normal, `few` (log-normal: few features matter) or `half` (half of the features
    hardly matter); `signal` is their size beside the noise.

    Returns:
        Weights of prediction and explanation `(R, K)`, and the true rho `(R,)`.
    """
    count, features = masks.shape[1:]
    first, other = (streams.normal((features,), torch.float64) for _ in range(2))
    effects = [first, agreement * first + math.sqrt(1 - agreement**2) * other]
    if kind == "few":
        effects = [torch.exp(1.5 * effect) for effect in effects]
    elif kind == "half":
        small = torch.where(torch.arange(features) < features // 2, 0.01, 1.0)
        effects = [effect * small for effect in effects]
    effects = [effect / effect.norm(dim=1, keepdim=True) for effect in effects]
    noise = math.sqrt(KEEP * (1 - KEEP)) / signal
    weights = [
        (masks.to(torch.float64) @ effect[..., None])[..., 0]
        + noise * streams.normal((count,), torch.float64)
        for effect in effects
    ]
    places = [effect.argsort(dim=1).argsort(dim=1).to(torch.float64) for effect in effects]
    true = 1 - 6 * (places[0] - places[1]).square().sum(1) / (features * (features**2 - 1))
    return weights[0], weights[1], true


def coverage(runs: int = 100) -> None:
    print("kind    m   agree signal masks  covered  mean rho - true  mean width")
    shares: list[float] = []
    streams = Streams(range(runs), torch.device("cpu"))
    for features in (8, 20):
        for kind in ("normal", "few", "half"):
            for agreement in (0.0, 0.8, 0.99):
                for signal in (0.5, 2.0):
                    masks = draw_masks(5000, features, KEEP, streams)
                    p, e, true = linear_weights(kind, agreement, signal, masks, streams)
                    for used in (200, 1000, 5000):
                        found = measure_consistency(
                            p[:, :used], e[:, :used], masks[:, :used], permutations=0
                        )
                        inside = (found.interval[:, 0] <= true + 1e-9) & (
                            true - 1e-9 <= found.interval[:, 1]
                        )
                        share = inside.double().mean().item()
                        shares.append(share)
                        print(
                            f"{kind:8}{features:2} {agreement:6} {signal:6} {used:6} {share:8.3f}"
                            f" {(found.rho - true).mean():+10.2f} {found.interval.diff(dim=1).mean():15.2f}",
                            flush=True,
                        )
    print(
        f"{len(shares)} settings: mean coverage {sum(shares) / len(shares):.3f}, lowest {min(shares):.3f}"
    )


def stopping(runs: int = 60, masks: int = 5000) -> None:
    print("kind    m   agree signal tolerance  stopped early  within tolerance  mean masks")
    totals = torch.zeros(2, dtype=torch.int64)
    streams = Streams(range(10_000, 10_000 + runs), torch.device("cpu"))
    for features in (8, 20):
        for kind in ("normal", "few", "half"):
            for agreement, signal in ((0.0, 3.0), (0.8, 3.0), (0.99, 1.0)):
                drawn = draw_masks(masks, features, KEEP, streams)
                p, e, true = linear_weights(kind, agreement, signal, drawn, streams)
                for tolerance, (early, right, used) in run_checks(
                    p, e, drawn, true, (0.1, 0.2)
                ).items():
                    totals += torch.tensor([early, right])
                    print(
                        f"{kind:8}{features:2} {agreement:6} {signal:6} {tolerance:8} {early:9}/{runs}"
                        f" {right:12}/{early} {used:14.0f}",
                        flush=True,
                    )
    early, right = totals.tolist()
    print(f"all: {right} of {early} within tolerance, {right / early:.3f}")


def run_checks(
    p: Tensor, e: Tensor, masks: Tensor, true: Tensor, tolerances: tuple[float, ...]
) -> dict[float, tuple[int, int, float]]:
    """By tolerance: how many problems stopped before the last mask, how many of them were right, and mean masks."""
    checks = plan_checks(p.shape[1])
    stopped_at = {tolerance: torch.full((len(p),), checks[-1]) for tolerance in tolerances}
    right = dict.fromkeys(tolerances, 0)
    for check in checks[:-1]:
        going = torch.stack([at == checks[-1] for at in stopped_at.values()]).any(0).nonzero()[:, 0]
        if not len(going):
            break
        found = measure_consistency(
            p[going, :check], e[going, :check], masks[going, :check], permutations=0
        )
        for tolerance, at in stopped_at.items():
            done = is_settled(found, tolerance) & (at[going] == checks[-1])
            at[going[done]] = check
            right[tolerance] += int(((found.rho - true[going]).abs()[done] <= tolerance).sum())
    return {
        tolerance: (int((at < checks[-1]).sum()), right[tolerance], at.double().mean().item())
        for tolerance, at in stopped_at.items()
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in (readings, pooled, needed_masks):
        parser.add_argument(
            f"--{name.__name__.removeprefix('needed_')}",
            action="store_const",
            const=name,
            dest="part",
        )
    parser.add_argument(
        "--coverage", action="store_true", help="coverage and early stopping instead of the bias"
    )
    torch.set_num_threads(1)
    given = parser.parse_args()
    if given.part is not None:
        given.part()
    elif given.coverage:
        coverage()
        stopping()
    else:
        bias()
