"""Uses most of the public names, as a script of a user would; mypy --strict checks it, test_packaging.py runs it."""

import sys
from pathlib import Path

import polars as pl
import torch
from torch import Tensor, nn

import standfast
from standfast.report import exports


def contrast(module: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    return inputs - inputs.mean()


def page(found: standfast.Results, out: Path) -> Path:
    return found.to_html(out / "report.html")


def main(out: Path) -> None:
    digits: standfast.data.Dataset = standfast.data.bundled("digits")[:2]
    model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    ball: standfast.Neighbourhood = standfast.LinfBall(radius=0.1)
    metric = standfast.metrics.MaxSensitivity(ball, samples=3)
    explainer: standfast.explainers.Explainer = standfast.explainers.from_callable(contrast)
    result: standfast.metrics.Result = metric(model, explainer, digits.inputs)
    frame: pl.DataFrame = result.frame()
    similarity: Tensor = standfast.similarity.get("pearson")(digits.inputs[:1], digits.inputs[1:])
    explainers = {"own": explainer, "saliency": standfast.explainers.get("saliency")}
    found: standfast.Results = standfast.evaluate(
        model, explainers, digits.inputs, [metric], out=out, progress=False
    )
    stored: standfast.Results = standfast.load_results(out)
    latex: str = exports.to_latex(found)
    generator = torch.Generator().manual_seed(0)
    box = standfast.algorithms.UnitBox(3)
    estimate = standfast.algorithms.monte_carlo(
        lambda x: x.sum(1) - 2.9, box, samples=100, generator=generator
    )
    print(frame, similarity, stored.samples, latex, estimate.log_probability, standfast.__version__)
    try:
        standfast.LinfBall(radius=-1.0)
    except standfast.ArgumentError as error:
        print(error.argument)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
