"""`reasons`: which reasons of a decision can be stated, as they are named again when nothing that matters differs."""

from __future__ import annotations

import json
import math
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl
import torch
from torch import Tensor

from standfast.data import Dataset
from standfast.display import format_clock, show_progress
from standfast.errors import ArgumentError, as_number, check, check_integer
from standfast.evaluation import evaluate
from standfast.explainers import Explainer
from standfast.files import write_atomically
from standfast.metrics.reasons.draws import Source, list_possible
from standfast.metrics.reasons.places import Speaking, count_first
from standfast.metrics.reasons.reasons import Reasons
from standfast.neighbourhoods import Neighbourhood
from standfast.question.arguments import ExplainerLike, ModelLike
from standfast.question.grid import LoadedModel
from standfast.question.inputs import Inputs
from standfast.reason_cards.asked import Asked
from standfast.reason_cards.counter_examples import CounterSearch, check_counter_examples
from standfast.reason_cards.retrained_runs import RetrainedRuns
from standfast.reason_cards.retraining import Retraining
from standfast.reason_cards.shared_draws import SharedDraws
from standfast.report import Results
from standfast.report.cards import card_to_json, format_card, write_card
from standfast.results.counter_examples import CounterExample, describe_counter_examples
from standfast.results.reasons import Card
from standfast.results.reasons.feature_names import check_units
from standfast.results.stored_reasons import METRIC, Place, read_card
from standfast.statistics.proportions import proportion_interval
from standfast.study.forecast.choice import check_minutes

#: draws of each source alone, and of each model that was trained again
_DRAWS_ALONE = 40
_DRAWS_OF_MODEL = 4
#: of fewer decisions, none is compared with the others
_FEWEST_COMPARED = 10
#: the letters of a line of text
_WIDTH = 100


@dataclass(frozen=True)
class Share:
    """How many of several decisions have something.

    Attributes:
        count, total: of how many.
        value, low, high: the share with its 95% interval.
    """

    count: int
    total: int
    value: float
    low: float
    high: float


