"""How often the intervals and decisions of reasons are right for a real pipeline whose truth thousands of refits show.

    python benchmarks/reasons/pipeline_coverage.py refits --cache refits --models 2000
    python benchmarks/reasons/pipeline_coverage.py coverage --cache refits --runs 400

The first command fits models on resampled rows of the generated applicants of `examples/reasons.py`, and stores the
attributions of twelve decisions: about five minutes on one core. The second draws 20, 42 or 60 of these models, with
replacement, again and again. What all stored models say is the exact truth of such a draw.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from lightgbm import LGBMRegressor
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

from standfast.results.reasons import Wanted
from standfast.statistics.clusters import clustered_intervals
from standfast.statistics.proportions import proportion_intervals
from standfast.statistics.reasons import decide_reasons
from standfast.statistics.simultaneous import simultaneous_means

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
import reasons as example

LEVEL, DEMAND, TOP = 0.95, 0.9, 4
#: explanations of each decision by each model: of the clean input, and of incomes and debts that are measured again
DRAWS_OF_MODEL = 10
DECISIONS, CUT_OFF = 12, 0.35
#: models whose explanations are stored together
MODELS_OF_PART = 250
BACKGROUND_ROWS = 100
#: runs in which intervals of means are computed
RUNS_OF_MEANS = 100


@dataclass(frozen=True)
class Pool:
    """The explanations of twelve decisions by all models.

    Attributes:
        origin: by the model that was fitted on all rows, `(D, F)`.
        maps: by the other models, `(M, D, R, F)`.
        kept: whether the decision stays, bool `(M, D, R)`.
    """

    origin: np.ndarray
    maps: np.ndarray
    kept: np.ndarray


def measure_again(customers: pd.DataFrame, generator: np.random.Generator) -> pd.DataFrame:
    """The customers, and behind them copies whose incomes and debts are known to within 2%."""
    copies = pd.concat([customers] * DRAWS_OF_MODEL, ignore_index=True)
    is_copy = np.arange(len(copies)) >= len(customers)
    for column in ("income", "debt"):
        factors = generator.uniform(0.98, 1.02, len(copies))
        copies[column] = copies[column] * np.where(is_copy, factors, 1.0)
    return copies


def arrange(values: np.ndarray, decisions: int) -> np.ndarray:
    """Rows of `measure_again`, `(R D, ...)`, by decision and draw, `(D, R, ...)`."""
    return values.reshape(-1, decisions, *values.shape[1:]).swapaxes(0, 1)


def explain_trees(model: Pipeline, rows: pd.DataFrame) -> np.ndarray:
    """Path-dependent TreeSHAP by LightGBM itself, `(n, F)`, in the order of the encoded columns."""
    encoded = model[:-1].transform(rows)
    return model[-1].booster_.predict(encoded, pred_contrib=True)[:, :-1]


@dataclass(frozen=True)
class Explained:
    """What a model that was trained again says of the decisions: maps `(D, R, F)`, and which keep them `(D, R)`."""

    maps: np.ndarray
    kept: np.ndarray


#: the map of the model that was fitted on all rows `(D, F)`, and what the one with a number says
Source = tuple[np.ndarray, Callable[[int], Explained]]


def prepare_trees() -> Source:
    """The pipeline of the example, trained again on rows that are drawn with replacement."""
    frame, labels = example.make_applicants()
    model = example.train(frame, labels)
    customers = example.find_declined(model, frame)

    def explain(number: int) -> Explained:
        again = example.train(frame, labels, number, resample=True)
        rows = measure_again(customers, np.random.default_rng([2, number]))
        # the second class is that of those who pay back, so what declines is negative
        maps = arrange(-explain_trees(again, rows), len(customers))
        return Explained(maps, arrange(again.predict_proba(rows)[:, 0] > CUT_OFF, len(customers)))

    return -explain_trees(model, customers), explain


def prepare_regressors() -> Source:
    """A regressor of the loss, which has no decision that could change."""
    frame, labels = example.make_applicants()
    noise = np.random.default_rng(3).lognormal(0, 0.3, len(frame))
    loss = np.where(labels == "default", frame["debt"], 0.0) * noise
    customers = frame.iloc[
        np.argsort(-frame["late payments"].to_numpy(), kind="stable")[:DECISIONS]
    ]

    def fit(rows: np.ndarray) -> Pipeline:
        encoder = make_column_transformer(
            (OrdinalEncoder(), ["town", "purpose"]), remainder="passthrough"
        )
        trees = LGBMRegressor(n_estimators=40, num_leaves=15, n_jobs=1, verbose=-1)
        return make_pipeline(encoder.set_output(transform="pandas"), trees).fit(
            frame.iloc[rows], loss[rows]
        )

    def explain(number: int) -> Explained:
        generator = np.random.default_rng([4, number])
        again = fit(generator.integers(0, len(frame), len(frame)))
        maps = arrange(explain_trees(again, measure_again(customers, generator)), len(customers))
        return Explained(maps, np.ones(maps.shape[:2], dtype=bool))

    return explain_trees(fit(np.arange(len(frame))), customers), explain


def prepare_linear() -> Source:
    """A logistic regression; an attribution is a coefficient times the distance from the mean, categories summed."""
    frame, labels = example.make_applicants()
    numbers = [column for column in frame if column not in ("town", "purpose")]
    log_scale = frame.assign(income=np.log(frame["income"]), debt=np.log(frame["debt"] + 10))
    defaults = labels == "default"

    def fit(rows: np.ndarray) -> Pipeline:
        encoder = make_column_transformer(
            (StandardScaler(), numbers), (OneHotEncoder(sparse_output=False), ["town", "purpose"])
        )
        return make_pipeline(encoder, LogisticRegression(C=1.0)).fit(
            log_scale.iloc[rows], defaults[rows]
        )

    def find_terms(model: Pipeline, rows: pd.DataFrame) -> np.ndarray:
        encoded = model[0].transform(rows) - model[0].transform(log_scale).mean(0)
        starts = [*range(len(numbers)), len(numbers), len(numbers) + 3]
        return np.add.reduceat(encoded * model[-1].coef_[0], starts, axis=1)

    whole = fit(np.arange(len(frame)))
    customers = log_scale[whole.predict_proba(log_scale)[:, 1] > CUT_OFF].head(DECISIONS)

    def explain(number: int) -> Explained:
        generator = np.random.default_rng([5, number])
        again = fit(generator.integers(0, len(frame), len(frame)))
        rows = measure_again(
            customers.assign(income=np.exp(customers["income"]), debt=np.exp(customers["debt"])),
            generator,
        )
        rows = rows.assign(income=np.log(rows["income"]), debt=np.log(rows["debt"]))
        maps = arrange(find_terms(again, rows), len(customers))
        return Explained(maps, arrange(again.predict_proba(rows)[:, 1] > CUT_OFF, len(customers)))

    return find_terms(whole, customers), explain


def prepare_backgrounds() -> Source:
    """One model with TreeSHAP over other rows of the background: draws that are no clusters, one of each."""
    import shap

    frame, labels = example.make_applicants()
    model = example.train(frame, labels)
    encoded = model[:-1].transform(frame)
    customers = model[:-1].transform(example.find_declined(model, frame))

    def explain_by(number: int) -> np.ndarray:
        chosen = np.random.default_rng([6, number]).choice(
            len(encoded), BACKGROUND_ROWS, replace=False
        )
        explainer = shap.TreeExplainer(
            model[-1], encoded.iloc[chosen], feature_perturbation="interventional"
        )
        return -explainer.shap_values(customers, check_additivity=False)

    def explain(number: int) -> Explained:
        maps = explain_by(number)[:, None]
        return Explained(maps, np.ones(maps.shape[:2], dtype=bool))

    return explain_by(0), explain


SOURCES = {
    "LightGBM": prepare_trees,
    "LightGBM, regressor": prepare_regressors,
    "logistic regression": prepare_linear,
    "backgrounds of 100 rows": prepare_backgrounds,
}


def store_refits(folder: Path, models: int) -> None:
    """Fit all models, and store what they explain, a part at a time: a second call goes on where one has ended."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, prepare in SOURCES.items():
        origin, explain = prepare()
        for start in range(0, models, MODELS_OF_PART):
            path = folder / f"{name} {start}.npz"
            if path.exists():
                continue
            explained = [explain(number) for number in range(start + 1, start + 1 + MODELS_OF_PART)]
            maps = np.stack([of_model.maps for of_model in explained]).astype(np.float32)
            np.savez_compressed(
                path,
                origin=origin,
                maps=maps,
                kept=np.stack([of_model.kept for of_model in explained]),
            )
            print(name, start + len(explained), flush=True)


