"""`evaluate` runs metrics for explainers on inputs, `run_study` runs a study; the result gives frames and a report.

`estimate` says what `evaluate` would cost.
"""

from __future__ import annotations

import json
import logging
import math
import sys
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from standfast.data import Dataset
from standfast.errors import ArgumentError, UnknownOptionError, as_number, check, describe_foreign, warn_user
from standfast.explainers import Edges, Explainer, InputCopy, RandomExplainer, RandomisedExplainer
from standfast.explainers import get as get_explainer
from standfast.explainers.adapters.packages import ADAPTERS
from standfast.explainers.base import check_channels, check_explained
from standfast.frame_inputs import (
    fit_explainers,
    fit_metric,
    fit_neighbourhood,
    name_models,
    read_table,
    refuse_missing_reference,
)
from standfast.frames import Table, find_frame_function, is_frame
from standfast.frames.model import check_losses
from standfast.metrics import Metric
from standfast.metrics.base import Preset, check_preset, has_neighbourhood, warn_of_radius
from standfast.metrics.base import metrics as registry
from standfast.metrics.sanity import make_checks
from standfast.model import Model, describe_no_module, is_state_dict, module_name
from standfast.neighbourhoods import LinfBall, Neighbourhood, check_neighbourhood
from standfast.neighbourhoods.transformations import check_fits
from standfast.report import Results, load_results
from standfast.report.sentences import describe_failures
from standfast.study.cache import run_kept
from standfast.study.cost import Estimate, estimate_plan
from standfast.study.executors import Executor, local
from standfast.study.executors.base import UNLIMITED
from standfast.study.grid import Grid, LoadedModel, Samples
from standfast.study.plan import Plan, make_plan
from standfast.study.progress import watch
from standfast.study.run import Origin, RunSummary, named_metrics, run_grid
from standfast.study.store import Store
from standfast.tasks.base import expand_targets
from standfast.tensors import Bound, describe_bounds, describe_no_tensor, suggest_dtype
from standfast.text_inputs import ReadTexts, check_change, check_removal, default_change, find_text_model
from standfast.text_inputs import fit_explainers as fit_explainers_of_texts
from standfast.texts import TextModel, find_text_box

if TYPE_CHECKING:
    from standfast.study.file.spec import Study

logger = logging.getLogger(__name__)


#: what `evaluate` accepts as an explainer
ExplainerLike = Explainer | str | Callable[..., Tensor]
ExplainersLike = Mapping[str, ExplainerLike] | Sequence[ExplainerLike] | ExplainerLike
#: what it accepts as metrics
MetricsLike = Mapping[str, Metric | str] | Sequence[Metric | str] | Metric | str
NeighbourhoodsLike = Neighbourhood | Sequence[Neighbourhood]
ModelLike = Model | nn.Module | Any
#: the name of the data in `evaluate` where a tensor has none
DATA = "inputs"
#: the fact in the manifest and the report
_DEFAULT_NEIGHBOURHOOD = "default neighbourhood"
_SEVERAL = "one, several in a list, or a mapping from names"


