"""The figures of the documentation, from bundled networks and data.

    python scripts/docs_figures.py                 all of them, under docs/figures: about six minutes of one core
    python scripts/docs_figures.py aopc c_eval     some; `bent` is the picture of the README, `paired` that of
                                                   docs/reading-results.md, `task-detection` one of docs/how-to/tasks.md

The figures of docs/metrics are those of standfast's own report.
Everything is seeded; the same command draws the same figures. They are committed, so that the site can be built without
running a model.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

import standfast
from standfast.metrics import Metric
from standfast.report import write_figures

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "figures"
LARGEST = 100_000  # bytes of a figure
MARGIN = 14  # pixels
BENT, PAIRED = "bent", "paired"  # names of pictures that belong to no metric
TASK, TASKS = "task-", ("regression", "labels", "segmentation", "detection", "trees", "texts")
TALLEST = 420  # pixels of a report of `examples/tasks.py`
# which digit, and by how many of 255 grey levels a pixel may change
BENT_DIGIT, BENT_LEVELS = (
    27,
    8,
)
BENT_AMONG = range(10, 70)  # the digits that the README compares it with
EXPLAINERS = ("saliency", "input_x_gradient", "gradcam", "random")


@dataclass(frozen=True)
class Figure:
    """A metric, what it is evaluated on, and which of the report's charts stands on its page."""

    metric: Metric
    samples: int
    chart: str = "distribution"
    explainers: tuple[str, ...] = EXPLAINERS
    model: str = "lenet5-mnist"
    data: standfast.data.Dataset | None = None  # the bundled digits


def figures() -> dict[str, Figure]:
    """The figure of every metric."""
    of = standfast.metrics
    near, small = standfast.LinfBall(0.1), standfast.LinfBall(0.02)
    similarities = ("topk_intersection:k=100", "lens_precision:k=100,w=1", "lens_recall:k=100,w=1")
    attack = of.AttributionAttack(
        standfast.LinfBall(0.1), "top_k", steps=20, restarts=1, similarities=similarities
    )
    rare = of.MisinterpretationProbability(near, threshold=0.8, particles=100, floor=-20.0)
    # the class lies in two blocks, which are known
    waves = standfast.data.synthetic_waves(60, seed=1)
    inside = of.RelevanceLocalisation(regions=waves.extras["blocks"])
    of_series = ("saliency", "input_x_gradient", "integrated_gradients", "random")
    return {
        "groundedness": Figure(of.Groundedness(), 30),
        "linear_datamodeling_score": Figure(of.LinearDatamodelingScore(), 30),
        "reasons": Figure(of.Reasons(small, draws=60), 30),
        "worst_case": Figure(of.WorstCase(standfast.LinfBall(0.2), budget=200), 8, "convergence"),
        "misinterpretation_probability": Figure(rare, 2, "curve_sample0", EXPLAINERS[:3]),
        "max_sensitivity": Figure(of.MaxSensitivity(small, samples=30, normalise=True), 30),
        "local_lipschitz": Figure(of.LocalLipschitz(small, samples=30, normalise=True), 30),
        "seed_agreement": Figure(
            of.SeedAgreement(), 30, explainers=("smoothgrad", "gradient_shap", "rise")
        ),
        "attribution_attack": Figure(attack, 12, explainers=EXPLAINERS[:3]),
        "data_sensitivity_consistency": Figure(of.DataSensitivityConsistency(masks=500), 20),
        "parameter_sensitivity_consistency": Figure(
            of.ParameterSensitivityConsistency(masks=300), 8
        ),
        "c_eval": Figure(of.CEval(), 30, explainers=(*EXPLAINERS, "centre")),
        "c_eval_plot": Figure(of.CEvalPlot(), 8, "c_eval_plot", (*EXPLAINERS, "centre")),
        "near_affinity": Figure(of.NearAffinity(), 6, "near_affinity"),
        "aopc": Figure(of.AOPC(), 30, "perturbation_curve"),
        "log_odds": Figure(of.LogOdds(), 60),
        "corruption_curve": Figure(of.CorruptionCurve(mean=0.13, sd=0.31), 60, "drop_top"),
        "relevance_localisation": Figure(
            inside, 60, explainers=of_series, model="cnn-waves", data=waves
        ),
    }