@dataclass(frozen=True, repr=False)
class ReasonCards:
    """The reasons of one decision or of several.

    Attributes:
        cards: one for each decision that could be explained, in the order of the samples.
        skipped: why others could not, by the number of the sample.
        results: of the draws; with models that were trained again those of the given model.
        retrained: the results of the models that were trained again, one for each look.
        counter_examples: where they were searched, one for each reason of a decision, by the number of the sample.
    """

    cards: tuple[Card, ...]
    skipped: Mapping[int, str]
    results: Results
    retrained: tuple[Results, ...] = ()
    counter_examples: Mapping[int, tuple[CounterExample, ...]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.cards)

    def __iter__(self) -> Iterator[Card]:
        return iter(self.cards)

    def to_text(self, sample: int | None = None) -> str:
        """The card of a sample as plain text.

        Args:
            sample: which; the only one by default.
        """
        return self._format(self.card(sample))

    def __str__(self) -> str:
        lines = [self._format(card) for card in self.cards]
        lines += [
            f"sample {sample}: {status}, and so not explained"
            for sample, status in self.skipped.items()
        ]
        return "\n\n".join(lines)

    def _format(self, card: Card) -> str:
        """A card as plain text, with what was found that makes its reasons fall."""
        text = format_card(card)
        falls = self._describe_falls(card)
        if falls:
            text += f"\n{textwrap.fill(falls, _WIDTH)}"
        return text

    def _describe_falls(self, card: Card) -> str:
        """The counter-examples of a card, in sentences."""
        return describe_counter_examples(self.counter_examples.get(card.sample, ()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.cards)} decisions, {len(self.skipped)} skipped)"

    def to_html(self, path: str | Path, sample: int | None = None) -> Path:
        """Write the card of a sample as a page that prints on one sheet of A4.

        Args:
            path: of the file.
            sample: which; the only one by default.
        """
        card = self.card(sample)
        falls = self._describe_falls(card) or None
        write_card(card, Path(path), counter_example=falls, comparison=self._describe_place(card))
        return Path(path)

    def to_json(self, path: str | Path, sample: int | None = None) -> Path:
        """Write the card of a sample as JSON.

        Args:
            path, sample: as of `to_html`.
        """
        card = self.card(sample)
        plain = card_to_json(card)
        if card.sample in self.counter_examples:
            plain["counter_examples"] = [
                example.plain() for example in self.counter_examples[card.sample]
            ]
        text = json.dumps(plain, indent=1, ensure_ascii=False, allow_nan=False)
        write_atomically(Path(path), text.encode())
        return Path(path)

    def write(self, path: Path) -> list[Path]:
        """Write all cards, as JSON where the name ends so, and else as pages.

        Args:
            path: of the only card; of several each gets the number of its sample in the name.
        """
        written: list[Path] = []
        for card in self.cards:
            own_path = (
                path if len(self.cards) == 1 else path.with_stem(f"{path.stem}-{card.sample}")
            )
            write_one = self.to_json if path.suffix == ".json" else self.to_html
            written.append(write_one(own_path, card.sample))
        return written

    def _describe_place(self, card: Card) -> str | None:
        """How steady the reasons are among those of the other decisions; None where these are too few."""
        steadier = self.compare(card)
        if math.isnan(steadier):
            return None
        return f"The reasons are steadier than those of {steadier:.0%} of the {len(self.cards) - 1} other decisions."

    def card(self, sample: int | None = None) -> Card:
        """The card of a sample; of the only one by default.

        Raises:
            ArgumentError: there is none of this sample, or there are several and none is named.
        """
        samples = [card.sample for card in self.cards]
        if sample is None:
            check(len(samples) == 1, "sample", f"one of {_list_some(samples)}", "none")
            return self.cards[0]
        got = (
            f"{sample}, which is {self.skipped[sample]}" if sample in self.skipped else repr(sample)
        )
        check(sample in samples, "sample", f"one of {_list_some(samples)}", got)
        return self.cards[samples.index(sample)]

    def frame(self) -> pl.DataFrame:
        """A row for each decision and each feature that is named: its value, intervals, place, probability, state.

        Images have none: which of their pixels hold is in the map of the card.
        """
        rows = [row for card in self.cards for row in card.rows()]
        return pl.DataFrame(rows, infer_schema_length=None)

    def share_of_stated(
        self, first: int | None = None, among: Sequence[int] | None = None
    ) -> Share:
        """The share of the decisions whose first reasons all hold.

        Args:
            first: how many of the first reasons; all by default.
            among: the numbers of samples, such as those of a group; all by default.
        """
        cards = [card for card in self.cards if among is None or card.sample in among]
        stated = [_are_stated(card, first) for card in cards]
        return _measure_share(sum(stated), len(stated))

    def frame_of_groups(self, groups: Mapping[int, Any] | None = None) -> pl.DataFrame:
        """The shares whose first reason, and whose reasons, can all be stated, by what the model answers, or by group.

        Args:
            groups: the group of each sample, by its number; what the model answers by default.
        """
        of_group: dict[str, list[int]] = {}
        for card in self.cards:
            name = card.answer if groups is None else str(groups.get(card.sample, "no group"))
            of_group.setdefault(name, []).append(card.sample)
        rows: list[dict[str, Any]] = []
        for name, samples in of_group.items():
            for first in (1, None):
                share = self.share_of_stated(first, samples)
                stated = "first reason" if first == 1 else "all reasons"
                rows.append({"group": name, "stated": stated, **vars(share)})
        return pl.DataFrame(rows)

    def count_doubtful(self) -> dict[str, int]:
        """In how many decisions each feature is a reason that does not hold, the most frequent first."""
        doubtful: Counter[str] = Counter()
        for card in self.cards:
            doubtful.update(reason.name for reason in card.reasons if reason.state != "holds")
        return dict(doubtful.most_common())

    def compare(self, card: Card) -> float:
        """The share of the other decisions whose reasons are named again less often; NaN if there are fewer than 10."""
        others = [
            other.same for other in self.cards if other is not card and math.isfinite(other.same)
        ]
        if len(others) < _FEWEST_COMPARED or not math.isfinite(card.same):
            return math.nan
        return sum(other < card.same for other in others) / len(others)