def evaluate(
    model: ModelLike | Mapping[str, ModelLike],
    explainers: ExplainersLike,
    inputs: Tensor | Dataset | Any,
    metrics: MetricsLike,
    *,
    reference: Tensor | Any = None,
    neighbourhood: NeighbourhoodsLike | None = None,
    preset: Preset = "standard",
    controls: bool | ExplainersLike = True,
    sanity: bool | int = True,
    targets: Tensor | int | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    repeats: int = 1,
    samples_per_job: int | None = None,
    workers: int | str = 1,
    executor: Executor | None = None,
    about: Mapping[str, Any] | None = None,
    progress: bool = True,
) -> Results:
    """Evaluate every metric for every explainer on `inputs`.

    Args:
        model: the model; or a module alone. Its bounds are then those of the data set; for a tensor they are
            taken as [0, 1] if the inputs look like it, with a warning. For a data frame, a fitted estimator or
            pipeline. Several models, such as one that was trained again, in a mapping from names.
        explainers: one, a list, or a mapping from the names for the report. Each is a registered name, a name of
            another package (`"captum:Saliency"`), an explainer, or a function
            `fn(module, inputs, targets) -> attributions`; for a data frame `fn(estimator, frame, targets)`.
        inputs: `(N, ...)` within the model's bounds; or a data set, for metrics that use its `extras`. Its labels
            are used for the accuracy of the model alone. Or a data frame of pandas or polars, as the model takes it.
        metrics: configured metrics or their names, as `standfast.metrics.get` takes them (`"aopc"`,
            `"quantus:Sparseness"`); one, a list, or a mapping from labels to them.
        reference: training rows, for what explainers and metrics put in place of values (`Model`), and for a data frame
            also for the default neighbourhood. By default the inputs themselves, if they are at least 8 rows.
        neighbourhood: for the metrics that are given by name and have one, such as `"worst_case"`. With a list of
            several, each of these metrics is evaluated in each of them, and its label says in which. By default an
            `LinfBall` whose radius is one tenth of the range of the inputs: 0.1 for bounds (0, 1). Of a data frame,
            numbers change by a tenth of their standard deviation (`Table.default_changes`). The report says so, and a
            line before the progress.
        preset: for the metrics that are given by name: `"quick"` for an answer in seconds, `"standard"` for the
            defaults, `"paper"` for what the publications used. `"aopc:preset=quick"` is for one metric only. Configured
            metrics keep their options; there is a warning if no metric is given by name. Do not compare values of
            different presets.
        controls: control explainers: names and so on, as for `explainers`. Metrics that say something about the model
            (`Metric.controls`) evaluate them beside the others, and the report says which explainers do better than all
            of them; of measures of stability the copy of the input is a reference. True for `random`, `input_copy`,
            `edges` (but not of a table), and `randomised` of the first explainer (`docs/controls.md`); each costs as
            much as an explainer. False for none.
        sanity: check whether each explainer depends on the input and the model (`docs/sanity.md`); one that does not
            cannot be best. It costs 6 explanations and 70 predictions (of tables 425) for each of the first 100
            samples, or of as many as a number here says.
        targets: classes `(N,)`, or None for the model's own predictions.
        seed: of all random numbers.
        out: a folder or an fsspec address for the results. Results that are there already are not computed again, so an
            interrupted evaluation can be continued. By default they are in the user's cache folder, where the same call
            finds them, too: `standfast cache` says where, and deletes them. `Results.store` has the place.
        repeats: how often everything is done, each time with other random numbers.
        samples_per_job: the number of samples between two writes, on which results do not depend; None for as many as
            fit in memory and take about 20 seconds.
        workers: the number of processes on this computer; `"auto"` for one for each GPU, or else for each core. A
            script that uses several needs `if __name__ == "__main__":`, as always with processes in Python.
        executor: another place to do the jobs, or limits of time and memory for each, such as
            `Processes(2, limits=Limits(timeout=600))`; see `standfast.study.executors`.
        about: the title, the model, the data and other facts for the report. By default the model and the data have the
            names of the module's class and of the data set; what `about` says of them, up to the first comma, is used
            instead.
        progress: show a progress bar with the time left; without a terminal, a line every ten seconds.

    If a job fails, its traceback is stored, and the other jobs continue. A warning says which explainers failed by
    which metrics, and why.

    Raises:
        ArgumentError: an argument does not fit, an unknown name among them; a metric by name needs a neighbourhood, and
            the bounds of the inputs give no range for the default; a module alone, and the inputs show no bounds.
        ModelError: the module fails on the inputs, or does not return logits.

    >>> import standfast
    >>> digits = standfast.data.bundled("digits")[:2]
    >>> model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    >>> def brightness(module, inputs, targets):
    ...     return inputs
    >>> metrics = ["worst_case:budget=20", standfast.metrics.MaxSensitivity(standfast.LinfBall(0.1), 5, normalise=True)]
    >>> found = standfast.evaluate(model, ["saliency", brightness], digits, metrics, progress=False)
    >>> found.frame().shape[0], found.failures
    (12, [])
    >>> print(str(found).splitlines()[0])
    2 explainers and 1 control of LeNet5 on 2 samples of digits. Median over
    >>> found.best(), found.sanity["digits", "LeNet5", "saliency"].state  # two samples pass no check
    ({}, 'undecided')
    """
    seed, repeats = as_number(seed), as_number(repeats)
    samples_per_job = None if samples_per_job is None else as_number(samples_per_job)
    check(type(seed) is int, "seed", "a whole number", repr(seed))
    check(about is None or isinstance(about, Mapping), "about", "a mapping from names, or None", repr(about))
    facts = dict(about or {})
    for name, fact in facts.items():
        try:
            json.dumps({name: fact})
        except (TypeError, ValueError):
            expected = "a text, a number, or a list or mapping of them"
            raise ArgumentError(f"about[{name!r}]", expected, type(fact).__name__) from None
    question = _Question(
        model=model,
        explainers=explainers,
        inputs=inputs,
        metrics=metrics,
        reference=reference,
        neighbourhood=neighbourhood,
        preset=preset,
        controls=controls,
        sanity=sanity,
        targets=targets,
        seed=seed,
        repeats=repeats,
        samples_per_job=samples_per_job,
        about=facts,
    )
    grid, notes = question.make_grid()
    if progress and _DEFAULT_NEIGHBOURHOOD in notes:
        print(f"neighbourhood: {notes[_DEFAULT_NEIGHBOURHOOD]}", file=sys.stderr, flush=True)
    chosen = executor or local(workers, device=grid.device)
    earlier = None if out is None else Store(out).earlier_manifest()
    plan = make_plan(grid, {**notes, **facts}, earlier, chosen.at_once)
    with watch(progress) as report_progress:

        def run(plan: Plan, store: Store) -> RunSummary:
            return run_grid(grid, store, plan=plan, executor=chosen, progress=report_progress)

        store, summary, let_go = run_kept(plan, run) if out is None else (Store(out), run(plan, Store(out)), None)
    found = load_results(store, summary)
    if let_go is not None:
        weakref.finalize(found, let_go)
    _warn_of_failures(found)
    return found


