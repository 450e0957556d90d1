"""`Race`: how explainers raced, who left when and why, and what confirmed the one that is left."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, get_args

import polars as pl

from standfast.errors import check
from standfast.statistics.paired import Interval
from standfast.study.store import Store
from standfast.value_spec import Decimals, Direction

#: the file of a race, beside the results of its jobs
RACE = "race.json"
#: where, below those of the race, the results of the confirmation are
CONFIRMATION = "confirmation"
#: the key, in the manifest, of the settings of a race, which a later call keeps; only races have it
SETTINGS = "race settings"
#: the key, in the manifest, of the minutes that a race had and of the samples that were chosen for them, those of the
#: confirmation among them; a later call has at least these samples
LIMIT = "race limit"

#: why an explainer left: it fails a sanity check; a check is undecided, while others pass all of them; it is shown to
#: be unstable; it is shown to be worse than the leader; it is behind, and there was no budget to go on; it has no
#: value; its jobs failed
Left = Literal["check", "open check", "unstable", "worse", "budget", "no value", "failed"]
#: what the samples say that the race did not use: the verdict may show the explainer; it refuses it; it is open; no
#: metric judges it; or the time was up
Outcome = Literal["confirmed", "refused", "undecided", "unjudged", "unfinished"]


@dataclass(frozen=True)
class Measured:
    """A number with its interval; None where there is none, or where an end is infinite."""

    value: float | None
    low: float | None
    high: float | None

    @classmethod
    def of(cls, interval: Interval | None) -> Measured | None:
        """The number of an interval; None without one.

        >>> Measured.of(Interval(0.5, 0.25, math.inf, 9, 0.95, None, (0.5, 0.5)))
        Measured(value=0.5, low=0.25, high=None)
        """
        if interval is None:
            return None
        ends = (interval.value, interval.low, interval.high)
        return cls(*(end if end is not None and math.isfinite(end) else None for end in ends))


@dataclass(frozen=True)
class Entrant:
    """An explainer in a race.

    Attributes:
        name: of the explainer.
        left: why it left; None for one that was in the race at its end.
        samples: on how many it was measured when it left, or at the end.
        label: of the metric by which it left; None at the end, and for a check.
        question: of the sanity check that it does not pass.
        value: by the metric of the race: the median with its 95% interval; None if it was not measured.
        behind: its value less that of the leader of that time: the shift that the test tests (Hodges and Lehmann), with
            the error of one comparison at each end; None for the first, and for one that left for another reason.
        seconds: that its jobs took.
        error: of the first job that failed.
    """

    name: str
    left: Left | None
    samples: int
    label: str | None = None
    question: str | None = None
    value: Measured | None = None
    behind: Measured | None = None
    seconds: float = 0.0
    error: str | None = None


@dataclass(frozen=True)
class Judgement:
    """What one metric says on the samples of the confirmation.

    Attributes:
        label: of the metric.
        asks: whether it asks for stability, faithfulness or something else.
        value: the median with its 95% interval.
        quality: as in `standfast.results.SummaryRow`; None where nothing judges it.
    """

    label: str
    asks: str | None
    value: Measured | None
    quality: str | None


@dataclass(frozen=True)
class Confirmation:
    """What the samples say that the race did not use.

    Attributes:
        explainer: that is confirmed, or not.
        outcome: what they say.
        samples: how many they are.
        sanity: the state of the sanity checks on them; None without checks.
        judgements: one for each metric.
        verdict: in words.
        asked_all: whether all kinds of questions were asked without which no explanation may be shown.
        needed: with about how many more samples half of such cases are decided; None if it is decided, or not known.
    """

    explainer: str
    outcome: Outcome
    samples: int
    sanity: str | None
    judgements: tuple[Judgement, ...]
    verdict: str
    asked_all: bool = True
    needed: int | None = None

    def find(self, label: str) -> Judgement | None:
        """What the metric of a label says; None if it says nothing."""
        return next((judgement for judgement in self.judgements if judgement.label == label), None)


@dataclass(frozen=True)
class Race:
    """How explainers raced on one data set and model.

    Attributes:
        data, model: names.
        label: of the metric by which explainers are ranked.
        direction: which of its values are better.
        decimals: of its values.
        level: the largest probability that the best left as unstable or as worse than another one.
        ladder: the numbers of samples at which the race looked, or would have.
        entrants: those at the end, the best first; then the others, those that left last first.
        samples: that there are.
        rows, confirmation_rows: the numbers of the samples of the race and of the confirmation, in their order.
        cost: what race and confirmation did, as a share of evaluating all explainers on all samples by all metrics,
            with checks and without controls, in forward passes of the model.
        budget: the largest share that was allowed, beyond the first look, without checks and controls.
        seconds: that all jobs took together.
        out_of_time: whether the time was up before the race was over.
        confirmation: of the leader; None if nobody was left.
        second: of the runner-up, which the race could not tell from a leader that was not confirmed; None if it was not
            asked.
        minutes: of the time limit; None without one.
        minutes_needed: where the time was up before the first look: about how many suffice for it and a confirmation,
            of a call that begins anew; None if that is not known.
        left_out: what the time limit has left out, in a few words for each part.
        call: how `choose` was called, as code (`standfast.results.given_call`); empty if that is not known.
    """

    data: str
    model: str
    label: str
    direction: Direction
    decimals: Decimals
    level: float
    ladder: tuple[int, ...]
    entrants: tuple[Entrant, ...]
    samples: int
    rows: tuple[int, ...]
    confirmation_rows: tuple[int, ...]
    cost: float
    budget: float
    seconds: float
    out_of_time: bool = False
    confirmation: Confirmation | None = None
    second: Confirmation | None = None
    minutes: float | None = None
    minutes_needed: float | None = None
    left_out: tuple[str, ...] = ()
    call: Mapping[str, Any] = field(default_factory=dict)

    @property
    def finalists(self) -> tuple[Entrant, ...]:
        """Those in the race at its end, the best first."""
        return tuple(entrant for entrant in self.entrants if entrant.left is None)

    @property
    def leader(self) -> str | None:
        """The name of the first at the end; None if nobody was left or measured."""
        measured = [entrant.name for entrant in self.finalists if entrant.samples > 0]
        return measured[0] if measured else None

    @property
    def chosen(self) -> str | None:
        """The name of the leader, or else of the runner-up, that other samples confirm; None if they confirm none."""
        for confirmation in (self.confirmation, self.second):
            if confirmation is not None and confirmation.outcome == "confirmed":
                return confirmation.explainer
        return None

    def find(self, name: str) -> Entrant:
        """An explainer by name.

        Raises:
            ArgumentError: it was not in the race.
        """
        names = [entrant.name for entrant in self.entrants]
        check(name in names, "name", f"one of {', '.join(names)}", repr(name))
        return self.entrants[names.index(name)]

    def frame(self) -> pl.DataFrame:
        """A row for each explainer, as `entrants`: when it left and why, its value, and how far it was behind."""
        rows: list[dict[str, Any]] = []
        for entrant in self.entrants:
            row: dict[str, Any] = {
                "explainer": entrant.name,
                "left": entrant.left,
                "samples": entrant.samples,
            }
            row["by"] = entrant.question or entrant.label
            for name, measured in (("value", entrant.value), ("behind", entrant.behind)):
                ends: tuple[float | None, ...] = (None, None, None)
                if measured is not None:
                    ends = (measured.value, measured.low, measured.high)
                row[name], row[f"{name}_low"], row[f"{name}_high"] = ends
            rows.append({**row, "seconds": entrant.seconds, "error": entrant.error})
        return pl.DataFrame(rows, infer_schema_length=None)

    def plain(self) -> dict[str, Any]:
        """As plain values for JSON; `Race.from_plain` makes the same race of them."""
        return {**asdict(self), "leader": self.leader, "chosen": self.chosen}

    @classmethod
    def from_plain(cls, stored: Mapping[str, Any]) -> Race:
        """The race of plain values. What later versions add is left out.

        Raises:
            ArgumentError: they are none of a race.
        """
        names = {declared.name for declared in fields(Race)}
        needed = {
            "data",
            "model",
            "label",
            "direction",
            "ladder",
            "entrants",
            "rows",
            "confirmation_rows",
        }
        check(
            needed <= set(stored),
            RACE,
            "what `Race.plain` gives",
            f"no {', '.join(sorted(needed - set(stored)))}",
        )
        values = {name: value for name, value in stored.items() if name in names}
        for name in ("ladder", "rows", "confirmation_rows", "left_out"):
            values[name] = tuple(values.get(name) or ())
        values["entrants"] = tuple(_read_entrant(entrant) for entrant in values["entrants"])
        for name in ("confirmation", "second"):
            if values.get(name) is not None:
                values[name] = _read_confirmation(values[name])
        return cls(**values)


def _read_entrant(stored: Mapping[str, Any]) -> Entrant:
    entrant = Entrant(**stored)
    check(entrant.left in (None, *get_args(Left)), RACE, "a reason to leave", repr(entrant.left))
    return replace(
        entrant, value=_read_measured(stored["value"]), behind=_read_measured(stored["behind"])
    )


def _read_measured(stored: Mapping[str, Any] | None) -> Measured | None:
    if stored is None:
        return None
    return Measured(**stored)


def _read_confirmation(stored: Mapping[str, Any]) -> Confirmation:
    judgements: list[Judgement] = []
    for judgement in stored["judgements"]:
        value = _read_measured(judgement["value"])
        judgements.append(Judgement(**{**judgement, "value": value}))
    return Confirmation(**{**stored, "judgements": tuple(judgements)})


def read_race(store: Store) -> Race | None:
    """The race whose results a store has; None where there was none.

    Raises:
        DamagedFileError: its file is not what was written.
    """
    if not store.folder.exists(RACE):
        return None
    return Race.from_plain(store.read_json(RACE, "Run the race again."))
