"""Searches among words, categories and steps, against the enumeration of all that can come of them.

    python benchmarks/worst_case/choices.py [--part kept_aside] [--search auto ...] [--budget 500 ...]

A problem is a row, a network and an event. All its combinations, 10 to 10,000, are evaluated first, so the optimum is
known. Then each search gets what `WorstCase` would give it of a budget. There are three families of 40 rows: texts with
other words, tables of categories, and tables with numbers of 11 values beside categories. With three events these are
360 problems. Half of the rows are for development (`--part development`). The other half was kept aside until the
search was finished (`--part kept_aside`).

The table says for each budget in how many problems a search is within 0.01 of the optimum, and by how much it misses it
in the median and at most. Of `changed_class` only problems count in which a change of the class exists.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor, nn

import standfast
from standfast.algorithms.searches.base import Outcome, searches
from standfast.metrics.safari.worst_case import WorstCase
from standfast.neighbourhoods import Region, TableChanges, TokenSwaps
from standfast.registry import build

BUDGETS = (100, 500, 5000)
#: rows of each family have so many combinations, a quarter of the rows between two neighbours
BINS = (10, 56, 316, 1778, 10_000)
ROWS_OF_A_BIN = 10
EVENTS = ("changed_explanation", "misclassification", "changed_class")
NEAR = 0.01
_SPECIALS = ("[PAD]", "[MASK]", "[UNK]")


@dataclass(frozen=True)
class Row:
    """One row, and what comes of all its combinations.

    Attributes:
        family: of its kind.
        region: its neighbourhood.
        rows: all perturbed inputs `(C, F)`, the clean one first.
        similarity, margin: of each, `(C,)`.
    """

    family: str
    region: Region
    rows: Tensor
    similarity: Tensor
    margin: Tensor


class Problem:
    """A row and an event, as an objective that looks up what is known."""

    def __init__(self, row: Row, event: str) -> None:
        self.row, self.event = row, event
        self.numbers = {tuple(values): number for number, values in enumerate(row.rows.tolist())}
        if event == "changed_explanation":
            self.value, self.violation = -row.similarity, row.margin
            self.feasible = row.margin < 0
        elif event == "changed_class":
            self.value, self.violation = row.similarity, -row.margin
            self.feasible = row.margin >= 0
        else:
            self.value, self.violation = row.margin, torch.full_like(row.margin, -torch.inf)
            self.feasible = torch.ones_like(row.margin, dtype=torch.bool)

    def __call__(self, points: Tensor, problem: Tensor) -> Outcome:
        rows = self.row.region.perturb(points, problem)
        numbers = torch.tensor([self.numbers[tuple(values)] for values in rows.tolist()])
        return Outcome(self.value[numbers], self.violation[numbers])

    @property
    def optimum(self) -> float:
        """The largest value of an input that meets the constraint; minus infinity without one."""
        return float(torch.where(self.feasible, self.value, -torch.inf).max())

    def miss(self, search: str, budget: int, seed: int) -> float:
        """How far below the optimum a search ends; infinite where it finds no input that meets the constraint."""
        result = build(searches, search).run(self, self.row.region, count_evaluations(budget), seed)
        strict = self.event == "changed_explanation"
        violation = float(result.violation[0])
        met = violation < 0 if strict else violation <= 0
        return self.optimum - float(result.value[0]) if met else math.inf


def count_evaluations(budget: int) -> int:
    """What the search has of a budget of `WorstCase`."""
    return WorstCase(standfast.LinfBall(0.1), budget=budget).plan_search()


# Networks and rows


def set_weights(module: nn.Module, generator: torch.Generator, scale: float) -> nn.Module:
    """Normal weights, of `scale / sqrt(inputs)` for matrices."""
    for weights in module.parameters():
        size = scale / math.sqrt(weights.shape[-1]) if weights.ndim > 1 else 0.3
        weights.data.copy_(size * torch.randn(weights.shape, generator=generator))
    return module.eval()


class Readers(nn.Module):
    """Logits of texts: embeddings of neighbouring words, weighted by their places, through a small network."""

    def __init__(self, words: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, 6)
        self.pairs = nn.Linear(12, 8)
        self.head = nn.Linear(8, 2)

    def forward(self, ids: Tensor, present: Tensor) -> Tensor:
        seen = self.words(ids) * present[..., None]
        following = torch.cat([seen[:, 1:], torch.zeros_like(seen[:, :1])], dim=1)
        pairs = torch.tanh(self.pairs(torch.cat([seen, following], dim=2))) * present[..., None]
        logits: Tensor = self.head(pairs.sum(1))
        return logits


class Tables(nn.Module):
    """Logits of rows: one-hot codes of categories and scaled numbers, through a small network."""

    def __init__(self, counts: list[int], numbers: int, classes: int) -> None:
        super().__init__()
        self.counts = counts
        self.layers = nn.Sequential(
            nn.Linear(sum(counts) + numbers, 12), nn.Tanh(), nn.Linear(12, classes)
        )

    def forward(self, rows: Tensor) -> Tensor:
        codes = [
            nn.functional.one_hot(rows[:, column].round().long().clamp(0, count - 1), count).to(
                rows.dtype
            )
            for column, count in enumerate(self.counts)
        ]
        numbers = rows[:, len(self.counts) :] / 3
        logits: Tensor = self.layers(torch.cat([*codes, numbers], dim=1))
        return logits


def compare(maps: Tensor) -> Tensor:
    """The correlation of absolute maps `(C, F)` with the first one; 0 for a constant map."""
    sizes = maps.double().abs()
    centred = sizes - sizes.mean(1, keepdim=True)
    norms = centred.norm(dim=1)
    cosines = (centred * centred[:1]).sum(1) / (norms * norms[0]).clamp(min=1e-300)
    return torch.where(norms > 1e-12 * sizes.amax(1).clamp(min=1e-300), cosines, 0.0)


def evaluate_all(model: standfast.Model, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Similarities to the first row and margins of all rows, `(C,)` each."""
    logits = model.logits(rows).double()
    predicted = logits.argmax(1)
    others = logits.clone()
    others[:, predicted[0]] = -torch.inf
    margin = others.amax(1) - logits[:, predicted[0]]
    explainer = standfast.explainers.get("occlusion")
    maps = torch.cat(
        [
            explainer(model, part, targets)
            for part, targets in zip(rows.split(512), predicted.split(512), strict=True)
        ]
    )
    return compare(maps.flatten(1)), margin