def _warn_of_failures(found: Results) -> None:
    """Warn of the jobs that failed now: which explainers, by which metrics, and why."""
    if found.run is not None and found.run.failed:
        lines = [f"{len(found.run.failed)} of {found.run.planned} jobs failed:"]
        lines += [f"  {line}" for line in describe_failures(found.summary)]
        warn_user("\n".join([*lines, "  (.failures has the tracebacks)"]))


@dataclass(frozen=True)
class _Question:
    """The arguments of `evaluate` that decide what is computed."""

    model: ModelLike | Mapping[str, ModelLike]
    explainers: ExplainersLike
    inputs: Tensor | Dataset | Any
    metrics: MetricsLike
    neighbourhood: NeighbourhoodsLike | None = None
    reference: Tensor | Any = None
    preset: Preset = "standard"
    controls: bool | ExplainersLike = True
    sanity: bool | int = True
    targets: Tensor | int | None = None
    seed: int = 0
    repeats: int = 1
    samples_per_job: int | None = None
    about: Mapping[str, Any] = field(default_factory=dict)

    def make_grid(self) -> tuple[Grid, dict[str, Any]]:
        """The grid of jobs, and what the report says of defaults."""
        notes: dict[str, Any] = {}
        _check_places(self.model, self.explainers)
        if find_text_model(self.model) is not None:
            question, texts = self._read_texts(notes)
            return question._make_grid(notes, texts=texts)
        if is_frame(self.inputs):
            question, table = self._read_frame(notes)
            return question._make_grid(notes, table)
        return self._make_grid(notes)

    def _read_texts(self, notes: dict[str, Any]) -> tuple[_Question, ReadTexts]:
        """The same question about rows of word codes, and the texts that they are of."""
        model = find_text_model(self.model)
        assert model is not None
        check(self.reference is None, "reference", "None for texts; TextModel(removal=...) says how words go", "rows")
        texts = ReadTexts.read(self.model, self.inputs)
        removals: dict[str, str] = {}
        metrics = texts.fit_metrics(self.metrics, model, self.preset, removals)
        several = isinstance(self.neighbourhood, list | tuple)
        places: list[Any] = list(self.neighbourhood) if several else [self.neighbourhood]  # type: ignore[arg-type]
        if self.neighbourhood is None:
            named = [each for each in metrics.values() if isinstance(each, str)]
            places = [default_change()] if any(has_neighbourhood(each, required=True) for each in named) else []
            if places:
                notes[_DEFAULT_NEIGHBOURHOOD] = f"texts {places[0].describe()}, because none was given"
        for place in [*places, *(getattr(each, "neighbourhood", None) for each in metrics.values())]:
            if place is not None:
                check_change(place, texts.rows)
        explainers = fit_explainers_of_texts(self.explainers)
        check_removal(model, explainers.values())
        if removals:
            notes["removal"] = removals
        question = replace(
            self,
            model=texts.name_models(self.model),
            inputs=texts.rows,
            explainers=explainers,
            controls=self.controls if isinstance(self.controls, bool) else fit_explainers_of_texts(self.controls),
            metrics=metrics,
            neighbourhood=self.neighbourhood if several else places[0] if places else None,
        )
        return question, texts

    def _read_frame(self, notes: dict[str, Any]) -> tuple[_Question, Table]:
        """The same question about rows of numbers, and the table that they are of."""
        metrics = [self.metrics] if isinstance(self.metrics, str | Metric | type) else self.metrics
        own = list(metrics.values() if isinstance(metrics, Mapping) else metrics)
        several = isinstance(self.neighbourhood, list | tuple)
        given: list[Any] = list(self.neighbourhood) if several else [self.neighbourhood]  # type: ignore[arg-type]
        table = read_table(self.inputs, self.reference, [*given, *own])
        if self.neighbourhood is None and any(isinstance(m, str) and has_neighbourhood(m, required=True) for m in own):
            if self.reference is None:
                refuse_missing_reference()
            usual = table.default_changes()
            notes[_DEFAULT_NEIGHBOURHOOD] = f"rows {usual.describe()}, because none was given"
            given = [usual]
        places: Any = [fit_neighbourhood(each, table) for each in given if each is not None]
        fitted: Any = [fit_metric(each, table) for each in own]
        models = name_models(self.model, table, notes)
        for each in models.values() if isinstance(models, dict) else [models]:
            for place in [*places, *(getattr(metric, "neighbourhood", None) for metric in fitted)]:
                check_losses(each, place)
        question = replace(
            self,
            model=models,
            inputs=table.encode(self.inputs),
            reference=None,
            explainers=fit_explainers(self.explainers),
            metrics=dict(zip(metrics, fitted, strict=True)) if isinstance(metrics, Mapping) else fitted,
            neighbourhood=places if several else places[0] if places else None,
        )
        return question, table

    def _make_grid(
        self, notes: dict[str, Any], table: Table | None = None, texts: ReadTexts | None = None
    ) -> tuple[Grid, dict[str, Any]]:
        metrics, data = self.metrics, self.inputs if isinstance(self.inputs, Dataset) else None
        models = self._name_models(notes)
        model = next(iter(models.values()))
        if isinstance(metrics, str | Metric | type):
            metrics = [metrics]
        check(isinstance(metrics, Iterable), "metrics", _SEVERAL, describe_foreign(metrics, registry.packages))
        ready = _name_explainers(self.explainers, "explainers")
        extras = {} if data is None else data.extras
        x = model.check_inputs(self.inputs if data is None else data.inputs)  # type: ignore[arg-type]
        for each in models.values():
            with each.naming(x):  # a module that cannot predict fails here, in words, and not in every job
                each.for_sample(extras, 0).logits(each.check_inputs(x)[:1])
        if self.targets is not None and not model.extras:
            model.check_targets(self.targets, x)
        targets = None if self.targets is None else expand_targets(self.targets, len(x)).cpu()
        lower, upper = model.bounds
        neighbourhood = self._choose_neighbourhood(model, metrics, notes)
        samples = Samples(x.cpu(), targets, (lower.cpu(), upper.cpu()))
        about: dict[str, Any] = {}
        if data is not None:
            extras = {name: values.cpu() for name, values in {"labels": data.labels, **data.extras}.items()}
            about = {"classes": list(data.classes)}
            samples = replace(samples, extras=extras, features=data.features, tokens=data.tokens, about=about)
        configured = named_metrics(metrics, neighbourhood, self.preset)
        if table is not None:
            function = find_frame_function(model)
            classes = [] if function is None else list(function.reading.class_names)
            about = {"columns": table.plain(), **({"classes": classes} if classes else {})}
            samples = replace(samples, features=table.names, about=about)
        if texts is not None:
            about = {"texts": True, **({"classes": list(texts.classes)} if texts.classes else {})}
            samples = replace(samples, tokens=texts.tokens, lengths=texts.lengths, about=about)
        for explainer in ready.values():
            check_channels(explainer, x)
        for metric in configured.values():
            check_channels(metric, x)
            check_fits(getattr(metric, "neighbourhood", None), x, model.bounds)
            warn_of_radius(metric, model, x)
        beside = self._choose_controls(model, ready, configured, x)
        check_explained(models.values(), ready.values())
        own = "texts" if texts is not None else data.name if data is not None else ""
        grid = Grid(
            data={_short(self.about.get("data")) or own or DATA: samples},
            models={name: LoadedModel(each) for name, each in models.items()},
            explainers={**ready, **beside},
            controls=tuple(beside),
            sanity=make_checks(self.sanity),
            metrics=configured,
            seed=self.seed,
            repeats=self.repeats,
            samples_per_job=self.samples_per_job,
            device=model.device.type,
        )
        return grid, notes

    def _name_models(self, notes: dict[str, Any]) -> dict[str, Model]:
        """The models by name."""
        given = self.model if isinstance(self.model, Mapping) else {"": self.model}
        check(len(given) > 0, "model", "at least one", "an empty mapping")
        found: dict[str, Model] = {}
        for name, model in given.items():
            if isinstance(model, nn.Module):
                bounds, notes["bounds"] = _find_bounds(self.inputs)
                model = Model(model, bounds)
            expected = "a standfast Model or a torch.nn.Module"
            hint = ", whose data are a data frame" if hasattr(model, "predict") else ""
            if isinstance(model, list | tuple):
                hint = "; several models are in a mapping from names"
            check(isinstance(model, Model), "model", expected, f"{type(model).__name__}{hint}")
            if self.reference is not None and model.reference is None:
                model = model.with_reference(model.check_inputs(self.reference, "reference"))
            found[str(name) or _short(self.about.get("model")) or module_name(model.module)] = model
        return found

    def _choose_neighbourhood(
        self, model: Model, metrics: Mapping[str, Metric | str] | Sequence[Metric | str], notes: dict[str, Any]
    ) -> NeighbourhoodsLike | None:
        """The given one or several, or the default where a metric by name needs one; warns if none uses it."""
        named = [m for m in (metrics.values() if isinstance(metrics, Mapping) else metrics) if isinstance(m, str)]
        check_preset(self.preset)
        if self.preset != "standard" and not named:
            words = "has no effect, because no metric is given by name; configured metrics keep their options"
            warn_user(f"preset={self.preset!r} {words}")
        if self.neighbourhood is None:
            if not any(has_neighbourhood(name, required=True) for name in named):
                return None
            chosen = default_neighbourhood(model)
            words = f"LinfBall({chosen.radius:g}), one tenth of the range of the inputs, because none was given"
            notes[_DEFAULT_NEIGHBOURHOOD] = words
            logger.info("neighbourhood: %s", words)
            return chosen
        if not any(has_neighbourhood(name) for name in named):
            warn_user(
                "neighbourhood= has no effect, because no metric that has one is given by name; configured metrics keep"
                " their options"
            )
        several = self.neighbourhood if isinstance(self.neighbourhood, list | tuple) else [self.neighbourhood]
        check(len(several) > 0, "neighbourhood", "a neighbourhood, or a list of at least one", "an empty list")
        for each in several:
            check_neighbourhood(each)
        return self.neighbourhood

    def _choose_controls(
        self, model: Model, explainers: Mapping[str, Explainer], metrics: Mapping[str, Metric], x: Tensor
    ) -> dict[str, Explainer]:
        """The controls beside the explainers that any of the metrics can use."""
        if self.controls is False:
            return {}
        wanted = _name_explainers(self.controls, "controls") if self.controls is not True else None
        beside = {
            name: control
            for name, control in (_find_controls(model, explainers, x) if wanted is None else wanted).items()
            if control not in explainers.values() and any(metric.takes_control(control) for metric in metrics.values())
        }
        for name in beside:
            check(name not in explainers, "controls", "names that differ from those of the explainers", repr(name))
        return beside


