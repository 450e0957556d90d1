"""What a report shows of the worst case: the values, the convergence of the search, the inputs that were found."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import polars as pl

from standfast.metrics.base import larger_is_closer
from standfast.neighbourhoods.naming import label_neighbourhood, read_stored
from standfast.report.charts import Axis, Chart, Gallery, GalleryRow, Line, Picture, Words, draw_lines
from standfast.report.presentation.drawing import (
    ALIGNED,
    MOVED_BACK,
    count_axes,
    describe_maps,
    draw_distribution,
    draw_example,
    make_row,
    show_moved_back,
)
from standfast.report.presentation.kept_class import KEPT, describe_kept_class
from standfast.report.presentation.safari.terms import (
    COMPARED,
    MARGIN,
    MEANINGS,
    SHORT,
    describe_event,
    find_threshold,
    name_similarity,
)
from standfast.report.presentation.wording import Caution, count_samples, describe_parameters, describe_transformation
from standfast.results.formatting import format_number, join_names
from standfast.results.presentation import (
    MetricResults,
    Presentation,
    RankedGroup,
    ValueSpec,
    presentations,
    read_flags,
    read_numbers,
)
from standfast.tensors import Array

#: samples in a gallery, and samples behind a line
SHOWN, TRACED = 4, 100
#: samples in a gallery over several similarities
COMPARED_SAMPLES = 3
#: the verdict has the counts of this many explainers; of more only the most and the fewest
_LISTED = 6
_PICTURES = ("origins", "inputs", "origin_maps", "maps")


@presentations.register("worst_case")
class WorstCasePresentation(Presentation):
    """The worst case: the values, the convergence of the search, the inputs that were found."""

    def value_spec(self, options: Mapping[str, Any]) -> ValueSpec:
        """The event decides which direction is robust; explainers are not ranked by misclassification."""
        event, direction = options.get("event"), self.direction_of(options)
        if event == "misclassification":
            return ValueSpec(
                "Largest margin found, towards another class", "margin towards another class", direction, 2
            )
        axis = f"similarity ({options.get('similarity', '?')})"
        if event == "changed_class":
            title = "Most similar explanation found after the class has changed"
            caution = "Only samples whose class could be changed count."
            empty = "for which no change of the class was found"
            return ValueSpec(
                title, axis, direction, 3, only=("found",), caution=caution, good="more robust", empty=empty
            )
        title, empty = "Least similar explanation found while the class is kept", "for which no input keeps the class"
        return ValueSpec(title, axis, direction, 3, only=("found",), good="more robust", empty=empty)

    def remarks(self, frame: pl.DataFrame, options: Mapping[str, Any]) -> list[str]:
        """How often the event was found, and the largest sensitivities if they were tracked."""
        event, notes = options.get("event"), describe_kept_class(frame)
        if event != "changed_explanation":
            notes.append("class changed: {} of {}".format(*count_samples(frame, "found")))
        elif (
            "found" in frame.columns and not read_flags(frame, "found").all()
        ):  # where the clean input does not belong to the neighbourhood
            kept, total = count_samples(frame, "found")
            notes.append(f"no input found that keeps the class, so not counted: {total - kept} of {total}")
        if event != "misclassification" and (measured := _measure_misinterpreted(frame)):
            notes.append(f"misinterpreted: {measured[1]}")
        on_grid = "gap" in frame.columns and np.isfinite(read_numbers(frame, "gap")).any()
        if _is_auto(options) and len(frame) and "followed_gradients" in frame.columns and not on_grid:
            notes += [] if read_flags(frame, "followed_gradients").any() else ["searched without gradients"]
        gaps = read_numbers(frame, "gap") if "gap" in frame.columns else np.zeros(0)
        if np.isfinite(gaps).any():
            notes.append(f"stated gap: {format_number(float(np.median(gaps[np.isfinite(gaps)])), None)} (an estimate)")
        for column, title in (("sens_max", "largest distance"), ("sens_lips", "largest slope")):
            values = read_numbers(frame, column)
            if np.isfinite(values).any():
                notes.append(f"{title}: {format_number(float(np.median(values[np.isfinite(values)])), None)}")
        return notes

    def guide(self, options: Mapping[str, Any]) -> dict[str, str]:
        """What a worst case, the event and the options mean."""
        worst = (
            "The worst input that a search with a limited budget found. It proves that explanations can be changed "
            "this far. It does *not* prove that they cannot be changed further: the true worst case is at least as "
            "bad. It is not a certificate, and a good value may only mean that the search was weak."
        )
        event = MEANINGS.get(str(options.get("event")))
        weaker = {
            "Searched without gradients": "The search `auto` follows gradients where the explainer can be "
            "differentiated. Here it cannot, so the search only evaluated inputs, which is weaker. Such an explainer "
            "looks better than one that was searched with gradients. For a fair comparison use `search: block`."
        }
        more = weaker if _is_auto(options) else {}
        gap = {
            "Stated gap": "How much worse than the number found the true worst case may be, as the search `grid` "
            "estimates it from the differences between neighbouring parameters. It is an estimate and not a bound."
        }
        kinds = {**more, **(gap if options.get("search") == "grid" or _is_auto(options) else {})}
        return {"Worst case found": worst, **kinds, **(dict([event]) if event else {}), **KEPT, **MARGIN, **COMPARED}

    def contradictions(self, view: MetricResults, others: Sequence[MetricResults]) -> list[str]:
        """One sentence where `auto` searched some explainers with gradients and others without."""
        without = _searched_without_gradients(view)
        if not without:
            return []
        return [
            Caution(
                f"{view.data}, {view.model}: in {view.label}, {', '.join(without)} cannot be differentiated and met a "
                "weaker search than the others, so their worst cases are not comparable. Use `search: block` for all.",
                "unfair",
            )
        ]

    def question(self, options: Mapping[str, Any]) -> str:
        """The question of the event."""
        event, changed = str(options.get("event")), describe_transformation(options)
        if event == "changed_class":
            when = f" of an input that is {changed}" if changed else ""
            return f"When the class{when} changes, does the map stay the same?"
        what = "class" if event == "misclassification" else "map"
        if changed:
            return f"Can the {what} change when an input is {changed}?"
        return f"Can a small change of the input change the {what}?"

    def verdict(self, view: MetricResults) -> str:
        """On how many samples the search reached the event, and the medians where these counts do not differ."""
        event = str(view.options.get("event"))
        if event == "misclassification":
            found = [count_samples(view.evaluated(name), "found") for name in view.present]
            most = max(found, default=(0, 0))
            return f"The search changed the class of {most[0]} of {most[1]} samples." if most[1] else ""
        if event == "changed_class":
            return self._verdict_of_class(view)
        ranked = view.rank(_measure_misinterpreted, "lower")
        if not ranked:
            return ""
        best, worst = ranked[0], ranked[-1]
        bent = f"beyond recognition ({describe_event(view.options)})"
        chance = view.random_reference(_measure_misinterpreted)
        if len(ranked) > 1:
            lead = f"A search changed {worst.maps} {bent} on {worst.text} samples"
            return f"{lead}{_list_counts(ranked[::-1], chance)}."
        apart = f"Apart from the random reference ({chance}), a" if chance else "A"
        whose = "every map" if len(best.names) > 1 else best.maps
        text = f"{apart} search changed {whose} {bent} on {best.text} samples"
        if best.value == 0:
            text = f"{apart} search changed no map {bent} on any of {best.text.partition(' of ')[2]} samples"
        medians = view.rank()
        if len(medians) > 1:
            text += f"; by {name_similarity(view.options)} {medians[0].who} kept most ({medians[0].text}) and "
            text += f"{medians[-1].who} least ({medians[-1].text}{view.name_medians(', medians')})"
        return f"{text}."

    def _verdict_of_class(self, view: MetricResults) -> str:
        """Of the samples whose class was changed, on how many the map stayed."""
        counts = {name: count_samples(view.evaluated(name), "found") for name in view.candidates}
        turned, total = max((count for count in counts.values() if count[1]), default=(0, 0))
        if not turned:
            return f"The search changed the class on none of {total} samples, so nothing can be said." if total else ""
        # a share of few samples is no headline: "1 of 1" is not ahead of "8 of 9"
        few = {name for name, (count, _) in counts.items() if 2 * count < turned}
        ranked = view.rank(lambda rows: None if rows["explainer"][0] in few else _measure_misinterpreted(rows), "lower")
        rare = [
            f"{name} on {found[1]}" for name in sorted(few) if (found := _measure_misinterpreted(view.evaluated(name)))
        ]
        best, worst = ranked[0], ranked[-1]
        stayed = f"stayed the same ({describe_event(view.options)})"
        chance = view.random_reference(_measure_misinterpreted)
        rest = f"; too few to compare: {', '.join(rare)}" if rare else ""
        if len(ranked) == 1:
            apart = f"apart from the random reference ({chance}), " if chance else ""
            whose = "every map" if len(best.names) > 1 and not few else best.maps
            return f"Where the search changed the class, {apart}{whose} {stayed} on {best.text} samples{rest}."
        return (
            f"Where the search changed the class, {worst.maps} {stayed} on {worst.text} samples"
            f"{_list_counts(ranked[::-1], chance)}{rest}."
        )

    def leader(self, view: MetricResults) -> tuple[RankedGroup | None, str]:
        """By the counts of the verdict; by the median where these do not differ."""
        ranked = view.rank(_measure_misinterpreted, "lower") if view.spec.direction else []
        return (ranked[0], "count") if len(ranked) > 1 else super().leader(view)

    def reservations(self, view: MetricResults) -> list[str]:
        """How often the class was changed, where this differs between explainers."""
        found = []
        if view.options.get("event") == "changed_class":
            counts = {name: count_samples(view.evaluated(name), "found") for name in view.candidates}
            if len({count for count, _ in counts.values()}) > 1:
                fewest = min(counts, key=lambda name: counts[name][0])
                found.append(
                    f"The search changed the class on different numbers of samples, for {fewest} on "
                    f"{counts[fewest][0]} of {counts[fewest][1]}."
                )
        return found

    def comparability_warning(self, view: MetricResults) -> str:
        """Which explainers met a weaker search."""
        without = _searched_without_gradients(view)
        return f"{join_names(without)} met a weaker search (without gradients), which flatters." if without else ""

    def terms(self, options: Mapping[str, Any]) -> dict[str, str]:
        """The margin, and when a sample counts as misinterpreted."""
        return SHORT

    example_order: ClassVar[int] = 0

    def example(self, view: MetricResults) -> GalleryRow | None:
        """The least similar map of an input that kept its class; for the other events nothing."""
        if view.options.get("event") != "changed_explanation":
            return None
        same = 1.0 if larger_is_closer(view.options) else 0.0
        lead = f"{view.control_note}, this map changed most" if view.control_note else "This map changed most"
        return draw_example(view, name_similarity(view.options), lead, same)

    def figures(self, view: MetricResults) -> list[Chart | Gallery]:
        """The distribution, the search's convergence, and the pictures."""
        limit, note = _describe_limit(view.options)
        found: list[Chart | Gallery] = draw_distribution(view, limit, note)
        convergence = _convergence(view)
        found += [] if convergence is None else [convergence]
        gallery = _gallery(view)
        return [*found, gallery] if gallery.rows else found

    def figures_over_option(self, views: Sequence[MetricResults], option: str) -> list[Chart | Gallery]:
        """For views that differ in the similarity or the neighbourhood: for each explainer, a row for each of them.

        Over similarities this is Figure 6 of SAFARI.
        """
        if (option := option.partition(".")[0]) not in ("similarity", "neighbourhood"):
            return []
        meaning = {
            "similarity": "A small number means dissimilar maps for some and similar maps for others, so compare the "
            "maps. ",
            "neighbourhood": "",
        }[option]
        explainers = [name for name in views[0].explainers if sum(name in view.present for view in views) > 1]
        galleries: list[Chart | Gallery] = []
        for explainer in explainers:
            rows = []
            for sample in views[0].samples(COMPARED_SAMPLES):
                for view in views:
                    shown = view.load_sample(explainer, sample, _PICTURES, ALIGNED)
                    if shown is not None:
                        setting = _name_setting(view, option)
                        rows.append(dataclasses.replace(_row(view, explainer, sample, *shown), setting=setting))
            title = f"{explainer}: worst cases by {option}"
            text = f"Each row is the worst input by another {option}, for the same input and explainer. {meaning}"
            text += f"{describe_maps(views[0], count_axes(rows))} {_explain(rows)}".rstrip()
            galleries += [Gallery(title, tuple(rows), text, folded=bool(galleries))] if rows else []
        return galleries