def load_pool(folder: Path, name: str) -> Pool | None:
    """The stored explanations of a pipeline; None if there are none."""
    parts = [np.load(path) for path in sorted(folder.glob(f"{name} [0-9]*.npz"))]
    if not parts:
        return None
    maps, kept = (np.concatenate([part[array] for part in parts]) for array in ("maps", "kept"))
    return Pool(parts[0]["origin"], maps, kept)


@dataclass(frozen=True)
class Decision:
    """What all models say of one decision; models that decide otherwise are no draws of it.

    Attributes:
        hits: how many draws of a model name each of the first reasons, with its sign, `(k, M)`.
        draws: how many draws of a model keep the decision, `(M,)`, at least 1.
        maps: the maps of these models, `(M, R, F)`, NaN where the decision is another one.
    """

    hits: np.ndarray
    draws: np.ndarray
    maps: np.ndarray

    @property
    def truth(self) -> np.ndarray:
        """The probability of each reason, `(k,)`."""
        return (self.hits / self.draws).mean(1)


def list_decisions(pool: Pool, draws_of_model: int) -> Iterator[Decision]:
    """The decisions, with so many draws of each model."""
    wanted = Wanted(TOP, DEMAND)
    for number, origin in enumerate(pool.origin):
        stays = pool.kept[:, number, 0]
        maps = pool.maps[stays, number, :draws_of_model].astype(float)
        kept = pool.kept[stays, number, :draws_of_model]
        signed = wanted.sign_first(maps.reshape(-1, maps.shape[-1])).reshape(maps.shape)
        clean = wanted.sign_first(origin[None])[0]
        reasons = np.flatnonzero(clean)
        hits = ((signed[..., reasons] == clean[reasons]) & kept[..., None]).sum(1).T
        yield Decision(hits, kept.sum(1), np.where(kept[..., None], maps, np.nan))


