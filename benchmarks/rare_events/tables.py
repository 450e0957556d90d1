"""The tables of papers/safari/estimators.md, from the runs that `estimators.py` keeps."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from cases import CASES, COMPARED, MONTE_CARLO
from scipy import stats

KINDS = {case.name: case.kind for case in CASES}
OURS, SEVERAL = COMPARED[0], 3  # with fewer runs no mean square error is compared


@dataclass(frozen=True)
class Summary:
    """All runs of one estimator on one problem, against a truth with a standard error (0: exact; NaN: none)."""

    case: str
    estimator: str
    values: np.ndarray
    claimed: np.ndarray
    bounds: np.ndarray
    evaluations: float
    failed: int
    truth: float
    truth_error: float

    @property
    def runs(self) -> int:
        """The number of runs, failed ones included."""
        return len(self.values) + self.failed

    @property
    def errors(self) -> np.ndarray:
        """Errors of ln P of the runs that did not fail."""
        return self.values - self.truth

    @property
    def sd(self) -> float:
        """Standard deviation of ln P over the runs."""
        return float(self.values.std(ddof=1)) if len(self.values) > 1 else math.nan

    @property
    def rmse(self) -> float:
        """Root mean square error without the variance of the truth itself, but at least the spread of the runs."""
        square = float((self.errors**2).mean()) - self.truth_error**2
        spread = self.values.var() if len(self.values) > 1 else 0.0
        return math.sqrt(max(square, float(spread)))

    @property
    def covered(self) -> int:
        """Runs whose interval, widened by the truth's own error, contains the truth; a failed run has no interval."""
        if not len(self.values):
            return 0
        slack = 1.96 * self.truth_error
        below = np.hypot(self.values - self.bounds[:, 0], slack)
        above = np.hypot(self.bounds[:, 1] - self.values, slack)
        return int(((self.errors <= below) & (-self.errors <= above)).sum())

    @property
    def work(self) -> float:
        """Mean square error times evaluations: what an estimate of variance 1 would cost."""
        return self.rmse**2 * self.evaluations


def summarise(results: Sequence[dict[str, Any]]) -> dict[tuple[str, str], Summary]:
    """By case and estimator, in the order of the cases; plain Monte Carlo runs become the truth of their case."""
    rows: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for record in results:
        rows.setdefault((record["case"], record["estimator"]), []).append(record)
    out = {}
    for case in CASES:
        truth, error = compute_reference(rows.get((case.name, MONTE_CARLO), []))
        for (name, estimator), found in rows.items():
            if name != case.name or estimator == MONTE_CARLO:
                continue
            good = [r for r in found if not r["failed"]]
            out[name, estimator] = Summary(
                case=name,
                estimator=estimator,
                values=np.array([r["log_probability"] for r in good]),
                claimed=np.array([r["error"] for r in good]),
                bounds=np.array([[r["low"], r["high"]] for r in good]).reshape(-1, 2),
                evaluations=float(np.mean([r["evaluations"] for r in found])),
                failed=len(found) - len(good),
                truth=found[0]["truth"] if case.kind == "exact" else truth,
                truth_error=0.0 if case.kind == "exact" else error,
            )
    return out


def compute_reference(blocks: Sequence[dict[str, Any]]) -> tuple[float, float]:
    """ln P of plain Monte Carlo's blocks together, with its standard error; NaN without a hit."""
    hits, samples = sum(b["hits"] for b in blocks), sum(b["evaluations"] for b in blocks)
    if not hits:
        return math.nan, math.nan
    return math.log(hits / samples), math.sqrt((1 - hits / samples) / hits)


def format_share(count: int, runs: int) -> str:
    """A share with its 95% Clopper-Pearson interval."""
    exact = stats.binomtest(count, runs).proportion_ci(0.95, method="exact")
    return f"{count / runs:.0%} [{exact.low * 100:.0f}, {exact.high * 100:.0f}]"


def format_number(number: float) -> str:
    """1,230 or 1e+07."""
    if math.isnan(number):
        return "-"
    return (
        f"{float(f'{number:.3g}'):,.0f}"
        if number < 1e7
        else f"{number:.1e}".replace("e+0", "e").replace("e+", "e")
    )