def reasons(
    model: ModelLike,
    explainer: ExplainerLike,
    inputs: Tensor | Dataset | Any,
    *,
    reference: Tensor | Any = None,
    top: int | None = None,
    demand: float = 0.9,
    measurement: Neighbourhood | bool | None = None,
    retrained: Sequence[ModelLike] | None = None,
    retrain: Callable[[int], Any] | bool | None = None,
    models: int | None = None,
    labels: Any = None,
    others: ExplainerLike | Sequence[ExplainerLike] = (),
    decision: str | None = None,
    targets: Tensor | int | None = None,
    speaking: Speaking = "both",
    draws: int = 400,
    alone: bool = True,
    counter_examples: int = 0,
    units: Mapping[str, str] | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    workers: int | str = 1,
    minutes: float | None = None,
    progress: bool = True,
) -> ReasonCards:
    """Find out which of the first reasons of each decision can be stated.

    A reason is a feature among the first k of an explanation, with its sign. It holds if it is named again in at least
    nine of ten variations, of all that may be different without anybody wanting another explanation. What varies is
    declared by having it: the seed of the explainer; the rows that it averages over; the measurement of the input;
    models that were trained again; other explainers.

    Args:
        model, inputs, reference, decision, targets: as for `evaluate`; one model.
        explainer: one, as `evaluate` takes several.
        top: how many features count, k; None for 4 of a row or a text, and for a tenth of an image or a series.
        demand: the probability with which a reason has to be named.
        measurement: a neighbourhood in which an input means the same. True for the default of `evaluate`, False for
            none; by default none for data frames, and that of `evaluate` for other inputs.
        retrained: models that were trained again, and would do as well.
        retrain: a function that trains one, of a seed (1, 2, ...). True for clones of an estimator or a pipeline of
            scikit-learn's kind, each fitted on rows of `reference` that are drawn with replacement.
        models: how many are trained. None for as many as decide: 49 for four reasons and 35 for one, about twice as
            many where some reason is undecided, and so on; 200 at most, or as many as can show the
            demand if that takes more.
        labels: with `retrain=True`, what the model learns of each row of `reference`: a class or a number.
        others: further explainers that would do as well.
        speaking: `"for"` to take only features that speak for the answer; `"both"` orders by absolute values.
        draws: at most so many variations of the given model.
        alone: also find out what each source of variation does alone.
        counter_examples: search, for each reason, a small change within the neighbourhood of `measurement` after which
            it is no longer named while the answer stays; at most so many changed inputs are explained for each reason,
            500 say. 0 for no search. Of rows and texts. What was found is stored with the results, and not searched
            again.
        units: of columns, by name, such as `{"income": "EUR"}`, which a card has beside their values.
        seed, out, workers, minutes, progress: as for `evaluate`. With `out`, a second call goes on where one has ended.

    Returns:
        The cards. `print` shows them.

    Raises:
        ArgumentError: an argument does not fit, such as more reasons than features.
        ModelError: a model fails.

    >>> import standfast
    >>> digits = standfast.data.bundled("digits")[:2]
    >>> model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    >>> found = standfast.reasons(model, "saliency", digits, measurement=standfast.LinfBall(0.02), progress=False)
    >>> [card.sample for card in found], found.card(0).varied
    ([0, 1], ('measurement',))
    """
    began = time.monotonic()
    question = Asked(model, explainer, inputs, reference, decision, targets)
    read_inputs = question.read()
    samples = next(iter(read_inputs.samples.values()))
    neighbourhood = _choose_measurement(measurement, read_inputs)
    configured = Reasons(neighbourhood, top=top, demand=demand, draws=draws, speaking=speaking)
    number_of_reasons = _check_top(top, read_inputs)
    limit = check_minutes(minutes)
    check_counter_examples(counter_examples, neighbourhood, read_inputs)
    check_units(units, samples.features or ())
    retraining = Retraining(retrained, retrain, models, reference, labels)
    looks = retraining.plan_looks(model, demand, number_of_reasons)
    options: dict[str, Any] = {
        "reference": reference,
        "decision": decision,
        "seed": as_number(seed),
        "workers": workers,
        "minutes": _share_minutes(limit, looks),
        "controls": False,
        "sanity": False,
        "progress": progress,
    }
    explainers = [explainer, *_list_explainers(others)]
    evaluation = _Evaluation(inputs, explainers, None if out is None else Path(out), options)
    metrics = {METRIC: configured}
    if alone:
        # models and explainers are sources of their own, beside which one more is worth its draws
        is_single = not looks and len(explainers) == 1
        possible = _list_possible(configured, explainer, read_inputs)
        metrics.update(_list_alone(configured, possible, is_single))
    ends = None if limit is None else began + 60 * limit
    shared = SharedDraws(configured, _count_shared(number_of_reasons, explainers, looks), ends)
    results = evaluation.run_given(model, metrics, targets, limit)
    few_draws = replace(configured, draws=_DRAWS_OF_MODEL)

    def evaluate_models(models_of_look: Mapping[str, Any], number: int) -> Results:
        """The results of models that were trained again, with few draws of each."""
        answers = _find_targets(results, len(samples))
        minutes_left = _count_minutes_left(limit, began)
        folder = _name_folder(number)
        return evaluation.run_in_any_case(
            dict(models_of_look), {METRIC: few_draws}, folder, answers, minutes_left
        )

    runs = RetrainedRuns(
        retraining,
        model,
        looks,
        evaluate_models,
        ends=ends,
        training_ends=_end_training(limit, began),
        progress=progress,
    )
    cards = _read_cards(results, runs, units or {}, progress)
    while shared.goes_on(results, cards.cards):
        metrics[METRIC] = replace(configured, fewest=shared.fewest)
        results = evaluation.run_given(model, metrics, targets, limit)
        cards = _read_cards(results, runs, units or {}, progress)
    while runs.goes_on(cards.cards):
        runs.run_next()
        cards = _read_cards(results, runs, units or {}, progress)
    if not counter_examples or neighbourhood is None:
        return cards
    search = CounterSearch(
        question, neighbourhood, speaking, counter_examples, as_number(seed), units or {}
    )
    return replace(cards, counter_examples=search.find(cards.cards, results, progress))