def _check_places(models: Any, explainers: Any) -> None:
    """Raise `ArgumentError` for weights or explainers in the place of the model, and for a model in theirs."""
    call = "evaluate(model, explainers, inputs, metrics)"
    expected = f"a model, or several in a mapping from names: {call}"
    check(not is_state_dict(models), "model", expected, describe_no_module(models))
    for model in _list_parts(models):
        got = f"the explainer {model!r}" if isinstance(model, str | Explainer) else describe_no_module(model)
        check(not isinstance(model, str | Explainer) and not is_state_dict(model), "model", expected, got)
    for explainer in _list_parts(explainers):
        expected = f"explainers, which come after the model: {call}"
        check(not isinstance(explainer, Model | TextModel), "explainers", expected, repr(explainer))


def _list_parts(parts: Any) -> list[Any]:
    """What is in a list or a mapping, or the one thing that is given."""
    if isinstance(parts, Mapping):
        return list(parts.values())
    return list(parts) if isinstance(parts, list | tuple) else [parts]


def _name_explainers(explainers: ExplainersLike, argument: str) -> dict[str, Explainer]:
    """Explainers by name."""
    if isinstance(explainers, str | Explainer) or callable(explainers):
        explainers = [explainers]
    if isinstance(explainers, Mapping):
        given = dict(explainers)
    else:
        got = describe_foreign(explainers, ADAPTERS, adapters=True)
        check(isinstance(explainers, Iterable), argument, _SEVERAL, got)
        given = {}
        for explainer in explainers:
            name = explainer if isinstance(explainer, str) else get_explainer(explainer).label
            check(name not in given, argument, "names that differ, or a mapping from names", f"{name!r} twice")
            given[name] = explainer
    return {name: get_explainer(explainer) for name, explainer in given.items()}