def _name_setting(view: MetricResults, option: str) -> str:
    """The similarity or the neighbourhood of a view in a few words."""
    place = read_stored(view.options.get(option)) if option == "neighbourhood" else None
    return (
        view.label
        if option == "neighbourhood" and place is None
        else str(view.options.get(option) if place is None else label_neighbourhood(place))
    )


def _is_auto(options: Mapping[str, Any]) -> bool:
    search = options.get("search")
    return (search.get("name") if isinstance(search, Mapping) else search) == "auto"


def _searched_without_gradients(view: MetricResults) -> list[str]:
    """The explainers that the search `auto` met without gradients, where it met others with them; no controls."""
    if not _is_auto(view.options) or "followed_gradients" not in view.frame.columns:
        return []
    followed = {name: bool(read_flags(view.rows_for(name), "followed_gradients").any()) for name in view.candidates}
    without = [name for name, gradients in followed.items() if not gradients]
    return without if len(without) < len(followed) else []


def _measure_misinterpreted(rows: pl.DataFrame) -> tuple[float, str] | None:
    """The share of misinterpreted samples among those that count, as a number and in words.

    A sample counts if the search found an input with the class that the event asks for.
    """
    counted = rows.filter(read_flags(rows, "found")) if "found" in rows.columns else rows
    count, total = count_samples(counted, "misinterpreted")
    return (count / total, f"{count} of {total}") if total else None


