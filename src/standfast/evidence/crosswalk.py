"""Which numbers of a study speak to which clause of standards, frameworks and laws, and what they do not show.

This is a map for people who write documentation. It is no legal advice, and no number here is a proof of conformity.
Clauses are named by their numbers and subjects. The texts themselves count; the drafts among them will change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from standfast.checks.decision import Decisions
from standfast.checks.formats import escape_markdown
from standfast.report.page.options import flatten_options
from standfast.results import ConfiguredMetric, Results
from standfast.results.formatting import format_estimate

#: metrics by what they measure
SAMPLED = ("max_sensitivity", "local_lipschitz")
WORST_CASES = ("worst_case", "attribution_attack", *SAMPLED)
PROBABILITIES = ("misinterpretation_probability",)
MODEL = ("data_sensitivity_consistency", "parameter_sensitivity_consistency")
FAITHFULNESS = ("aopc", "log_odds", "corruption_curve", "c_eval", "c_eval_plot")
PLAUSIBILITY = ("relevance_localisation",)

#: kinds of numbers: of worst cases by how they were found, and of others by what they measure
SEARCHED, DRAWN, PROBABILITY, FAITHFUL, PLAUSIBLE = "searched", "drawn", "probability", "faithful", "plausible"
TESTED = "tested"  # against controls
_STABLE = (SEARCHED, DRAWN, PROBABILITY)
#: names of searches and attacks that only draw at random
_RANDOM = ("random", "random_sign", "universal")


@dataclass(frozen=True)
class Clause:
    """A clause, and what our numbers have to do with it.

    Attributes:
        document, clause: where it stands.
        asks: what it asks for, in our words.
        metrics: registered names of the metrics that speak to it; empty for the record as a whole.
        shows: what their numbers contribute, in parts; each by the kinds of numbers of which it needs one.
        leaves_open: what they do not show.
    """

    document: str
    clause: str
    asks: str
    metrics: tuple[str, ...]
    shows: Mapping[tuple[str, ...], str]
    leaves_open: str


CLAUSES = (
    Clause(
        "ISO/IEC TR 24029-1:2021",
        "5 Statistical methods",
        "background on statistical measures of the robustness of neural networks",
        (*WORST_CASES, *PROBABILITIES),
        {_STABLE: "measures of how outputs, here explanations, change within stated neighbourhoods, with intervals"},
        "robustness of the predictions themselves on a task, such as accuracy under shift",
    ),
    Clause(
        "ISO/IEC 24029-2:2023",
        "5 Robustness assessment (stability, sensitivity)",
        "properties that formal methods prove over a domain",
        WORST_CASES,
        {
            (SEARCHED,): "searched worst cases: upper limits of what a proof could show, within such a domain",
            (DRAWN,): "the worst of random draws: weak upper limits of what a proof could show",
        },
        "a proof: that nothing worse was found is no guarantee",
    ),
    Clause(
        "ISO/IEC DIS 24029-3 (2025, draft)",
        "Assessment through statistical reliability engineering; targeted assessment of the response to a perturbation",
        "probabilities of undesired behaviour under perturbations, estimated with statistical methods",
        (*PROBABILITIES, "worst_case"),
        {
            (PROBABILITY,): "probability of a misinterpretation for each sample with an interval",
            (SEARCHED,): "searched worst cases in a stated neighbourhood",
            (DRAWN,): "the worst of random draws in a stated neighbourhood",
        },
        "that the neighbourhood and the samples stand for the operating conditions: this has to be argued by the user",
    ),
    Clause(
        "Lago et al. (US FDA), Bioengineering 13(1):111, 2026: a scorecard, no guidance of the agency",
        "Consistency",
        "how much explanations vary over similar inputs",
        (*WORST_CASES, *PROBABILITIES),
        {
            (SEARCHED,): "the largest change that a search found in a stated neighbourhood",
            (DRAWN,): "the largest change among random draws in a stated neighbourhood",
            (PROBABILITY,): "the probability of a large change in a stated neighbourhood",
        },
        "variation over images of the same patient, or between devices, unless such data were evaluated",
    ),
    Clause(
        "Lago et al. (US FDA), Bioengineering 13(1):111, 2026: a scorecard, no guidance of the agency",
        "Fidelity",
        "whether an explanation fits the mechanism of the model",
        (*FAITHFULNESS, *MODEL),
        {
            (FAITHFUL,): "whether what an explanation calls important matters to the model",
            (TESTED,): "tests against controls",
        },
        "that the features are causes in the world",
    ),
    Clause(
        "Lago et al. (US FDA), Bioengineering 13(1):111, 2026: a scorecard, no guidance of the agency",
        "Plausibility",
        "how close an explanation is to a ground truth",
        PLAUSIBILITY,
        {(PLAUSIBLE,): "the share of relevance within given regions"},
        "anything without annotated regions; usefulness for readers, which needs a study with people",
    ),
    Clause(
        "NIST AI RMF 1.0",
        "MEASURE 2.9",
        "the model is explained, validated and documented, and its output is interpreted within its context",
        (*WORST_CASES, *PROBABILITIES, *MODEL, *FAITHFULNESS),
        {
            _STABLE: "how stable the explanations are that are used for this",
            (FAITHFUL,): "whether explanations fit the model",
        },
        "the interpretation in context, and the validity of the predictions",
    ),
    Clause(
        "EU AI Act (Regulation 2024/1689)",
        "Article 13",
        "transparency that lets deployers interpret the output and use it appropriately",
        (*WORST_CASES, *PROBABILITIES, *MODEL, *FAITHFULNESS),
        {
            _STABLE: "limits within which explanations are stable, for the instructions for use",
            (FAITHFUL,): "how faithful explanations are, for the instructions for use",
        },
        "that people understand the explanations",
    ),
    Clause(
        "EU AI Act (Regulation 2024/1689)",
        "Article 15",
        "an appropriate level of accuracy, robustness and cybersecurity",
        (*WORST_CASES, *PROBABILITIES),
        {
            (SEARCHED,): "robustness of the explanations against searched perturbations",
            (DRAWN, PROBABILITY): "robustness of the explanations against random perturbations",
        },
        "accuracy, robustness of the predictions, and cybersecurity; the Act names no threshold",
    ),
    Clause(
        "EU AI Act (Regulation 2024/1689)",
        "Annex IV, 2 (e)",
        "the technical measures that facilitate the interpretation of outputs",
        (),
        {(): "an assessment of these measures, with configuration, seeds, digests and software"},
        "the assessment of human oversight itself",
    ),
    Clause(
        "EU AI Act (Regulation 2024/1689)",
        "Annex IV, 2 (g)",
        "validation and testing procedures, data and their characteristics, metrics, and test logs",
        (),
        {(): "procedures, metrics, data digests and results that can be evaluated again from this pack"},
        "a description of the data, and the signature of a responsible person",
    ),
)


def write_crosswalk(results: Results, decisions: Decisions | None = None) -> str:
    """The page, for the metrics that these results have."""
    measured: dict[str, list[str]] = {}
    for label, known in results.metrics.items():
        measured.setdefault(known.metric, []).append(label)
    lines = [
        "# Crosswalk: which numbers speak to which clause",
        "",
        "A map for documentation: no legal advice, and no proof of conformity. The texts themselves count, and drafts"
        " change. A clause for which this study has no numbers is listed as such.",
        "",
        "| document | clause | asks for | in these results | shows | does not show |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for clause in CLAUSES:
        own = [label for metric in clause.metrics for label in measured.get(metric, ())]
        found = ", ".join(own) if clause.metrics else "the whole pack"
        kinds = {kind for label in own for kind in _list_kinds(results, label)}
        parts = [words for needed, words in clause.shows.items() if not needed or kinds & set(needed)]
        shows = "; ".join(parts) if found else "nothing in this study"
        cells = (clause.document, clause.clause, clause.asks, found or "none", shows, clause.leaves_open)
        lines.append("| " + " | ".join(map(escape_markdown, cells)) + " |")
    lines += ["", "## Limits", "", *_describe_limits(results, decisions)]
    return "\n".join(lines) + "\n"


def _list_kinds(results: Results, name: str) -> list[str]:
    """What the numbers of a configured metric are."""
    label = results.metrics[name]
    metrics = (each for each in results.summary.metrics if each.label == name)
    tested = any(row.control_test is not None for each in metrics for row in each.rows)
    return [_find_kind(label), *([TESTED] if tested else [])]


def _find_kind(label: ConfiguredMetric) -> str:
    if label.metric in WORST_CASES:
        options = flatten_options(label.options)
        drawn = label.metric in SAMPLED or {options.get("search"), options.get("attack")} & set(_RANDOM)
        return DRAWN if drawn else SEARCHED
    kinds = {**dict.fromkeys(PROBABILITIES, PROBABILITY), **dict.fromkeys(PLAUSIBILITY, PLAUSIBLE)}
    return kinds.get(label.metric, FAITHFUL)


def _describe_limits(results: Results, decisions: Decisions | None) -> list[str]:
    """The limits that the user set, and reference points in the results."""
    lines = ["None of these documents names a value that such a number has to reach, so standfast names none."]
    if decisions is None:
        lines[0] += " The user set no requirements for these results (see `standfast check`)."
    else:
        wanted = dict.fromkeys(each.requirement for each in decisions.decisions)
        lines += ["The requirements were set by the user:", "", *(f"- {escape_markdown(each)}" for each in wanted)]
    points = []
    several = len(results.models) > 1
    for row in results.summary.rows:
        if row.estimate is not None and (row.control or several):
            value = format_estimate(row.estimate, row.spec.decimals)
            kind = "control" if row.control else "model"
            where = f"{row.label}, {row.explainer}, {row.model} on {row.data}"
            points.append(f"- {kind}: {escape_markdown(where)}: median {value}")
    lines += ["", "Reference points in these results, to compare with (controls, and other models):", ""]
    return [*lines, *(points or ["- none: evaluate controls (`input_copy`, `edges`, `random`) or a second model"])]