def _find_controls(model: Model, explainers: Mapping[str, Explainer], x: Tensor) -> dict[str, Explainer]:
    """The controls that fit the model and the data, unless the explainers are nothing but controls themselves."""
    first = next((name for name, explainer in explainers.items() if not explainer.control), None)
    if first is None:
        return {}
    found: list[Explainer] = [RandomExplainer()]
    found += [InputCopy()] if find_text_box(model) is None else []  # codes of words are no numbers
    found += [Edges()] if x.ndim > 2 else []
    found += [RandomisedExplainer(explainers[first])] if any(True for _ in model.module.parameters()) else []
    return {e.label if e.name != RandomisedExplainer.name else f"{e.name}:{first}": e for e in found}


def _short(fact: object) -> str:
    """The name in a text such as "lenet5, 99% test accuracy"."""
    return str(fact or "").partition(",")[0].strip()


def _find_bounds(inputs: object) -> tuple[tuple[Bound, Bound], str]:
    """The bounds for a module alone, and where they come from.

    Raises:
        ArgumentError: the inputs are no data set, and do not look like values in [0, 1].
    """
    if isinstance(inputs, Dataset):
        source = f"{describe_bounds(inputs.bounds)}, those of the data set {inputs.name}"
        logger.info("bounds of the inputs: %s", source)
        return inputs.bounds, source
    check(isinstance(inputs, Tensor), "inputs", "a torch.Tensor or a Dataset", describe_no_tensor(inputs))
    assert isinstance(inputs, Tensor)
    got = f"{inputs.dtype}: {suggest_dtype(inputs, torch.float32)}"
    check(inputs.is_floating_point(), "inputs", "floating-point numbers", got)
    check(inputs.numel() > 0, "inputs", "a non-empty batch of shape (N, ...)", f"shape {tuple(inputs.shape)}")
    least, most = (float(value) for value in inputs.aminmax())
    # values that reach the upper half, but nothing beyond, are most often scaled to [0, 1]
    check(
        least >= 0 and 0.5 < most <= 1,
        "bounds",
        "the range of all valid inputs, as in standfast.Model(net, bounds=(low, high)), because these inputs do not"
        " look like values in [0, 1]",
        f"a module alone, and inputs with values in [{least:g}, {most:g}]",
    )
    warn_user(
        f"bounds: taken as [0, 1], because all inputs lie in [{least:g}, {most:g}]; if other values are valid, say so"
        " with standfast.Model(net, bounds=(low, high))"
    )
    return (0.0, 1.0), f"[0, 1], assumed because all inputs lie in [{least:g}, {most:g}]"