def _list_counts(standings: Sequence[RankedGroup], chance: str) -> str:
    """The counts of all but the first, who was named before; of many explainers only those of the last.

    >>> some = [RankedGroup((name,), at / 9, f"{at} of 9") for name, at in (("a", 9), ("b", 5), ("c", 0))]
    >>> _list_counts(some, ""), _list_counts(some[:2], "4 of 5")
    (', that of b on 5, and that of c on none', ', and that of b on 5; the random reference on 4 of 5')
    """
    totals = {each.text.partition(" of ")[2] for each in standings}
    total = totals.pop() if len(totals) == 1 else ""  # where explainers have different samples, each total is said
    listed = standings[1:] if sum(len(each.names) for each in standings) <= _LISTED else standings[-1:]
    parts = []
    for each in listed:
        count, _, own = each.text.partition(" of ")
        who = join_names(each.names, _LISTED)
        size = ("none" if each.value == 0 else count) if own == total else each.text
        parts.append(f"{each.choose('that', 'those')} of {who} on {size}")
    text = f", {', '.join(parts[:-1])}, and {parts[-1]}" if len(parts) > 1 else f", and {parts[0]}"
    count, _, own = chance.partition(" of ")
    return text + (f"; the random reference on {count if own == total else chance}" if chance else "")