class NotWantedError(Exception):
    """A row of another number of combinations is looked for."""


#: whether a row of so many combinations is looked for
Wanted = Callable[[int], bool]


def make_text(seed: int, wanted: Wanted) -> Row:
    """A text of 5 to 11 words, some of which have up to four others, for a network of pairs of words."""
    generator, chance = torch.Generator().manual_seed(seed), np.random.default_rng(seed)
    vocabulary = [f"w{number}" for number in range(40)]
    tokenizer = Tokenizer(
        models.WordLevel(
            {word: number for number, word in enumerate([*_SPECIALS, *vocabulary])}, "[UNK]"
        )
    )
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(list(_SPECIALS))
    tokenizer.enable_padding(pad_id=0, pad_token=_SPECIALS[0])
    network = set_weights(Readers(len(vocabulary) + len(_SPECIALS)), generator, 2.0)
    model = standfast.TextModel(network, tokenizer, removal="mask")
    table = {
        word: [
            str(other)
            for other in chance.choice(vocabulary, chance.integers(1, 5), replace=False)
            if other != word
        ]
        for word in chance.choice(vocabulary, 25, replace=False)
    }
    table = {word: others for word, others in table.items() if others}
    text = [str(word) for word in chance.choice(vocabulary, chance.integers(5, 12))]
    options = [[word, *table.get(word, [])] for word in text]
    if not wanted(math.prod(map(len, options))):
        raise NotWantedError
    texts = [" ".join(words) for words in itertools.product(*options)]
    rows = model.encode(texts)
    ready = model.make_model(rows)
    region = TokenSwaps(table=table, rate=0.3).around(rows[:1], ready.bounds)
    return Row("texts", region, rows, *evaluate_all(ready, rows))