def estimate(
    model: ModelLike,
    explainers: ExplainersLike,
    inputs: Tensor | Dataset,
    metrics: MetricsLike,
    *,
    seconds: float = 1.0,
    **options: Any,
) -> Estimate:
    """Estimate what `evaluate` would cost: evaluations, time and memory for every metric and explainer.

    Every metric is tried with every explainer on the first samples, which takes at most about `5 * seconds` for each
    pair. A cost that depends on what is found, as for a probability, is known to about a factor of two. `standfast run
    --dry-run` prints the same for a study.

    Args:
        model, explainers, inputs, metrics: as for `evaluate`.
        seconds: how long a trial of a metric and explainer may take, about. If it does not end, a cheaper configuration
            of the metric is tried for up to twice as long, and once more if that takes below two seconds.
        options: `neighbourhood`, `preset`, `controls`, `sanity`, `targets`, `repeats` and `samples_per_job`, as for
            `evaluate`.

    Returns:
        The costs for one worker: `evaluations`, `seconds`, `memory` (in bytes; a lower bound where a trial was
        stopped), and `frame()` with a row for each metric and explainer.

    Raises:
        ArgumentError: an argument does not fit.

    >>> import standfast
    >>> digits = standfast.data.bundled("digits")[:8]
    >>> model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    >>> costs = standfast.estimate(model, ["saliency", "gradcam"], digits.inputs, ["aopc"], sanity=False)
    >>> costs.evaluations, costs.seconds > 0
    (24048, True)
    """
    known = [each.name for each in fields(_Question)]
    for option, value in options.items():
        if option not in known:
            raise UnknownOptionError("estimate", option, value, known[4:])
    grid, _ = _Question(model, explainers, inputs, metrics, **options).make_grid()
    return estimate_plan(make_plan(grid), set(), seconds=seconds)


