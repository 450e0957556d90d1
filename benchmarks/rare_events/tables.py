"""The tables and the headline of docs/estimators.md, from the runs that `estimators.py` keeps."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from cases import CASES, COMPARED, LONG, MONTE_CARLO, WIDTHS
from scipy import stats

KINDS = {case.name: case.kind for case in CASES}
OURS, SEVERAL = COMPARED[0], 3  # with fewer runs the mean square error is not shown
HEADER = (
    "| problem | estimator | runs | bias of ln P | sd | rmse | claimed error | covered | evaluations"
    " | rmse² x evaluations |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
)


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
    return f"{float(f'{number:.3g}'):,.0f}" if number < 1e7 else f"{number:.1e}".replace("e+0", "e").replace("e+", "e")


def format_cells(row: Summary) -> str:
    """The columns from the runs on."""
    failed = f", {row.failed} failed" if row.failed else ""
    head = f"{row.runs}{failed}"
    if not len(row.values):
        return f"{head} | - | - | - | - | {format_share(0, row.runs)} | {format_number(row.evaluations)} | - |"
    spread = math.hypot(row.sd / len(row.values) ** 0.5 if len(row.values) > 1 else 0.0, row.truth_error)
    bias = f"{row.errors.mean():+.2f}" + (f" ± {spread:.2f}" if len(row.values) > 1 else "")
    sd = "-" if math.isnan(row.sd) else f"{row.sd:.2f}"
    claimed = math.sqrt(float((row.claimed**2).mean()))
    several = len(row.values) >= SEVERAL
    return (
        f"{head} | {bias} | {sd} | {f'{row.rmse:.2f}' if several else '-'} | {claimed:.2f} |"
        f" {format_share(row.covered, row.runs)} | {format_number(row.evaluations)} |"
        f" {format_number(row.work) if several else '-'} |"
    )


def format_monte_carlo(truth: float, samples: int) -> str:
    """Plain Monte Carlo at a budget, calculated: its hits are binomial."""
    p = math.exp(truth)
    hits = np.arange(0, int(samples * p + 20 * math.sqrt(samples * p) + 30))
    mass = stats.binom.pmf(hits, samples, p)
    low = np.where(hits > 0, stats.beta.ppf(0.025, np.maximum(hits, 1), samples - hits + 1), 0.0)
    high = stats.beta.ppf(0.975, hits + 1, samples - hits)
    covered = float(mass[(low <= p) & (p <= high)].sum())
    none = math.exp(samples * math.log1p(-p))
    return (
        f"calculated | no hit in {100 * none:.4g}% | - | - | - | {covered:.0%} |"
        f" {format_number(samples)} | {format_number((1 - p) / p)} |"
    )


def make_table(summaries: dict[tuple[str, str], Summary], cases: Sequence[str], estimators: Sequence[str]) -> str:
    """Rows by case, with plain Monte Carlo at the cost of ours where the truth is exact."""
    lines = [HEADER]
    for case in cases:
        title = case
        for estimator in estimators:
            row = summaries.get((case, estimator))
            if row is None:
                continue
            lines.append(f"| {title} | {estimator} | {format_cells(row)}")
            title = ""
        first = summaries.get((case, OURS))
        if first is not None and KINDS[case] == "exact" and OURS in estimators:
            lines.append(f"| | {MONTE_CARLO} | {format_monte_carlo(first.truth, round(first.evaluations))}")
    return "\n".join(lines)


def make_exact_table(summaries: dict[tuple[str, str], Summary]) -> str:
    """The exact problems, for the estimators that are compared."""
    return make_table(summaries, [case.name for case in CASES if case.kind == "exact"], COMPARED)


def make_widths_table(summaries: dict[tuple[str, str], Summary]) -> str:
    """The walk with different widths."""
    cases = [case.name for case in CASES if (case.name, WIDTHS[0]) in summaries]
    names = {"SAFARI, M = 50": "SAFARI, M = 50, width r/30 (as published)"}
    text = make_table(summaries, cases, WIDTHS)
    for name, long in names.items():
        text = text.replace(f"| {name} |", f"| {long} |")
    return text


def make_model_table(summaries: dict[tuple[str, str], Summary], results: Sequence[dict[str, Any]]) -> str:
    """The digits with a reference by plain Monte Carlo, and the references."""
    cases = [case.name for case in CASES if case.kind == "model"]
    lines = []
    for case in cases:
        blocks = [r for r in results if r["case"] == case and r["estimator"] == MONTE_CARLO]
        truth, error = compute_reference(blocks)
        hits, samples = sum(b["hits"] for b in blocks), sum(b["evaluations"] for b in blocks)
        seconds = sum(b["seconds"] for b in blocks)
        lines.append(
            f"- {case}: {hits} hits among {samples:,} samples, ln P = {truth:.2f} ± {error:.2f} ({seconds:.0f} seconds"
            f" of one core). Mean square error x evaluations of plain Monte Carlo: {format_number(math.expm1(-truth))}."
        )
    return "\n".join(lines) + "\n\n" + make_table(summaries, cases, COMPARED)


def make_rare_table(summaries: dict[tuple[str, str], Summary]) -> str:
    """The digits without a reference, run by run."""
    lines = [
        "| event | estimator | ln P, run by run | claimed error | 95% intervals | evaluations |",
        "| --- " * 6 + "|",
    ]
    for case in (case.name for case in CASES if case.kind == "rare"):
        title = case
        for estimator in (OURS, LONG, *COMPARED[1:]):
            row = summaries.get((case, estimator))
            if row is None or not len(row.values):
                continue
            runs = ", ".join(f"{value:.1f}" for value in row.values)
            claimed = f"{math.sqrt(float((row.claimed**2).mean())):.2f}"
            bounds = ", ".join(f"{low:.1f} to {high:.1f}" for low, high in row.bounds)
            lines.append(
                f"| {title} | {estimator} | {runs} | {claimed} | {bounds} | {format_number(row.evaluations)} |"
            )
            title = ""
    return "\n".join(lines)


def select_kind(summaries: dict[tuple[str, str], Summary], estimator: str, kind: str = "exact") -> list[Summary]:
    """The summaries of one estimator on all cases of one kind."""
    return [row for (case, name), row in summaries.items() if name == estimator and KINDS[case] == kind]


def write_headline(summaries: dict[tuple[str, str], Summary]) -> str:
    """One line for each estimator, over the exact problems and over the digits with a reference."""
    lines = []
    base = {row.case: row for row in select_kind(summaries, OURS)}
    for estimator in COMPARED:
        rows = select_kind(summaries, estimator)
        if not rows:
            continue
        runs, covered = sum(row.runs for row in rows), sum(row.covered for row in rows)
        biases = [float(row.errors.mean()) for row in rows if len(row.values)]
        text = (
            f"- **{estimator}**: on {len(rows)} exact problems the 95% interval contains the true value in"
            f" {format_share(covered, runs)} of {runs} runs; bias of ln P from {min(biases):+.2f} to {max(biases):+.2f}"
        )
        ratios = [row.work / base[row.case].work for row in rows if min(row.runs, base[row.case].runs) >= SEVERAL]
        if estimator != OURS and ratios:
            text += (
                f"; for the same error it needs {format_ratio(float(np.median(ratios)))} times standfast's evaluations"
                f" (median of {len(ratios)}; {format_ratio(min(ratios))} to {format_ratio(max(ratios))})"
            )
        digits = select_kind(summaries, estimator, "model")
        if digits:
            covered, runs = sum(row.covered for row in digits), sum(row.runs for row in digits)
            text += f". Digits: {covered} of {runs} intervals contain plain Monte Carlo's value"
        lines.append(text + ".")
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


def publish(summaries: dict[tuple[str, str], Summary], results: Sequence[dict[str, Any]], page: Path | None) -> None:
    """Write the tables of the page, or print them if `page` is None."""
    kinds = {KINDS[case] for case, _ in summaries}
    blocks: dict[str, str] = {}
    if "exact" in kinds:
        blocks |= {"headline": write_headline(summaries), "exact": make_exact_table(summaries)}
    if any(estimator == WIDTHS[0] for _, estimator in summaries):
        blocks["widths"] = make_widths_table(summaries)
    if "model" in kinds:
        blocks["model"] = make_model_table(summaries, results)
    if "rare" in kinds:
        blocks["rare"] = make_rare_table(summaries)
    if page is None:
        print("\n\n".join(f"{name}:\n\n{block}" for name, block in blocks.items()))
        return
    text = page.read_text()
    for name, block in blocks.items():
        text = replace_between(text, name, block)
    page.write_text(text)