def _roomy(found: re.Match[str]) -> str:
    """White, and with a margin on the left: names are wider where the browser's font is."""
    width, height = int(found[1]) + MARGIN, int(found[2])
    box = f'width="{width}" height="{height}" viewBox="{-MARGIN} 0 {width} {height}"'
    return f'{box}><rect x="{-MARGIN}" width="100%" height="100%" fill="white"/>'


def draw(name: str, figure: Figure) -> Path:
    """Evaluate, build the report's charts, and keep the one that was asked for, on white."""
    data = (figure.data or standfast.data.bundled("digits"))[: figure.samples]
    model = standfast.Model(standfast.zoo.load(figure.model), bounds=data.bounds, device="cpu")
    with tempfile.TemporaryDirectory() as folder:
        found = standfast.evaluate(
            model,
            figure.explainers,
            data.inputs,
            {name: figure.metric},
            out=f"{folder}/results",
            samples_per_job=figure.samples,
            progress=False,
        )
        assert not found.failures, found.failures[0]
        drawn = write_figures(found, f"{folder}/figures")
        where = f"-inputs-{type(model.module).__name__}-"  # the names of the data and of the model
        names = {
            path.stem.rpartition(where)[2]: path
            for path in drawn
            if path.stem.startswith("metric-")
        }
        if figure.chart not in names:
            raise SystemExit(
                f"{name}: the report has no chart {figure.chart!r}, only {', '.join(sorted(names))}"
            )
        svg = names[figure.chart].with_suffix(".svg").read_text(encoding="utf-8")
    svg = re.sub(r'width="(\d+)" height="(\d+)" viewBox="0 0 [^"]*">', _roomy, svg, count=1)
    assert len(svg) <= LARGEST, f"{name}: {len(svg)} bytes"
    path = FOLDER / f"{name}.svg"
    path.write_text(svg.rstrip("\n") + "\n", encoding="utf-8")
    return path


def bend_explanation(
    budget: int = 5000, around: range = BENT_AMONG
) -> tuple[dict[str, float], list[torch.Tensor]]:
    """Search for the inputs near digits whose saliency maps differ the most, while the class stays.

    Returns:
        The numbers of the caption, and four pictures `(28, 28)`: the digit, its map, the perturbed digit, its map.
    """
    digits = standfast.data.bundled("digits")[around.start : around.stop]
    row = around.index(BENT_DIGIT)
    model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=digits.bounds, device="cpu")
    saliency = standfast.explainers.get("saliency")
    ball = standfast.LinfBall(BENT_LEVELS / 255)
    found = standfast.metrics.WorstCase(ball, budget=budget)(model, saliency, digits.inputs)
    assert found.inputs is not None
    assert found.maps is not None
    before, after = (model.logits(x).softmax(1) for x in (digits.inputs, found.inputs))
    label = int(digits.labels[row])
    numbers = {
        "label": label,
        "probability": before[row, label].item(),
        "probability of the perturbed digit": after[row, label].item(),
        "correlation of the maps": found.similarity[row].item(),
        "largest change in grey levels": 255 * (found.inputs - digits.inputs).abs().max().item(),
        "digits": len(digits),
        "digits classified correctly": int((before.argmax(1) == digits.labels).sum()),
        "median correlation": float(found.similarity.quantile(0.5)),
        "correlations below 0.4": int((found.similarity < 0.4).sum()),
    }
    original = saliency(model, digits.inputs, digits.labels)
    return numbers, [x[row, 0] for x in (digits.inputs, original, found.inputs, found.maps)]


