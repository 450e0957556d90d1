"""The demonstration: six explainers of the bundled digit classifier, worst cases and probabilities of both events."""

from __future__ import annotations

from pathlib import Path

from holdfast import data, zoo
from holdfast.evaluation import evaluate
from holdfast.explainers import get
from holdfast.metrics import LocalLipschitz, MaxSensitivity, Metric, MisinterpretationProbability, WorstCase
from holdfast.model import Classifier
from holdfast.neighbourhood import LinfBall

RADIUS = 0.3  # the radius for MNIST in the SAFARI paper (Sec. 6.1)
EXPLAINERS = {
    "saliency": "saliency",
    "input x gradient": "input_x_gradient",
    "integrated gradients": "integrated_gradients:steps=4",
    "guided backprop": "guided_backprop",
    "DeepLift": "deeplift",
    "Grad-CAM": "gradcam",
}


def demo_metrics() -> dict[str, Metric]:
    """The metrics, with budgets for a few minutes."""
    ball = LinfBall(RADIUS)
    probability = {"particles": 60, "first": 8.0, "moves": 4, "floor": -30.0}
    return {
        "worst case: changed explanation": WorstCase(ball, "changed_explanation", budget=600),
        "worst case: changed class": WorstCase(ball, "changed_class", budget=600),
        "probability: changed explanation": MisinterpretationProbability(
            ball,
            "changed_explanation",
            **probability,  # type: ignore[arg-type]
        ),
        "probability: changed class": MisinterpretationProbability(
            ball,
            "changed_class",
            **probability,  # type: ignore[arg-type]
        ),
        "max sensitivity": MaxSensitivity(ball, samples=100, normalise=True),
        "local Lipschitz": LocalLipschitz(ball, samples=100),
    }


def run_demo(out: Path, seed: int, samples: int) -> tuple[Path, int]:
    """Evaluate the first `samples` bundled digits; return the path of the report and the number of failed jobs."""
    digits = data.bundled("digits")[:samples]
    card = zoo.card("lenet5-mnist")
    classifier = Classifier(zoo.load("lenet5-mnist"), bounds=digits.bounds)
    found = evaluate(
        classifier,
        {name: get(text) for name, text in EXPLAINERS.items()},
        digits.inputs,
        demo_metrics(),
        seed=seed,
        out=out / "results",
        samples_per_job=6,
        about={
            "title": "How far can these explanations of a digit classifier be trusted?",
            "model": f"lenet5-mnist, {card['test_accuracy']:.2%} test accuracy"
            if "test_accuracy" in card
            else "lenet5-mnist",
            "data": f"{len(digits)} handwritten digits of the MNIST test set",
            "command": f"holdfast demo --seed {seed} --samples {samples}",
        },
    )
    return found.to_html(out / "report" / "index.html"), len(found.failures)