def _describe_limit(options: Mapping[str, Any]) -> tuple[float | None, str]:
    """Where the distribution has a dotted line, what it means, and what the values do not prove."""
    event, limit = options.get("event"), find_threshold(options)
    if event == "misclassification":
        return 0.0, "Dotted: from 0 on the class has changed. This describes the model, not the explainers."
    proof = "These are the worst inputs that a search found. Worse ones may exist, so this is no proof of robustness."
    if limit is None:
        return None, proof
    below = (event == "changed_explanation") == larger_is_closer(options)
    means = "changed" if event == "changed_explanation" else "the same"
    where = "below" if below else "above"
    return limit, f"Dotted: {format_number(limit, None)}. A map {where} it counts as {means}. {proof}"


def _convergence(view: MetricResults) -> Chart | None:
    """The best so far against evaluations: median over samples and quartiles (SAFARI, Fig. 2)."""
    lines, cut = [], False
    for name in view.present:
        grid, samples = _on_one_grid(view, name)
        cut |= len(samples) == TRACED
        seen = np.isfinite(samples).any(axis=0) if samples.size else np.zeros(0, dtype=bool)
        if seen.any():
            low, middle, high = np.nanquantile(samples[:, seen], [0.25, 0.5, 0.75], axis=0)
            lines.append(Line(name, grid[seen], middle, low, high))
    caption = (
        "Line: median over samples. Band: the middle half of them. If a line still moves at its end, a larger budget "
        "would find worse inputs; a flat end does not prove that there are none."
    )
    if cut:
        caption += f" Of the first {TRACED} samples."
    if view.options.get("event") == "changed_class":
        caption += " Only samples whose class has changed by then count, so a line may also move the other way."
    if view.options.get("event") == "misclassification":
        caption += " The margin does not depend on the explainer, so the lines may coincide."
    title = f"Convergence of the search, {view.spec.title}"
    words = Words(title, caption, "convergence", "Was the budget of the search large enough?")
    worst = Axis(f"{view.spec.axis}, worst so far")
    return draw_lines(lines, view.explainers, Axis("model evaluations per sample"), worst, words)


