"""The looks at the results of a study, as `looks.json` beside them has them.

A look is what was decided at one time: for each data set and model its state, which stands for the results that were
looked at; the jobs and the numbers of samples; and the decisions.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from standfast.checks.baseline import restore_sanity
from standfast.checks.decision import RequirementDecision
from standfast.errors import StandfastError
from standfast.metrics.sanity import SanityChecks
from standfast.results import StoredResults
from standfast.statistics.decisions import IntervalEstimate
from standfast.study.store import LOOKS, DamagedFileError, Store, digest


def read_looks(store: Store) -> list[dict[str, Any]]:
    """The looks so far.

    Raises:
        DamagedFileError: the file cannot be read, so that it is not known how often somebody looked.
    """
    advice = "Earlier looks cannot be counted without it: delete the results and start again."
    try:
        looks: list[dict[str, Any]] = store.read_json(LOOKS, advice)["looks"]
        for look in looks:
            # read only to see whether they are there: a look without them cannot be counted
            look["jobs"], look["samples"], [state["state"] for state in look["states"]]
            for entry in look["decisions"]:
                restore_decision(entry)
    except FileNotFoundError:
        return []
    except (ValueError, KeyError, TypeError) as error:
        # errors of ours have better words
        if isinstance(error, StandfastError):
            raise
        raise DamagedFileError(
            "it has no looks", f"{store.folder.address}/{LOOKS}", advice
        ) from error
    return looks


def find_look(looks: Sequence[Mapping[str, Any]], states: list[dict[str, str]]) -> int | None:
    """The place of the look at results in these states; None if nobody looked at them."""
    for index, look in enumerate(looks):
        if look["states"] == states:
            return index
    return None


def describe_states(results: StoredResults, requirements: str) -> list[dict[str, str]]:
    """For each data set and model: its values, and a digest of all that its decisions are made on.

    Jobs are known by their content, so their identities stand for data, model, metrics, explainers and seed.
    """
    # sanity checks are no look: they say nothing of the numbers
    metric_jobs = results.jobs.filter(pl.col("label") != SanityChecks.name)
    states = []
    for data, model in results.pairs:
        is_of_pair = (pl.col("data") == data) & (pl.col("model") == model)
        jobs = metric_jobs.filter(is_of_pair)["job"].to_list()
        entry = results.manifest["models"][model] or {}
        state = {"data": data, "model": model}
        state["values"] = str(entry.get("digest"))
        # sorted, so that the order of the workers does not count
        state["state"] = digest([requirements, sorted(jobs)])
        states.append(state)
    return states


def number_states(
    looks: Sequence[Mapping[str, Any]], states: Sequence[Mapping[str, str]]
) -> dict[tuple[str, str], int]:
    """The number of the look at each state, by data and model."""
    numbers = {}
    for state in states:
        pair = (state["data"], state["model"])
        numbers[pair] = _count_look(looks, state)
    return numbers


def _count_look(looks: Sequence[Mapping[str, Any]], state: Mapping[str, str]) -> int:
    """The number of a look at the results of one model; looks at a model with other values are not counted."""
    numbers: dict[str, int] = {}
    state_now = state["state"]
    for look in looks:
        for looked_at in look["states"]:
            has_same_data = looked_at["data"] == state["data"]
            if has_same_data and looked_at["values"] == state["values"]:
                # the same results are the same look, however often somebody looks
                numbers.setdefault(looked_at["state"], len(numbers) + 1)
    return numbers.get(state_now, len(numbers) + 1)


def find_earlier(
    looks: Sequence[Mapping[str, Any]],
    results: StoredResults,
    now: RequirementDecision,
    requirements: str,
) -> RequirementDecision | None:
    """What an earlier look decided, if the jobs of its samples are those of now: the same data, model and settings."""
    for look in looks:
        if not has_jobs(look, results, now):
            continue
        for entry in look["decisions"]:
            decision = restore_decision(entry)
            same = entry["requirements"] == requirements and (decision.name, decision.metric) == (
                now.name,
                now.metric,
            )
            # an undecided one may be decided now
            if same and decision.outcome != "undecided":
                return decision
    return None


def has_jobs(
    look: Mapping[str, Any], results: StoredResults, decision: RequirementDecision
) -> bool:
    """Whether a look was at the same jobs as now, up to the number of its samples."""
    names = {
        "data": decision.data,
        "model": decision.model,
        "explainer": decision.explainer,
        "label": decision.metric,
    }
    conditions = [pl.col(column) == name for column, name in names.items()]
    jobs = results.jobs.filter(*conditions)
    size = pl.col("stop") - pl.col("start")
    full_jobs = jobs.filter(size == size.max())  # a smaller one, the last, may have grown since
    samples = look["samples"].get(decision.data, 0)
    looked_at = full_jobs.filter(pl.col("stop") <= samples)["job"].to_list()
    # without jobs nothing was looked at
    return bool(looked_at) and set(looked_at) <= set(look["jobs"])


def list_fields(decision: RequirementDecision) -> dict[str, Any]:
    """The fields of a decision as plain values."""
    return _to_json(dataclasses.asdict(decision))


def _to_json(content: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has no NaN and no infinity: null for NaN, and the text `"inf"` or `"-inf"`."""
    return {name: _to_plain(value) for name, value in content.items()}


def _to_plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return _to_json(value)
    if isinstance(value, (list, tuple)):
        return [_to_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value


def restore_decision(stored: Mapping[str, Any]) -> RequirementDecision:
    """A decision of an earlier look."""
    # a later version may have stored more
    names = {field.name for field in dataclasses.fields(RequirementDecision)}
    content = {name: value for name, value in stored.items() if name in names}
    estimate = content.get("estimate")
    if estimate is not None:
        attributes = dict(estimate)
        for name in ("value", "low", "high"):
            attributes[name] = _restore_number(estimate[name])
        content["estimate"] = IntervalEstimate(**attributes)
    sanity = content.get("baseline_sanity")
    if sanity is not None:
        content["baseline_sanity"] = restore_sanity(sanity)
    return RequirementDecision(**content)


def _restore_number(stored: float | str | None) -> float:
    if stored is None:
        return math.nan
    return float(stored)
