"""The headline against an option: estimates of a comparison over numbers, and the charts of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice

import polars as pl

from holdfast.charts import Chart, Interval, Track, looks_of_explainers, looks_of_values, sweep
from holdfast.presentation import Reading
from holdfast.report.options import Group, Member
from holdfast.report.summary import estimate

#: charts of one comparison over two options, for one data set and model
PANELS = 6

#: the rows of a member and of what lines or panels are of
Rows = Callable[[str, str], pl.DataFrame]
Found = Mapping[tuple[str, str], Interval | None]


class SweepTable:
    """The estimates of a comparison over numbers: for each member and each of `names`, explainers as a rule.

    Args:
        group: what is compared.
        reading: of all members.
        names: what lines, or panels, are of, and the explainer whose look each has.
        rows: the rows of a member and a name.
        explainers: all of the study's, for the looks.
    """

    def __init__(
        self, group: Group, reading: Reading, names: Mapping[str, str], rows: Rows, explainers: Sequence[str]
    ) -> None:
        self.group, self.reading, self.looks, self.explainers = group, reading, names, explainers
        everyone = (*group.members, *group.references)
        frames = {(m.name, name): reading.counted(rows(m.name, name)) for m in everyone for name in names}
        self.frames = {key: frame for key, frame in frames.items() if len(frame)}
        self.names = [name for name in names if any((m.name, name) in self.frames for m in group.members)]
        self.lines = list(dict.fromkeys(m.across for m in group.members if m.across is not None))

    def charts(self) -> list[Chart]:
        """The headline against the option."""
        found = {key: _interval(key[0], self.reading, frame) for key, frame in self.frames.items()}
        heading = self.reading.title if self.group.across else f"{self.reading.title}, by {self.group.option}"
        return self._panels(
            found, self.reading.axis, self.reading.direction, "sweep", heading, "", self.group.references
        )

    def differences(self) -> list[Chart]:
        """Each sample's difference to its value at the first reference, against the option (SAFARI, Fig. 3)."""
        if not self.group.references:
            return []
        text = self.group.references[0].text
        found: dict[tuple[str, str], Interval | None] = {}
        for member in self.group.members:
            fits = [r.name for r in self.group.references if r.text == text and _fits(r, member)]
            found |= {(member.name, name): self._difference(member.name, fits[0], name) for name in self.names if fits}
        caption = (
            f"Of each sample's difference to its value at the reference ({text}). Samples that only one of them has, "
            "or whose reference is censored, are left out. Dotted: no difference."
        )
        heading = f"Difference to the reference ({text})"
        return self._panels(found, f"difference of {self.reading.axis}", None, "difference", heading, caption, ())

    def _difference(self, member: str, reference: str, name: str) -> Interval | None:
        """Over the samples that both have; a difference to a bound is not known on either side."""
        keys, parts = ["sample", "repeat"], []
        for label, column in ((member, "value"), (reference, "other")):
            frame = self.frames.get((label, name))
            if frame is None:
                return None
            values = pl.Series(column, self.reading.values(frame))
            bounds = pl.Series(f"{column}_bound", self.reading.bounds(frame))
            parts.append(frame.select(keys).with_columns(values, bounds))
        joined = parts[0].join(parts[1], on=keys, how="inner", maintain_order="left").filter(~pl.col("other_bound"))
        rows = joined.with_columns((pl.col("value") - pl.col("other")).alias("value"), pl.lit("ok").alias("status"))
        side = self.reading.censored_side
        return _interval(member, Reading("", "", "value", None, censored="value_bound", censored_side=side), rows)

    def _panels(
        self,
        found: Found,
        axis: str,
        direction: str | None,
        name: str,
        heading: str,
        caption: str,
        references: Sequence[Member],
    ) -> list[Chart]:
        """One chart, or with a second option one for each name or for each of its values, whichever are fewer."""
        across = self.group.across
        own = looks_of_explainers(self.explainers)
        looks = {each: own[self.looks[each]] for each in self.names}
        if across is None:
            panels = [("", "", self._by_name(found, None, references), looks)]
        elif len(self.names) <= len(self.lines):
            panels = [
                (
                    each,
                    across,
                    self._by_line(found, each, references),
                    looks_of_values(self.explainers, self.looks[each], self.lines),
                )
                for each in self.names
            ]
        else:
            panels = [(f"{across}: {line}", "", self._by_name(found, line, references), looks) for line in self.lines]
        drawn = []
        for panel, legend, tracks, styles in panels:
            chart = sweep(
                tracks,
                styles,
                f"{self.reading.title if name == 'sweep' else heading}{f', {panel}' if panel else ''}",
                self.group.option,
                axis,
                direction,
                self.reading.censored_side,
                good=self.reading.good,
                caption=" ".join(filter(None, [caption, self._uneven(), self._absent()])),
                name="-".join(filter(None, [name, self.group.option, panel])),
                heading=f"{heading}: {panel}" if panel else heading,
                legend=legend,
                zero=name == "difference",
            )
            drawn += [] if chart is None else [chart]
        if len(drawn) > PANELS:
            more = f" {len(drawn) - PANELS} more of these charts are left out."
            drawn = [*drawn[: PANELS - 1], replace(drawn[PANELS - 1], caption=drawn[PANELS - 1].caption + more)]
        return drawn

    def _by_name(self, found: Found, line: str | None, references: Sequence[Member]) -> list[Track]:
        """A line for each name, at one value of the second option."""
        members = [m for m in self.group.members if m.across == line]
        tracks = [_track(name, members, name, found) for name in self.names]
        for text in dict.fromkeys(r.text for r in references):
            own = [r for r in references if r.text == text and r.across in (None, line)]
            tracks += [_track(name, own, name, found, text) for name in self.names]
        return tracks

    def _by_line(self, found: Found, name: str, references: Sequence[Member]) -> list[Track]:
        """A line for each value of the second option, of one name."""
        tracks = [_track(line, [m for m in self.group.members if m.across == line], name, found) for line in self.lines]
        for text, line in dict.fromkeys((r.text, r.across) for r in references):
            own = [r for r in references if (r.text, r.across) == (text, line)]
            tracks.append(_track(line or "", own, name, found, text))
        return tracks

    def _uneven(self) -> str:
        """A warning where medians along a line are not of the same samples."""
        for name in self.names:
            frames = [self.frames[m.name, name] for m in self.group.members if (m.name, name) in self.frames]
            if len({tuple(frame.select("repeat", "sample").sort("repeat", "sample").rows()) for frame in frames}) > 1:
                return "Not the same samples at all values, so compare with care."
        return ""

    def _absent(self) -> str:
        here = {member for member, _ in self.frames}
        absent = [m.name for m in (*self.group.members, *self.group.references) if m.name not in here]
        return f"Without results here: {', '.join(absent)}." if absent else ""


def _interval(member: str, reading: Reading, frame: pl.DataFrame) -> Interval | None:
    middle = estimate(reading, frame)
    if middle is None:
        return None
    return Interval(member, middle.value, middle.low, middle.high, middle.bound is not None)


def _track(line: str, members: Sequence[Member], name: str, found: Found, text: str = "") -> Track:
    """A line's estimates, in the order of x; of a reference without an x, its only one."""
    pairs = [(m.x, found[m.name, name]) for m in members if found.get((m.name, name)) is not None]
    on_axis = {x: e for x, e in reversed(pairs) if x is not None and e is not None}
    if text and not on_axis:
        return Track(line, None, [e for _, e in islice(pairs, 1) if e is not None], text)
    return Track(line, sorted(on_axis), [on_axis[x] for x in sorted(on_axis)], text)


def _fits(reference: Member, member: Member) -> bool:
    """Whether a reference has the member's values of the options, as far as it has them."""
    return reference.x in (None, member.x) and reference.across in (None, member.across)
