"""Uses most of the public names, as a script of a user would; mypy --strict checks it, test_packaging.py runs it."""

import sys
from pathlib import Path

import polars as pl
import torch
from torch import Tensor, nn

import holdfast


def contrast(module: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    return inputs - inputs.mean()


def page(found: holdfast.Evaluation, out: Path) -> Path:
    return found.to_html(out / "report.html")


def main(out: Path) -> None:
    digits: holdfast.data.Dataset = holdfast.data.bundled("digits")[:2]
    classifier = holdfast.Classifier(holdfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    ball: holdfast.Neighbourhood = holdfast.LinfBall(radius=0.1)
    metric = holdfast.metrics.MaxSensitivity(ball, samples=3)
    explainer: holdfast.explainers.Explainer = holdfast.explainers.from_callable(contrast)
    result: holdfast.metrics.Result = metric(classifier, explainer, digits.inputs)
    frame: pl.DataFrame = result.frame()
    similarity: Tensor = holdfast.similarity.get("pearson")(digits.inputs[:1], digits.inputs[1:])
    explainers = {"own": explainer, "saliency": holdfast.explainers.get("saliency")}
    found: holdfast.Evaluation = holdfast.evaluate(
        classifier, explainers, digits.inputs, [metric], out=out, progress=False
    )
    stored: holdfast.Results = holdfast.load_results(out)
    latex: str = holdfast.export.to_latex(found)
    generator = torch.Generator().manual_seed(0)
    box = holdfast.algorithms.UnitBox(3)
    estimate = holdfast.algorithms.monte_carlo(lambda x: x.sum(1) - 2.9, box, samples=100, generator=generator)
    print(frame, similarity, stored.samples, latex, estimate.log_probability, holdfast.__version__)
    try:
        holdfast.LinfBall(radius=-1.0)
    except holdfast.ArgumentError as error:
        print(error.argument)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
