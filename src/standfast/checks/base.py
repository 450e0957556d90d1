"""Decide requirements on stored results.

A requirement is checked for every data set, model, metric and explainer that it names: each of these is one decision.
All decisions of one check hold together with the level that is asked for (`spend_level`).

- A limit on values is a statement about the share of all samples that meet it (by default half of them: the median).
  The share has an exact interval. The requirement passes if the whole interval is at or above the wanted share, and
  fails if it is below it. A value that is only a bound counts as unknown where the bound does not decide. Of a
  probability the interval of each sample counts instead of its estimate.
- A limit on the mean uses the wider of Student's interval and Hall's; see `estimate_mean`.
- `better_than` is Wilcoxon's signed-rank test of differences on the same samples, in both directions.
- `no_worse_than` is a limit on differences from a stored baseline, on the same samples. A sample that has a value in
  the baseline and cannot be evaluated any more is worse by any amount.
- An explainer that fails the sanity checks passes no requirement, and one on which they are undecided not yet, whatever
  its numbers are. Against a baseline they are compared with those of the baseline instead (`checks.sanity`).

Other samples that were skipped (misclassified, constant maps) do not count; a decision says how many there are. The
intervals treat the samples as drawn at random from those on which the model will be used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path

from standfast.checks.baseline import Baseline, read_baseline
from standfast.checks.case import Case, find_direction, find_misfit
from standfast.checks.decision import Decisions
from standfast.checks.sanity import hold_to_sanity
from standfast.errors import UnknownNameError
from standfast.report.sentences import describe_failures
from standfast.results import StoredResults
from standfast.statistics.decisions import spend_level
from standfast.study.file.entries import RequirementEntry


def decide_requirements(
    results: StoredResults,
    requirements: Sequence[RequirementEntry],
    look: int | Mapping[tuple[str, str], int] = 1,
    folder: str | Path = ".",
) -> Decisions:
    """Decide requirements on stored results.

    Args:
        results: the results.
        requirements: as in a study file.
        look: the number of this look at growing results, from 1; or one for each pair of data and model.
        folder: that baselines are relative to.

    Raises:
        UnknownNameError, ArgumentError: a requirement names what the results do not have.
    """
    decisions = decide_with_baselines(
        results, requirements, look, read_baselines(requirements, folder)
    )
    return hold_to_sanity(decisions, results)


def read_baselines(
    requirements: Sequence[RequirementEntry], folder: str | Path
) -> dict[str, Baseline]:
    """The baselines that requirements name.

    Raises:
        ArgumentError: there is no such baseline.
    """
    names = [entry.no_worse_than for entry in requirements if entry.no_worse_than]
    return {name: read_baseline(name, folder) for name in names}


def decide_with_baselines(
    results: StoredResults,
    requirements: Sequence[RequirementEntry],
    look: int | Mapping[tuple[str, str], int],
    baselines: Mapping[str, Baseline],
) -> Decisions:
    """As `decide_requirements` by the numbers alone, with baselines that were read before.

    Requirements whose baseline is not among them stay undecided.
    """
    combinations = []
    for entry in requirements:
        # a requirement without a baseline has none by this name
        baseline = baselines.get(entry.no_worse_than or "")
        for names in _list_combinations(results, entry, results.pairs):
            # what cannot be evaluated, now or then, is none of "all explainers"
            if not _is_out_of_reach(results, entry, names, baseline):
                combinations.append((entry, *names))
    decisions = []
    for entry, data, model, label, explainer in combinations:
        number = look[data, model] if isinstance(look, Mapping) else look
        # all decisions share the error, so their number has to be known first
        level = spend_level(entry.level, number, len(combinations))
        # what more samples would decide is decided at the next look, which has a smaller part of the error
        next_level = spend_level(entry.level, number + 1, len(combinations))
        case = Case(results, entry, data, model, label, explainer, level, next_level)
        if entry.no_worse_than is not None and entry.no_worse_than not in baselines:
            decisions.append(case.leave_open())
        else:
            decisions.append(case.decide(baselines.get(entry.no_worse_than or "")))
    samples = [
        int(about.get("samples") or 0) for about in (results.manifest.get("data") or {}).values()
    ]
    return Decisions(
        tuple(decisions),
        look=max(look.values(), default=1) if isinstance(look, Mapping) else look,
        samples=max(samples, default=0),
        failed=len(results.failures),
        errors=tuple(describe_failures(results.summary)),
    )


def check_requirement(
    results: StoredResults, entry: RequirementEntry, baseline: Baseline | None
) -> None:
    """Check a requirement before anything is evaluated.

    Args:
        results: with the manifest of the study and without numbers.
        entry: the requirement.
        baseline: the one that it names.

    Raises:
        ArgumentError: no results of this study could decide it.
    """
    manifest = results.manifest
    for data, model, label, explainer in _list_combinations(results, entry, manifest["pairs"]):
        case = Case(results, entry, data, model, label, explainer, entry.level, entry.level)
        case.check_metric()
        # a misfit has no rows, and is no mistake of the requirement
        if baseline is not None and not find_misfit(manifest, label, explainer):
            baseline.find_rows(data, model, label, explainer, manifest)


def _is_out_of_reach(
    results: StoredResults,
    entry: RequirementEntry,
    names: tuple[str, str, str, str],
    baseline: Baseline | None,
) -> bool:
    """Whether the metric cannot evaluate an explainer, and could not before, so that it is none of "all explainers"."""
    _, _, label, explainer = names
    # one that is named is meant, also if it cannot be evaluated
    if (
        baseline is None
        or entry.explainer is not None
        or not find_misfit(results.manifest, label, explainer)
    ):
        return False
    # what could be evaluated before, and cannot now, is worse
    return not baseline.has_rows(*names)


def _list_combinations(
    results: StoredResults, entry: RequirementEntry, pairs: Sequence[Sequence[str]]
) -> Iterator[tuple[str, str, str, str]]:
    """The data, models, labels and explainers that a requirement names, of the pairs of data and model."""
    labels = _choose_labels(results, entry)
    explainers = _choose_explainers(results, entry)
    chosen_data = _choose("data", entry.data, results.data)
    chosen_models = _choose("model", entry.model, results.models)
    for data, model in pairs:
        if data in chosen_data and model in chosen_models:
            for label, explainer in product(labels, explainers):
                yield data, model, label, explainer


def _choose_labels(results: StoredResults, entry: RequirementEntry) -> list[str]:
    """The labels of the metric that a requirement names; without one, of all metrics with a better direction."""
    metrics = results.metrics
    if entry.metric is None:
        # of others nobody can say what worse is
        return [label for label, metric in metrics.items() if find_direction(metric)]
    labels = []
    for label, metric in metrics.items():
        # of texts a label has the way of removing words behind it
        plain_label = label.removesuffix(f" ({metric.removal})")
        if entry.metric in (label, metric.metric, plain_label):
            labels.append(label)
    if not labels:
        raise UnknownNameError("metric", entry.metric, list(metrics))
    return labels


def _choose_explainers(results: StoredResults, entry: RequirementEntry) -> list[str]:
    """The explainers that a requirement names; without one, all but controls and the one that it compares with."""
    names = list(results.explainers)
    if entry.better_than is not None and entry.better_than not in names:
        raise UnknownNameError("explainer", entry.better_than, names)
    if entry.explainer:
        return _choose("explainer", entry.explainer, names)
    return [
        name
        for name in names
        # a control is no explanation that could be required of anybody
        if name not in results.explainers.controls and name != entry.better_than
    ]


def _choose(kind: str, requested: Sequence[str] | None, names: Sequence[str]) -> list[str]:
    """The requested names, or else all; those that do not exist are an error."""
    for name in requested or ():
        if name not in names:
            raise UnknownNameError(kind, name, list(names))
    return list(requested or names)