def default_neighbourhood(model: Model) -> LinfBall:
    """What `evaluate` takes where no neighbourhood is given: one tenth of the range of the inputs.

    Raises:
        ArgumentError: the bounds are infinite, or the channels have different ranges.

    >>> from torch import nn
    >>> default_neighbourhood(Model(nn.Linear(2, 2), bounds=(-1.0, 1.0), device="cpu"))
    LinfBall(radius=0.2, distribution='uniform', sigma=None)
    """
    lower, upper = model.bounds
    ranges = sorted({float(f"{width:.6g}") for width in (upper - lower).double().flatten().tolist()})
    expected = "a neighbourhood, such as LinfBall(0.1): its default is one tenth of the one finite range of all inputs"
    fits = len(ranges) == 1 and math.isfinite(ranges[0])
    check(fits, "neighbourhood", expected, f"None, for ranges of {', '.join(f'{width:g}' for width in ranges)}")
    return LinfBall(float(f"{0.1 * ranges[0]:.6g}"))


def run_study(
    study: Study | Mapping[str, Any] | str | Path,
    out: str | Path | None = None,
    *,
    executor: Executor | None = None,
    command: str | None = None,
    progress: bool = True,
) -> Results:
    """Run a study. Jobs that an earlier run has done are not done again.

    Args:
        study: a study file, its content as a mapping, or the result of `load_study`.
        out: a folder or an fsspec address for the results; by default, `results/<name of the file>`.
        executor: does the jobs; None for the executor of the study.
        command: the command that reproduces the results, for the report; a command says itself what failed.
        progress: show a progress bar.

    A warning says which explainers failed by which metrics, and why, unless there is a `command`.

    Raises:
        ArgumentError: `study` is something else.
        StudyError: something in the file does not fit.

    >>> import standfast
    >>> ball = {"linf": 0.1}
    >>> found = standfast.run_study(
    ...     {
    ...         "data": {"digits": "digits"},
    ...         "samples": 2,
    ...         "models": {"lenet": "lenet5-mnist"},
    ...         "explainers": ["saliency", "gradcam"],
    ...         "metrics": [{"max_sensitivity": {"neighbourhood": ball, "samples": 5}}],
    ...     },
    ...     out="memory://example",
    ...     progress=False,
    ... )
    >>> found.frame().shape[0], found.failures
    (4, [])
    """
    from standfast.study.file.spec import Study, load_study, study_from

    expected = "a study file, its content as a mapping, or the result of load_study"
    check(isinstance(study, Study | Mapping | str | Path), "study", expected, type(study).__name__)
    if isinstance(study, Mapping):
        study = study_from(study)
    elif not isinstance(study, Study):
        study = load_study(study)
    if out is None:
        _check_own(default_folder(study), study)
    grid = study.grid()
    chosen = executor or executor_of(study)
    about = {"title": study.title, "command": command} if command else {"title": study.title}
    with watch(progress) as report_progress:
        run = run_grid(
            grid,
            Store(address := out or default_folder(study)),
            executor=chosen,
            origin=Origin(about, study.plain(), str(Path(study.name).resolve()), study.base),
            progress=report_progress,
        )
    found = load_results(address, run)
    if command is None:
        _warn_of_failures(found)
    return found


def _check_own(folder: Path, study: Study) -> None:
    """Raise `ArgumentError` if the default folder has results of another study file of the same name."""
    store = Store(folder)
    if store.folder.exists("manifest.json"):
        origin = store.manifest().get("origin")
        own = str(Path(study.name).resolve())
        check(origin in (None, own), "out", f"a folder of its own, since {folder} has results of {origin}", "none")


def default_folder(study: Study) -> Path:
    """The folder for the results of a study, if none is given."""
    return Path("results") / (Path(study.name).stem or "study")


def executor_of(study: Study, name: str | None = None, workers: int | str | None = None) -> Executor:
    """The executor of a study; the arguments, if given, replace what the study says."""
    from standfast.study.file.entries import EXECUTORS

    entry = study.executor
    check(name is None or name in EXECUTORS, "executor", "local, ray or slurm", repr(name))
    if name is not None and name != entry.name:
        shared = {"workers", "threads", *vars(UNLIMITED)}
        entry = EXECUTORS[name](**entry.model_dump(include=shared, exclude_unset=True))
    changed = entry if workers is None else entry.model_copy(update={"workers": workers})
    return changed.executor(study.device)
