"""What the tables and figures of LENS share: names of similarities, columns, rows, and judgements of sentences.

Setting: Kamath, Mittal, Deshpande and Balasubramanian, "Rethinking robustness of model attributions" (AAAI 2024), App.
C. Attacks search a ball in the maximum norm from several starts; the result is the best point that keeps the class. The
labels are the targets, so misclassified samples are skipped. Maps are compared without signs, with channels summed. For
CIFAR-10, which the paper does not use, the attack is that of GTSRB. Its figures print no numbers; some of them are in
its tables.

Verdicts come from paired differences on the same samples with 95% intervals (`papers.reading`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import polars as pl

from papers import files
from papers.base import Column
from papers.reading import Verdict, is_above, is_at_least, mean_interval, mean_ratio
from standfast.report import Results
from standfast.results.formatting import format_number
from standfast.similarity.stored import name_chance

IG = "IG"
ATTACKS = ("top-k", "mass center", "random")
ABOUT_TWICE = 1.5  # our reading of "roughly 2x"

#: titles of the data sets, radii of their attacks, and numbers of pixels that are the same share as ImageNet's 1000
TITLES = {
    "mnist": "MNIST",
    "fashionmnist": "Fashion-MNIST",
    "gtsrb": "GTSRB",
    "cifar10": "CIFAR-10",
}
RADII = {"mnist": "0.3", "fashionmnist": "0.1", "gtsrb": "8/255", "cifar10": "8/255"}
SHARES = {"mnist": 15, "fashionmnist": 15, "gtsrb": 20}

#: the similarities of Tables 4 and 7, by the paper's headings
SIX = {
    "top-k intersection": "topk_intersection:k=100",
    "1-LENS-recall@k": "lens_recall:k=100,w=1",
    "1-LENS-prec@k": "lens_precision:k=100,w=1",
    "top-k-div": "topk_intersection:k=100,w=1,diverse=true",
    "1-LENS-recall@k-div": "lens_recall:k=100,w=1,diverse=true",
    "1-LENS-prec@k-div": "lens_precision:k=100,w=1,diverse=true",
}
PLAIN = dict(list(SIX.items())[:3])
INTERSECTION, PRECISION = SIX["top-k intersection"], SIX["1-LENS-prec@k"]

#: the paper's numbers by heading, then by "data set, training, attack"
ATTACKED = files.read_numbers("lens/tables4to6.csv", keys=3)

Numbers = Mapping[str, Mapping[str, float | str]]

make_part = partial(files.make_part, "lens")


def quote_paper(numbers: Numbers, rows: Mapping[str, str]) -> Numbers:
    """The paper's numbers by heading for our rows, each given with the paper's row; rows that it lacks are left out.

    >>> quote_paper({"a": {"MNIST, natural": 0.5}}, {"natural": "MNIST, natural", "PGD": "MNIST, PGD"})
    {'a': {'natural': 0.5}}
    """
    return {
        heading: {ours: column[theirs] for ours, theirs in rows.items() if theirs in column}
        for heading, column in numbers.items()
    }


def make_columns(
    columns: Mapping[str, str], paper: Numbers, decimals: int = 3
) -> tuple[Column, ...]:
    """Columns by heading. Each has a number corrected for chance, if the results have its chance level."""
    return tuple(
        Column(
            heading, name, paper=paper.get(heading, {}), chance=name_chance(name), decimals=decimals
        )
        for heading, name in columns.items()
    )


def repeat_rows(
    axis: str, names: Mapping[str, Mapping[str, str]]
) -> Callable[[Results], pl.DataFrame]:
    """A function that repeats the rows for each value of `axis`, with the similarities that belong to the value.

    `names` maps a value to the new names of columns, and these to the names of similarities. Chance levels go with the
    similarities.
    """

    def prepare(results: Results) -> pl.DataFrame:
        frame = results.samples

        def copy_columns(columns: Mapping[str, str]) -> Iterator[pl.Expr]:
            for new, old in columns.items():
                for copy, source in ((new, old), (name_chance(new), name_chance(old))):
                    known = (
                        pl.col(source)
                        if source in frame.columns
                        else pl.lit(None, dtype=pl.Float64)
                    )
                    yield known.alias(copy)

        return pl.concat(
            frame.with_columns(pl.lit(value).alias(axis), *copy_columns(columns))
            for value, columns in names.items()
        )

    return prepare


def is_column_above(
    frame: pl.DataFrame, first: str, second: str, limit: float = 0.0
) -> bool | None:
    """Whether the mean of one column is above that of another by more than `limit`, on the same samples."""
    if any(column not in frame.columns for column in (first, second)):
        return None
    return is_above(
        mean_interval((frame[first] - frame[second]).drop_nulls().drop_nans().to_numpy()), limit
    )


def judge_factor(frame: pl.DataFrame, where: str) -> Verdict:
    """Judge the paper's "roughly 2x": 1-LENS-prec@k divided by top-k intersection."""
    factor = mean_ratio(frame, PRECISION, INTERSECTION)
    middle, low, high = (format_number(part, 2) for part in factor)
    text = f"1-LENS-prec@k is roughly 2x top-k intersection (at least {ABOUT_TWICE}x, our reading)"
    return text, f"{where}: {middle} [{low}, {high}]x", is_at_least(factor, ABOUT_TWICE)


def note_attacks(frame: pl.DataFrame, *axes: str) -> list[str]:
    """Notes on images whose class a random perturbation changed, and for which an attack found no valid point."""
    notes = []
    for column, labels, text in (
        ("label_kept", "random", "images whose class changed; they are included in the table"),
        (
            "found",
            "top-k|mass center",
            "images for which no perturbed point keeps the class (similarity 1)",
        ),
    ):
        if column in frame.columns:
            own = frame.filter(pl.col("label").str.contains(labels))
            shares = own.group_by(*axes, maintain_order=True).agg(
                1 - pl.col(column).cast(pl.Float64).mean()
            )
            lines = [
                f"{', '.join(map(str, row[:-1]))} {row[-1]:.0%}"
                for row in shares.iter_rows()
                if row[-1] > 0
            ]
            notes += [f"{text}: {'; '.join(lines)}"] if lines else []
    return notes