@dataclass
class Tally:
    """How often something is right, over all decisions and runs."""

    intervals: int = 0
    held: int = 0
    worst: float = 1.0
    runs: int = 0
    wrong: int = 0
    worst_wrong: float = 0.0
    states: int = 0
    decided: int = 0

    def add(self, held: np.ndarray, wrong: np.ndarray, decided: np.ndarray) -> None:
        """Count `(k, S)` intervals and decisions of S runs of one decision."""
        self.intervals += held.size
        self.held += int(held.sum())
        self.worst = min(self.worst, float(held.mean(1).min()))
        self.runs += held.shape[1]
        self.wrong += int(wrong.any(0).sum())
        self.worst_wrong = max(self.worst_wrong, float(wrong.any(0).mean()))
        self.states += decided.size
        self.decided += int(decided.sum())

    def __str__(self) -> str:
        held = f"{self.held / self.intervals:.1%} | {self.worst:.1%}"
        wrong = f"{self.wrong / self.runs:.2%} | {self.worst_wrong:.1%}"
        return f"{held} | {self.decided / self.states:.0%} | {wrong}"


def find_ends(
    hits: np.ndarray, draws: np.ndarray, level: float, is_clustered: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The intervals of `(S, M)` counts, as a card has them."""
    if is_clustered:
        return clustered_intervals(hits, draws, level)
    return proportion_intervals(hits.sum(1), draws.sum(1), level)


def simulate(
    decision: Decision, models: int, runs: int, generator: np.random.Generator, tally: Tally
) -> None:
    """Draw so many models again and again, and count what is right."""
    chosen = generator.integers(0, len(decision.draws), (runs, models))
    is_clustered = bool((decision.draws > 1).any())
    level_of_decisions = 1 - 2 * (1 - LEVEL) / len(decision.hits)
    held, wrong, decided = [], [], []
    for hits, truth in zip(decision.hits, decision.truth, strict=True):
        low, high = find_ends(hits[chosen], decision.draws[chosen], LEVEL, is_clustered)
        held.append((low <= truth) & (truth <= high))
        low, high = find_ends(
            hits[chosen], decision.draws[chosen], level_of_decisions, is_clustered
        )
        holds, falls = low >= DEMAND, high < DEMAND
        wrong.append(falls if truth >= DEMAND else holds)
        decided.append(holds | falls)
    found = decide_reasons(
        decision.hits[:, chosen[0]], decision.draws[chosen[0]], DEMAND, LEVEL, look=None
    )
    assert [reason.state != "undecided" for reason in found] == [
        bool(states[0]) for states in decided
    ]
    tally.add(np.stack(held), np.stack(wrong), np.stack(decided))


def simulate_means(decision: Decision, models: int, generator: np.random.Generator) -> np.ndarray:
    """Of each run, whether the intervals of all means hold, and whether those that are not marked do, `(S, 2)`."""
    flat = decision.maps.reshape(-1, decision.maps.shape[-1])
    truth = np.nanmean(flat, axis=0)
    found = []
    for run in range(RUNS_OF_MEANS):
        chosen = generator.integers(0, len(decision.maps), models)
        values = decision.maps[chosen].reshape(-1, flat.shape[-1])
        numbers = np.repeat(np.arange(models), decision.maps.shape[1])
        finite = np.isfinite(values).all(1)
        means = simultaneous_means(values[finite], LEVEL, numbers[finite], seed=run, resamples=500)
        holds = (means.low <= truth) & (truth <= means.high)
        found.append([holds.all(), (holds | means.few).all()])
    return np.array(found)


def print_coverage(folder: Path, runs: int) -> None:
    """The table of all pipelines."""
    generator = np.random.default_rng(69)
    print(
        "| pipeline | models | draws of each | intervals that hold | worst | decided | wrong | worst | means |"
    )
    print("| --- |" + " ---: |" * 8)
    for name in SOURCES:
        pool = load_pool(folder, name)
        if pool is None:
            continue
        for draws_of_model in (1, 4, DRAWS_OF_MODEL)[: pool.maps.shape[2]]:
            decisions = list(list_decisions(pool, draws_of_model))
            truths = np.concatenate([decision.truth for decision in decisions])
            for models in (20, 42, 60):
                tally = Tally()
                for decision in decisions:
                    simulate(decision, models, runs, generator, tally)
                means = ""
                if draws_of_model in (1, DRAWS_OF_MODEL):
                    all_hold = np.concatenate(
                        [simulate_means(each, models, generator) for each in decisions[:4]]
                    )
                    means = f"{all_hold[:, 1].mean():.1%}"
                print(f"| {name} | {models} | {draws_of_model} | {tally} | {means} |", flush=True)
        spread = ", ".join(f"{share:.2f}" for share in np.quantile(truths, [0, 0.25, 0.5, 0.75, 1]))
        print(f"  {len(truths)} reasons; quartiles of their probabilities: {spread}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=("refits", "coverage"))
    parser.add_argument("--cache", type=Path, default=Path("refits"))
    parser.add_argument("--models", type=int, default=2000)
    parser.add_argument("--runs", type=int, default=400)
    arguments: Any = parser.parse_args()
    warnings.filterwarnings("ignore", category=UserWarning)  # of LightGBM, on names of columns
    if arguments.part == "refits":
        store_refits(arguments.cache, arguments.models)
    else:
        print_coverage(arguments.cache, arguments.runs)