def draw_bent() -> Path:
    """Draw the README's picture; print the numbers of its caption."""
    from matplotlib import pyplot

    numbers, (digit, original, perturbed, bent) = bend_explanation()
    print(json.dumps(numbers, indent=1))
    sure, still = (
        f"{numbers['probability']:.1%}",
        f"{numbers['probability of the perturbed digit']:.1%}",
    )
    panels = (
        ("the input", f"“{numbers['label']}”, probability {sure}", digit, "gray", 1.0),
        ("its explanation", "saliency map", original, "inferno", original.abs().max()),
        (
            "the perturbed input",
            f"“{numbers['label']}”, probability {still}",
            perturbed,
            "gray",
            1.0,
        ),
        ("its explanation", "saliency map", bent, "inferno", bent.abs().max()),
    )
    figure, axes = pyplot.subplots(1, 4, figsize=(10, 3.1), layout="constrained")
    for axis, (title, below, picture, colours, top) in zip(axes, panels, strict=True):
        axis.imshow(picture.abs(), cmap=colours, vmin=0.0, vmax=float(top), interpolation="nearest")
        axis.set_title(title, fontsize=13)
        axis.set_xlabel(below, fontsize=11)
        axis.set_xticks([])
        axis.set_yticks([])
    path = FOLDER / f"{BENT}.png"
    figure.savefig(path, dpi=110, metadata={"Software": None})
    pyplot.close(figure)
    return path


def draw_paired() -> Path:
    """Draw medians with intervals for few and for more samples, and the pairs behind a comparison."""
    from matplotlib import pyplot

    from standfast.statistics.comparison import compare
    from standfast.statistics.paired import bootstrap_interval

    digits = standfast.data.bundled("digits")[10:34]
    model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=digits.bounds, device="cpu")
    names = ("saliency", "input_x_gradient", "gradcam")
    aopc = standfast.metrics.AOPC()
    values = torch.stack(
        [aopc(model, standfast.explainers.get(n), digits.inputs).value for n in names], 1
    ).numpy()
    figure, axes = pyplot.subplots(1, 3, figsize=(10, 3.2), layout="constrained")
    for axis, count in zip(axes, (6, len(digits)), strict=False):
        intervals = [bootstrap_interval(values[:count, column]) for column in range(len(names))]
        for place, interval in enumerate(intervals):
            assert interval is not None
            axis.plot([interval.low, interval.high], [place, place], color="C0", linewidth=2)
            axis.plot(interval.value, place, "o", color="C0", markersize=8)
        axis.set_yticks(range(len(names)), names if count == 6 else [""] * len(names))
        axis.set_ylim(len(names) - 0.5, -0.5)
        axis.set_xlim(0, 1.1)
        axis.set_title(f"{count} digits", fontsize=12)
        axis.set_xlabel("AOPC: median and 95% interval")
        print(count, compare(values[:count], names, "higher").sentence())
    ahead = int((values[:, 0] > values[:, 1]).sum())
    axes[2].plot([0, 1], values[:, :2].T, "o-", color="C0", alpha=0.5)
    axes[2].set_xticks([0, 1], names[:2])
    axes[2].set_xlim(-0.3, 1.3)
    axes[2].set_title(f"digit by digit: {ahead} of {len(digits)} fall", fontsize=12)
    axes[2].set_ylabel("AOPC")
    path = FOLDER / f"{PAIRED}.png"
    figure.savefig(path, dpi=110, metadata={"Software": None})
    pyplot.close(figure)
    return path


def draw_task(name: str) -> Path:
    """The pictures of a report of `examples/tasks.py`, as a browser shows them; needs playwright and chromium."""
    from playwright.sync_api import sync_playwright

    sys.path.insert(0, str(FOLDER.parents[1] / "examples"))
    import tasks

    path = FOLDER / f"{TASK}{name}.png"
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as browsers:
        metrics = {"worst case": "worst_case:budget=300"}
        tasks.run(name, Path(folder), metrics=metrics, sanity=False, controls=False, progress=False)
        browser = browsers.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": 900, "height": 1200})
        page.goto((Path(folder) / f"{name}.html").as_uri())
        page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
        box = page.locator(".gallery").first.bounding_box()
        assert box is not None
        clip = {**box, "height": min(box["height"], TALLEST)}
        page.screenshot(path=path, clip=clip, full_page=True)
        browser.close()
    return path


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "names", nargs="*", help=f"names of metrics, {BENT}, {PAIRED}; all by default"
    )
    torch.set_num_threads(1)
    known, others = figures(), {BENT: draw_bent, PAIRED: draw_paired}
    others |= {f"{TASK}{name}": partial(draw_task, name) for name in TASKS}
    for name in parser.parse_args().names or [*known, *others]:
        print((others[name]() if name in others else draw(name, known[name])).name, flush=True)
