"""Uses most of the public names, as a script of a user would; mypy --strict checks it, test_packaging.py runs it."""

import sys
from pathlib import Path

import polars as pl
import torch
from torch import Tensor, nn

import holdfast as hf


def contrast(module: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    return inputs - inputs.mean()


def page(found: hf.Evaluation, out: Path) -> Path:
    return found.to_html(out / "report.html")


def main(out: Path) -> None:
    digits: hf.data.Dataset = hf.data.bundled("digits")[:2]
    classifier = hf.Classifier(hf.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    ball: hf.Neighbourhood = hf.LinfBall(radius=0.1)
    metric = hf.metrics.MaxSensitivity(ball, samples=3)
    explainer: hf.explainers.Explainer = hf.explainers.from_callable(contrast)
    result: hf.metrics.Result = metric(classifier, explainer, digits.inputs)
    frame: pl.DataFrame = result.frame()
    similarity: Tensor = hf.similarity.get("pearson")(digits.inputs[:1], digits.inputs[1:])
    explainers = {"own": explainer, "saliency": hf.explainers.get("saliency")}
    found: hf.Evaluation = hf.evaluate(classifier, explainers, digits.inputs, [metric], out=out, progress=False)
    stored: hf.Results = hf.load_results(out)
    latex: str = hf.export.to_latex(found)
    generator = torch.Generator().manual_seed(0)
    box = hf.algorithms.UnitBox(3)
    estimate = hf.algorithms.monte_carlo(lambda x: x.sum(1) - 2.9, box, samples=100, generator=generator)
    print(frame, similarity, stored.samples, latex, estimate.log_probability, hf.__version__)
    try:
        hf.LinfBall(radius=-1.0)
    except hf.ArgumentError as error:
        print(error.argument)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