@dataclass(frozen=True)
class _Evaluation:
    """What the given model and those that were trained again are evaluated with.

    Attributes:
        inputs: the decisions.
        explainers: the one that is asked for, and behind it those that would do as well.
        folder: of all results; None for that of the cache.
        options: further arguments of `evaluate`.
    """

    inputs: Any
    explainers: list[Any]
    folder: Path | None
    options: Mapping[str, Any]

    def run(self, model: Any, metrics: Any, folder: str, targets: Any) -> Results:
        """The results of a model, or of several by name, in a folder of this name."""
        out = None if self.folder is None else self.folder / folder
        return evaluate(
            model, self.explainers, self.inputs, metrics, targets=targets, out=out, **self.options
        )

    def run_given(self, model: Any, metrics: Any, targets: Any, limit: float | None) -> Results:
        """As `run`, of the given model, whose time may be half of the limit.

        Raises:
            ArgumentError: the minutes are too few for one sample. It names those that the user gave.
        """
        try:
            return self.run(model, metrics, "given", targets)
        except ArgumentError as error:
            if error.argument != "minutes" or limit in (None, self.options["minutes"]):
                raise
            expected = f"{error.expected} in the half that is not for retrained models"
            raise ArgumentError("minutes", expected, f"{limit:g} in all") from error

    def run_in_any_case(
        self, model: Any, metrics: Any, folder: str, targets: Any, minutes: float | None
    ) -> Results:
        """As `run`, in so many minutes, or in more if that is too little for one sample.

        The models are trained, and without results all of that time would be lost.
        """
        timed = replace(self, options={**self.options, "minutes": minutes})
        try:
            return timed.run(model, metrics, folder, targets)
        except ArgumentError as error:
            if minutes is None or error.argument != "minutes":
                raise
            return self.run_in_any_case(model, metrics, folder, targets, 2 * minutes)


def _share_minutes(limit: float | None, looks: Sequence[int]) -> float | None:
    """The minutes of the given model, which shares the time with models that are trained again."""
    return limit / 2 if limit is not None and looks else limit


def _end_training(limit: float | None, began: float) -> float:
    """When no further model is trained: a quarter of the time is for the evaluation of those that are."""
    return math.inf if limit is None else began + 60 * limit * 3 / 4


def _count_minutes_left(limit: float | None, began: float) -> float | None:
    """The minutes for models that were trained again; some in any case, as the last one may have taken long."""
    if limit is None:
        return None
    spent = (time.monotonic() - began) / 60
    return max(limit - spent, limit / 10)


def _count_shared(reasons: int, explainers: Sequence[Any], looks: Sequence[int]) -> int | None:
    """How many reasons are decided by draws that explainers share; None where models decide, or one explainer."""
    return reasons if len(explainers) > 1 and not looks else None


def _name_folder(look: int) -> str:
    """The folder of the models that were trained for a look, from 0.

    >>> _name_folder(0), _name_folder(1)
    ('retrained', 'retrained 2')
    """
    return f"retrained {look + 1}" if look else "retrained"


def _choose_measurement(
    measurement: Neighbourhood | bool | None, inputs: Inputs
) -> Neighbourhood | None:
    """The neighbourhood of the measurement; None where inputs stay as they are."""
    if isinstance(measurement, Neighbourhood):
        return measurement
    expected = "a neighbourhood, True, False or None"
    check(
        measurement is None or isinstance(measurement, bool),
        "measurement",
        expected,
        repr(measurement),
    )
    if measurement is None:
        measurement = inputs.name != "frames"
    if measurement:
        return inputs.default_neighbourhood()[0]
    return None