def _on_one_grid(view: MetricResults, explainer: str) -> tuple[Array, Array]:
    """All evaluation counts of the samples' traces `(T,)`, and the traces there `(N, T)`, NaN before their first."""
    event = view.options.get("event")
    name = "trace_margin" if event == "misclassification" else "trace_similarity"
    at, values = [], []
    for _, arrays in view.lines(explainer, ("trace_evaluations", "trace_margin", name), TRACED):
        line = arrays[name].astype(float)
        if event == "changed_class":
            line[~(arrays["trace_margin"] >= 0)] = np.nan
        at.append(arrays["trace_evaluations"].astype(float))
        values.append(line)
    grid = np.unique(np.concatenate([np.empty(0), *at]))
    lines = np.full((len(at), len(grid)), np.nan)
    for row, (x, y) in enumerate(zip(at, values, strict=True)):
        last = np.searchsorted(x, grid, side="right") - 1
        lines[row, last >= 0] = y[last[last >= 0]]
    return grid, lines


def _gallery(view: MetricResults) -> Gallery:
    rows = [_row(view, *shown) for shown in view.gallery(SHOWN, _PICTURES, ALIGNED)]
    note = "Each row is an explainer, for the same input. {} {}{}Pale pictures: the search found nothing."
    signs = "Signs do not count in the similarity, so a change of colour alone is no change. "
    misclassified = view.options.get("event") == "misclassification"
    return Gallery(
        "Pictures (they show a weakness of the model, not of the explainers)" if misclassified else "Worst cases found",
        tuple(rows),
        note.format(describe_maps(view, count_axes(rows)), signs * bool(view.options.get("absolute")), _explain(rows)),
        folded=misclassified,
    )


def _explain(rows: Sequence[GalleryRow]) -> str:
    """How to read the pictures that not all rows have."""
    kinds = {(picture.change, picture.moved_back) for row in rows for picture in row.pictures}
    scaled = "The change is drawn as large as possible; the real change is often much fainter. "
    return scaled * any(change for change, _ in kinds) + MOVED_BACK * any(back for _, back in kinds)


def _row(view: MetricResults, explainer: str, sample: int, row: dict[str, Any], arrays: dict[str, Array]) -> GalleryRow:
    origin, worst = np.asarray(arrays["origins"], dtype=float), np.asarray(arrays["inputs"], dtype=float)
    difference = worst - origin
    largest = float(np.abs(difference).max()) if difference.size else 0.0
    who = f"{explainer}, sample {sample}"
    pictures: tuple[Picture, ...] = (
        Picture("input", origin, f"Input, sample {sample}"),
        Picture("its map", arrays["origin_maps"], f"Explanation of the input: {who}", signed=True),
        Picture("worst input", worst, f"Worst input found: {who}"),
        Picture("change", difference, f"Change of the input, scaled: {who}", signed=True, change=True),
        Picture("its map now", arrays["maps"], f"Explanation of the worst input: {who}", signed=True),
    )
    back = show_moved_back(arrays, who)
    if back:  # the difference of two inputs whose positions differ says little
        pictures = (*(picture for picture in pictures if not picture.change), *back)
    before, after = row.get("targets"), row.get("predicted")
    classes = f"class {before} → {after}" if before != after else f"class {before}, kept"
    if (share := row.get("class_kept")) is not None and np.isfinite(share):
        classes += f" (in {100 * share:.3g}% of the neighbourhood)" if before == after else ""
    similarity, margin = format_number(row.get("similarity"), 3), format_number(row.get("margin"))
    size = describe_parameters(row, view.options, origin.shape) or f"change up to {format_number(largest, 3)}"
    text = f"similarity {similarity}; {classes}; margin {margin}; {size}"
    if (plausible := row.get("plausibility")) is not None and np.isfinite(plausible):
        text += f"; plausibility {format_number(plausible, 2)} (the share of training rows as far from the others)"
    found = bool(row.get("found"))
    if np.ptp(arrays["maps"]) == 0:
        text += "; its map is constant now, so the correlation is 0 by definition"
    if not found:
        text += "; not found: no input met the constraint, this one is nearest to it"
    elif row.get("misinterpreted"):
        text += "; class changed" if view.options.get("event") == "misclassification" else "; misinterpreted"
    return make_row(view, explainer, sample, pictures, text, found)
