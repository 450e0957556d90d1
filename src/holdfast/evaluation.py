"""`hf.evaluate`: explainers and metrics on inputs, in one call."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
from torch import Tensor

from holdfast.errors import check
from holdfast.explainers import Explainer
from holdfast.explainers import get as get_explainer
from holdfast.metrics import Metric
from holdfast.model import Classifier
from holdfast.progress import watch
from holdfast.report import Report
from holdfast.study.run import named_metrics, run_grid
from holdfast.study.store import Store


class Evaluation:
    """What `evaluate` found: a frame, and the report of it.

    Attributes:
        folder: where the results are stored.
        failures: records of the units that failed; their tracebacks are in the report.
    """

    def __init__(self, folder: Path, failures: list[dict[str, Any]], temporary: bool = False) -> None:
        self.folder, self.failures = folder, failures
        if temporary:  # the folder lives as long as this object
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)

    def frame(self) -> pl.DataFrame:
        """One row per explainer, metric and sample; columns that a metric does not have are null."""
        return Store(self.folder).frame()

    def to_html(self, path: str | Path = "report.html") -> Path:
        """Write the report, one self-contained file, and return where."""
        return Report(self.folder).to_html(path)


def evaluate(
    classifier: Classifier,
    explainers: Mapping[str, Explainer | str] | Sequence[Explainer | str],
    inputs: Tensor,
    metrics: Mapping[str, Metric] | Sequence[Metric],
    *,
    targets: Tensor | int | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    samples_per_unit: int = 4,
    about: Mapping[str, Any] | None = None,
    progress: bool = True,
) -> Evaluation:
    """Evaluate every metric for every explainer on `inputs`.

    Args:
        classifier: the model.
        explainers: by the names that the report shall use; or a list of registered names.
        inputs: seeds `(N, ...)` within the classifier's bounds.
        metrics: configured metrics, or a mapping from labels to them.
        targets: classes `(N,)`, or None for the model's own predictions.
        seed: of every random stream.
        out: a folder for the results. What it holds already is not computed again: an interrupted evaluation goes
            on where it was. Without it results live as long as the returned object.
        samples_per_unit: samples between two writes; results do not depend on it.
        about: title, model, data and the like, for the report.
        progress: show a progress bar.

    A unit that fails is recorded with its traceback, and the rest goes on.

    >>> import holdfast as hf
    >>> digits = hf.data.bundled("digits")[:2]
    >>> classifier = hf.Classifier(hf.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    >>> metric = hf.metrics.MaxSensitivity(hf.LinfBall(0.1), samples=5)
    >>> report = hf.evaluate(classifier, ["saliency", "gradcam"], digits.inputs, [metric], progress=False)
    >>> report.frame().shape[0], report.failures
    (4, [])
    """
    check(not isinstance(explainers, str | Explainer), "explainers", "a mapping or a list", repr(explainers))
    check(not isinstance(metrics, Metric), "metrics", "a mapping or a list", repr(metrics))
    if isinstance(explainers, Mapping):
        given = dict(explainers)
    else:
        given = {e.label if isinstance(e, Explainer) else e: e for e in explainers}
    ready = {name: get_explainer(explainer) for name, explainer in given.items()}
    folder = Path(tempfile.mkdtemp(prefix="holdfast-") if out is None else out)
    with watch(progress) as report_progress:
        failures = run_grid(
            classifier,
            ready,
            inputs,
            named_metrics(metrics),
            Store(folder),
            targets=targets,
            seed=seed,
            samples_per_unit=samples_per_unit,
            about=about,
            progress=report_progress,
        )
    return Evaluation(folder, failures, temporary=out is None)