def make_table(seed: int, wanted: Wanted, most_numbers: int) -> Row:
    """A row of up to seven categories and up to `most_numbers` whole numbers, for a small network."""
    generator, chance = torch.Generator().manual_seed(seed), np.random.default_rng(seed)
    counts = [
        int(count) for count in chance.integers(2, 7, chance.integers(1 if most_numbers else 3, 8))
    ]
    numbers = int(chance.integers(1, most_numbers + 1)) if most_numbers else 0
    classes = int(chance.integers(2, 4))
    model_of = set_weights(Tables(counts, numbers, classes), generator, 3.0)
    shares = [chance.dirichlet(np.ones(count)) for count in counts]
    data = [chance.choice(len(share), 300, p=share) for share in shares]
    data += [np.round(chance.normal(0, 4, 300)) for _ in range(numbers)]
    table = torch.from_numpy(np.stack(data, axis=1)).float()
    changes = {f"x{column}": "category" for column in range(len(counts))}
    changes |= {f"x{len(counts) + number}": {"by": 5, "step": 1} for number in range(numbers)}
    values = [sorted(set(column)) for column in table[:, : len(counts)].T.tolist()]
    clean = table[int(chance.integers(300))]
    values += [[float(number) + step for step in range(-5, 6)] for number in clean[len(counts) :]]
    if not wanted(math.prod(map(len, values))):
        raise NotWantedError
    rows = torch.tensor([clean.tolist(), *map(list, itertools.product(*values))])
    model = standfast.Model(model_of, bounds=(-50.0, 50.0), reference=table)
    region = TableChanges(changes, data=table).around(clean[None], model.bounds)
    family = "numbers" if most_numbers else "categories"
    return Row(family, region, rows, *evaluate_all(model, rows))


FAMILIES: dict[str, Callable[[int, Wanted], Row]] = {
    "texts": make_text,
    "categories": lambda seed, wanted: make_table(seed, wanted, 0),
    "numbers": lambda seed, wanted: make_table(seed, wanted, 3),
}


def make_rows(part: str) -> Iterator[Row]:
    """The rows of a part: of each family and bin every second one."""
    for family, make in FAMILIES.items():
        for low, high in itertools.pairwise(BINS):
            met = 0

            def is_wanted(combinations: int, low: int = low, high: int = high) -> bool:
                """Every second row of the bin; the others are those of the other part."""
                nonlocal met
                met += low <= combinations < high
                return low <= combinations < high and (met % 2 == 0) == (part == "kept_aside")

            seeds = itertools.count()
            while met < ROWS_OF_A_BIN:
                with contextlib.suppress(NotWantedError):
                    row = make(next(seeds), is_wanted)
                    print(f"{family}: {len(row.rows)} combinations", file=sys.stderr, flush=True)
                    yield row


def main() -> None:
    """Print a table for each budget."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", choices=["development", "kept_aside"], default="kept_aside")
    parser.add_argument("--search", action="append", help="default: auto random genetic")
    parser.add_argument("--budget", action="append", type=int, help=f"default: {BUDGETS}")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)

    problems = [Problem(row, event) for row in make_rows(options.part) for event in EVENTS]
    problems = [problem for problem in problems if problem.optimum > -torch.inf]
    print(f"{len(problems)} problems, {options.part}", flush=True)
    for budget in options.budget or BUDGETS:
        evaluations = count_evaluations(budget)
        few = np.array([len(problem.row.rows) <= evaluations for problem in problems])
        print(
            f"budget {budget:5}: {few.mean():.1%} of the problems have at most {evaluations} combinations"
        )
        for search in options.search or ["auto", "random", "genetic"]:
            misses = np.array([problem.miss(search, budget, options.seed) for problem in problems])
            for family in ("all", *FAMILIES):
                chosen = np.array([family in ("all", problem.row.family) for problem in problems])
                near = misses[chosen] <= NEAR
                print(
                    f"budget {budget:5} {search:10} {family:10}: within {NEAR} {near.mean():6.1%} of {len(near)},"
                    f" median {np.median(misses[chosen]):.4f}, 90% {np.quantile(misses[chosen], 0.9):.4f},"
                    f" largest {misses[chosen].max():.3f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