def format_cell(row: Summary | None) -> str:
    """Bias, its standard error, the claimed error, and how many of the intervals hold."""
    if row is None:
        return "-"
    held = f"{row.covered}/{row.runs}"
    if not len(row.values):
        return held
    spread = math.hypot(
        row.sd / len(row.values) ** 0.5 if len(row.values) > 1 else 0.0, row.truth_error
    )
    bias = f"{row.errors.mean():+.2f}" + (f" ± {spread:.2f}" if len(row.values) > 1 else "")
    claimed = math.sqrt(float((row.claimed**2).mean()))
    return f"{bias} ({claimed:.2f}), {held}"


def make_exact_table(summaries: dict[tuple[str, str], Summary]) -> str:
    """The exact problems: a row for each, and a column for each estimator."""
    lines = [f"| problem | {' | '.join(COMPARED)} |", "| --- " * (len(COMPARED) + 1) + "|"]
    found = {case for case, _ in summaries}
    for case in CASES:
        if case.kind == "exact" and case.name in found:
            cells = [format_cell(summaries.get((case.name, estimator))) for estimator in COMPARED]
            lines.append(f"| {case.name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def select_kind(
    summaries: dict[tuple[str, str], Summary], estimator: str, kind: str = "exact"
) -> list[Summary]:
    """The summaries of one estimator on all cases of one kind."""
    return [
        row for (case, name), row in summaries.items() if name == estimator and KINDS[case] == kind
    ]


def make_headline_table(summaries: dict[tuple[str, str], Summary]) -> str:
    """A row for each estimator, over the exact problems and over the digits with a reference."""
    lines = [
        "| estimator | 95% intervals that hold | bias of ln P | evaluations for the same error, in standfast's"
        " | digits: intervals that hold |",
        "| --- " * 5 + "|",
    ]
    base = {row.case: row for row in select_kind(summaries, OURS)}
    for estimator in COMPARED:
        rows = select_kind(summaries, estimator)
        if not rows:
            continue
        runs, covered = sum(row.runs for row in rows), sum(row.covered for row in rows)
        biases = [float(row.errors.mean()) for row in rows if len(row.values)]
        ratios = [
            row.work / base[row.case].work
            for row in rows
            if min(row.runs, base[row.case].runs) >= SEVERAL
        ]
        work = "1"
        if estimator != OURS:
            work = (
                f"{format_ratio(float(np.median(ratios)))} (median of {len(ratios)})"
                if ratios
                else "-"
            )
        digits = select_kind(summaries, estimator, "model")
        held = (
            f"{sum(row.covered for row in digits)}/{sum(row.runs for row in digits)}"
            if digits
            else "-"
        )
        lines.append(
            f"| {estimator} | {format_share(covered, runs)} of {runs} | {min(biases):+.2f} to {max(biases):+.2f} |"
            f" {work} | {held} |"
        )
    return "\n".join(lines)


def format_ratio(number: float) -> str:
    """Two significant digits."""
    return f"{number:.2g}" if number < 10 else format_number(float(f"{number:.2g}"))


def replace_between(text: str, name: str, block: str) -> str:
    """`text` with what stands between the markers of `name` replaced.

    >>> replace_between("<!-- a: begin -->\\nold\\n<!-- a: end -->\\nrest", "a", "new")
    '<!-- a: begin -->\\n\\nnew\\n\\n<!-- a: end -->\\nrest'
    """
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if len(pattern.findall(text)) != 1:
        raise ValueError(f"the page needs the markers {begin} and {end} once")
    return pattern.sub(lambda _: f"{begin}\n\n{block}\n\n{end}", text)


def publish(summaries: dict[tuple[str, str], Summary], page: Path | None) -> None:
    """Write the tables of the page, or print them if `page` is None."""
    kinds = {KINDS[case] for case, _ in summaries}
    blocks: dict[str, str] = {}
    if "exact" in kinds:
        blocks |= {"headline": make_headline_table(summaries), "exact": make_exact_table(summaries)}
    if page is None:
        print("\n\n".join(f"{name}:\n\n{block}" for name, block in blocks.items()))
        return
    text = page.read_text()
    for name, block in blocks.items():
        text = replace_between(text, name, block)
    page.write_text(text)
