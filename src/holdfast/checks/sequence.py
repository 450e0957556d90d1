"""Check a study: run it, decide its requirements, and evaluate more samples until they are decided.

Looking at growing results again and again, until they please, is no test. So the looks at a study's results are
counted in `looks.json` beside them, each takes its own part of the allowed error, and a requirement that was decided at
one look stays decided. A look at the same samples as the last one is the same look.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from holdfast.checks.base import decide_requirements
from holdfast.checks.decision import Decision, Decisions
from holdfast.errors import HoldfastError, check_integer
from holdfast.errors import check as check_argument
from holdfast.evaluation import default_folder, run_study
from holdfast.findings import Findings
from holdfast.statistics.decisions import Estimate
from holdfast.study.executors import Executor
from holdfast.study.file.problems import Problem, StudyError
from holdfast.study.file.spec import Study, load_study, study_from
from holdfast.study.folders import Folder, open_folder

_LOOKS = "looks.json"


def check(
    study: Study | Mapping[str, Any] | str | Path,
    out: str | Path | None = None,
    *,
    until_decided: bool = False,
    most_samples: int | None = None,
    executor: Executor | None = None,
    progress: bool = True,
    tell: Callable[[Decisions], None] = lambda found: None,
) -> Decisions:
    """Run a study and decide its requirements.

    Args:
        study: a study file with `requirements`, its content as a mapping, or the result of `load_study`.
        out: a folder or an fsspec address for the results; by default `results/<name of the file>`.
        until_decided: evaluate twice as many samples, again and again, until all requirements are decided or there are
            no more samples.
        most_samples: of each data set at most; None for all.
        executor: does the jobs; None for the study's.
        progress: show a progress bar.
        tell: is called with the decisions of each look.

    Returns:
        The decisions of the last look, with those that were made at earlier ones.

    Raises:
        StudyError: something in the file does not fit, or it has no requirements.
        ArgumentError: an option out of range.

    >>> import holdfast
    >>> study = {
    ...     "data": {"digits": "digits"},
    ...     "samples": 10,
    ...     "models": {"lenet": "lenet5-mnist"},
    ...     "explainers": ["saliency"],
    ...     "metrics": [{"max_sensitivity": {"neighbourhood": {"linf": 0.01}, "samples": 5}}],
    ...     "requirements": [{"metric": "max_sensitivity", "at_most": 100}],
    ... }
    >>> found = check(study, out="memory://checked", progress=False)
    >>> found.outcome, found.decisions[0].estimate.count
    ('pass', 10)
    """
    check_argument(isinstance(until_decided, bool), "until_decided", "True or False", repr(until_decided))
    check_integer(most_samples, "most_samples", also=(None,))
    if isinstance(study, Mapping):
        study = study_from(study)
    elif not isinstance(study, Study):
        study = load_study(study)
    if not study.requirements:
        raise StudyError(study.name, [Problem(("requirements",), "at least one requirement", "none")])
    target = str(out or default_folder(study))
    most = _count_samples(study, most_samples) if until_decided else None
    while True:
        found = run_study(study, target, executor=executor, progress=progress, command=f"holdfast check {study.name}")
        decisions = _look(found.results, target, study)
        tell(decisions)
        undecided = any(decision.outcome == "undecided" for decision in decisions.decisions)
        if most is None or study.samples is None or not undecided or study.samples >= most:
            return decisions
        study = _with_samples(study, min(2 * study.samples, most))


def _count_samples(study: Study, most: int | None) -> int | None:
    """How many samples of each data set the study can have; None where it has all of them already."""
    if study.samples is None:
        return None
    counts = [len(entry.value.load(study.base, None)) for entry in study.data.values() if entry.value.samples is None]
    return min([*counts, *([most] if most else [])]) if counts else None


def _with_samples(study: Study, samples: int) -> Study:
    """The same study with another number of samples."""
    changed = study.model_copy(update={"samples": samples})
    changed._document = study._document
    return changed


def read_decisions(folder: Folder) -> Decisions | None:
    """The decisions of the last look at the results in a folder; None if nobody looked.

    Raises:
        HoldfastError: the file of the looks is damaged.
    """
    looks = _read_looks(folder)
    if not looks:
        return None
    decisions = tuple(map(_restore, looks[-1]["decisions"]))
    return Decisions(decisions, len(looks), max(looks[-1]["samples"].values(), default=0))


def _look(found: Findings, target: str, study: Study) -> Decisions:
    """Decide the requirements, count the look, and keep what was decided at an earlier one."""
    folder = open_folder(target)
    looks = _read_looks(folder)
    asked = [entry.model_dump(mode="json", exclude_none=True) for entry in study.requirements]
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:16]
    state = {
        "samples": {name: int(about["samples"]) for name, about in found.manifest["data"].items()},
        "requirements": digest,
    }
    again = bool(looks) and all(looks[-1].get(key) == value for key, value in state.items())
    earlier = looks[:-1] if again else looks
    now = decide_requirements(found, study.requirements, len(earlier) + 1, study.base)
    known = {entry["key"]: entry for look in earlier for entry in look["decisions"] if entry["outcome"] != "undecided"}
    keys = [_identify(decision, digest) for decision in now.decisions]
    made = [
        _restore(known[key]) if key in known else decision for key, decision in zip(keys, now.decisions, strict=True)
    ]
    entries = [{"key": key, **dataclasses.asdict(each)} for key, each in zip(keys, made, strict=True)]
    looks = [*earlier, {**state, "decisions": entries}]
    folder.write(_LOOKS, json.dumps({"looks": looks}, indent=1).encode())
    return dataclasses.replace(now, decisions=tuple(made))


def _identify(decision: Decision, requirements: str) -> str:
    """What a decision was made on; with other requirements it is another one."""
    return f"{requirements} / {decision.name} / {decision.metric}"


def _restore(stored: Mapping[str, Any]) -> Decision:
    """A decision of an earlier look."""
    names = {field.name for field in dataclasses.fields(Decision)}
    content = {name: value for name, value in stored.items() if name in names}
    estimate = content.get("estimate")
    return Decision(**{**content, "estimate": None if estimate is None else Estimate(**estimate)})


def _read_looks(folder: Folder) -> list[dict[str, Any]]:
    """The looks so far.

    Raises:
        HoldfastError: the file cannot be read, so that it is not known how often somebody looked.
    """
    if not folder.exists(_LOOKS):
        return []
    try:
        looks = json.loads(folder.read(_LOOKS))["looks"]
        for look in looks:
            for entry in look["decisions"]:
                _restore(entry)
    except (ValueError, KeyError, TypeError) as error:
        words = (
            f"{folder.address}/{_LOOKS}: damaged, so earlier looks cannot be counted; delete the results and start anew"
        )
        raise HoldfastError(words) from error
    return list(looks)
