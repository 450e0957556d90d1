"""The demonstration: how stable and how faithful six explainers of the bundled digit classifier are."""

from __future__ import annotations

from pathlib import Path

from standfast import data, zoo
from standfast.evaluation import evaluate
from standfast.metrics import AOPC, MaxSensitivity, Metric, MisinterpretationProbability, WorstCase
from standfast.model import Model
from standfast.neighbourhoods import LinfBall
from standfast.report import Results

RADIUS = 0.1  # of pixel values between 0 and 1: noise that can be seen, and that leaves every digit readable
UNRECOGNISABLE = 0.4  # maps with a smaller correlation show something else (SAFARI, Sec. 3)
DRAWS = 500  # of noise for each digit: without a changed map among them, at most 1 in 167 changes, which is good
EXPLAINERS = {
    "saliency": "saliency",
    "input x gradient": "input_x_gradient",
    "integrated gradients": "integrated_gradients:steps=4",
    "guided backprop": "guided_backprop",
    "DeepLift": "deeplift",
    "Grad-CAM": "gradcam",
}
WORST = "worst case: changed explanation"
FAITHFUL = "faithfulness (AOPC)"


def demo_metrics() -> dict[str, Metric]:
    """The metrics, with budgets for one to two minutes on two cores.

    The search is the same for all explainers: `auto` would follow gradients of five of them, and not those of guided
    backprop. Both metrics of changed maps have the same threshold. Most draws of noise change
    no map so much, so most probabilities are only bounds, which suffice to call them good.
    """
    ball = LinfBall(RADIUS)
    return {
        WORST: WorstCase(
            ball, "changed_explanation", search="block", threshold=UNRECOGNISABLE, budget=1000
        ),
        f"probability: correlation below {UNRECOGNISABLE:g}": MisinterpretationProbability(
            ball,
            "changed_explanation",
            threshold=UNRECOGNISABLE,
            method="monte_carlo",
            samples=DRAWS,
        ),
        "max sensitivity": MaxSensitivity(ball, samples=50, normalise=True),
        FAITHFUL: AOPC(),
    }


def run_demo(
    out: Path, seed: int, samples: int, minutes: float | None = None
) -> tuple[Path, Results]:
    """Evaluate the first `samples` bundled digits; return the path of the report and the results.

    Args:
        out: a folder for results and report.
        seed: of all random numbers.
        samples: the number of digits.
        minutes: how long it may take (`evaluate`).
    """
    command = f"standfast demo --seed {seed} --samples {samples}"
    if minutes is not None:
        command += f" --minutes {minutes:g}"
    digits = data.bundled("digits")[:samples]
    card = zoo.card("lenet5-mnist")
    model = Model(zoo.load("lenet5-mnist"), bounds=digits.bounds)
    results = evaluate(
        model,
        EXPLAINERS,
        digits,
        demo_metrics(),
        seed=seed,
        out=out / "results",
        samples_per_job=12,
        workers="auto",
        about={
            "title": "How far can these explanations of a digit classifier be trusted?",
            "model": f"lenet5-mnist, {card['test_accuracy']:.2%} test accuracy",
            "data": f"handwritten digits, {len(digits)} of the MNIST test set",
            "command": command,
        },
        minutes=minutes,
    )
    return results.to_html(out / "report" / "index.html"), results


def write_session() -> str:
    """The lines of Python that make what the next steps of the demonstration take from a session."""
    return (
        "import standfast\n"
        "inputs = standfast.data.bundled('digits')\n"
        "model = standfast.Model(standfast.zoo.load('lenet5-mnist'), bounds=inputs.bounds)"
    )