def _check_top(top: int | None, inputs: Inputs) -> int:
    """How many features are reasons, about.

    Raises:
        ArgumentError: more than an input has.
    """
    check_integer(top, "top", also=(None,))
    samples = next(iter(inputs.samples.values()))
    shape = samples.inputs.shape[1:]
    counted = count_first(shape, top)
    features = count_first(shape, shape.numel())
    is_possible = top is None or top <= features
    check(is_possible, "top", f"at most the number of features, {features}", top)
    return counted


def _list_explainers(others: Any) -> list[Any]:
    is_one = isinstance(others, str | Explainer) or callable(others)
    return [others] if is_one else list(others)


def _list_possible(
    configured: Reasons, explainer: ExplainerLike, inputs: Inputs
) -> tuple[Source, ...]:
    """The sources that the explainer may have; others need no draws of their own."""
    (loaded,) = inputs.models.values()
    assert isinstance(loaded, LoadedModel)  # as all are that a user hands over in Python
    is_measured = configured.neighbourhood is not None
    return list_possible(inputs.fit_explainer(explainer), loaded.ready, is_measured)


def _list_alone(
    configured: Reasons, sources: Sequence[Source], is_single: bool
) -> dict[str, Reasons]:
    """The same metric for each source alone; none where there is only one source.

    Args:
        configured: with all sources.
        sources: those that may vary.
        is_single: whether there are no other models or explainers, which vary beside these.
    """
    if is_single and len(sources) < 2:
        return {}
    draws = min(_DRAWS_ALONE, configured.draws)
    return {
        f"{METRIC}: {source}": Reasons(
            configured.neighbourhood,
            top=configured.top,
            demand=configured.demand,
            draws=draws,
            vary=(source,),
            speaking=configured.speaking,
            only_beside=is_single,
        )
        for source in sources
    }


def _find_targets(given: Results, count: int) -> Tensor | None:
    """What was explained of each sample, for models that may answer otherwise; None where an answer is a number.

    Of samples that a limit of time left out it is 0: they have no card.
    """
    rows = given.samples.filter(pl.col("label") == METRIC).unique("sample").sort("sample")
    has_numbers = "answer" in rows.columns and rows["answer"].null_count() < len(rows)
    if has_numbers:
        return None
    targets = torch.zeros(count, dtype=torch.int64)
    targets[rows["sample"].to_list()] = torch.tensor(rows["targets"].to_list(), dtype=torch.int64)
    return targets


def _read_cards(
    given: Results, runs: RetrainedRuns, units: Mapping[str, str], progress: bool
) -> ReasonCards:
    """The cards of all samples that could be explained; it may take long where there are many models."""
    names = [name for name in given.explainers if name not in given.explainers.controls]
    (data, model), *_ = given.pairs
    view = given.metric_results(data, model, METRIC)
    cards: list[Card] = []
    skipped: dict[int, str] = {}
    rows = view.rows_for(names[0])

    def describe(seconds: float) -> tuple[float, str]:
        """How many cards are made."""
        count = len(cards) + len(skipped)
        words = f"card {min(count + 1, len(rows))} of {len(rows)}"
        return count / max(1, len(rows)), f"{words}, {format_clock(seconds)} elapsed"

    with show_progress(describe, only_if_long=True, show=progress):
        for row in rows.iter_rows(named=True):
            if row["status"] != "ok":
                skipped[row["sample"]] = row["status"]
                continue
            case = Place(data, model, names[0], row["sample"])
            cards.append(read_card(given, case, runs.results, names[1:], units, runs.looks))
    return ReasonCards(tuple(cards), skipped, given, runs.batches)


def _are_stated(card: Card, first: int | None) -> bool:
    """Whether the first reasons of a card all hold."""
    named = card.reasons[:first]
    return len(named) > 0 and all(reason.state == "holds" for reason in named)


def _measure_share(count: int, total: int) -> Share:
    """A share with its interval; NaN of nothing."""
    if not total:
        return Share(0, 0, math.nan, 0.0, 1.0)
    return Share(count, total, count / total, *proportion_interval(count, total, 0.95))


def _list_some(samples: Sequence[int]) -> str:
    """The first of several numbers, for errors."""
    shown = ", ".join(map(str, samples[:10]))
    return f"{shown}, ..." if len(samples) > 10 else shown or "none"
