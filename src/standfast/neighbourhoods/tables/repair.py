"""Changes of rows that would break a rule are taken back in part: as much of them is kept as the rules allow."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from standfast.neighbourhoods.tables.row_changes import RowChanges

#: tried in turn, as factors of the largest share that keeps the rules: the first ones leave room for rounding, the
#: others for steps
_FACTORS = (1 - 1e-6, 1 - 1e-5, 1 - 1e-4, 1 - 1e-3, 0.75, 0.5, 0.25, 0.125, 0.0)


def settle(rows: RowChanges, change: Tensor, chosen: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """Changes of numbers `(M, m)` and categories that keep the rules: the proposed ones, or less of them."""
    kept = rows.find_kept(rows.apply(change, chosen), change)
    broken = (~kept).nonzero()[:, 0]
    if len(broken) == 0:
        return change, chosen
    chosen_of_broken = [category_index[broken] for category_index in chosen]
    less, others = _repair(rows.select(broken), change[broken], chosen_of_broken)
    settled = []
    for category_index, other in zip(chosen, others, strict=True):
        settled.append(category_index.index_copy(0, broken, other))
    return change.index_copy(0, broken, less), settled


def _repair(rows: RowChanges, change: Tensor, chosen: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """Nearly the largest share of the changes that keeps the rules, with the new or else with the clean categories."""
    clean_categories = [category_index.clamp(min=0) for category_index in rows.clean_categories]
    kept_change = torch.zeros_like(change)
    kept_categories = clean_categories
    done = torch.zeros(len(change), dtype=torch.bool, device=change.device)
    # first with the new categories; where no share of the changes keeps the rules, with the clean ones
    ways = [chosen, clean_categories] if chosen else [chosen]
    for categories in ways:
        largest_share = _find_share(rows, change, categories)
        shares = [largest_share * factor for factor in _FACTORS]
        if categories is clean_categories:
            # then all of the changes may be possible
            shares.insert(0, torch.ones_like(largest_share))
        for share in shares:
            part = rows.cut_to_steps(share[:, None] * change)
            changed = rows.apply(part, categories)
            newly_kept = rows.find_kept(changed, part) & ~done
            kept_change = torch.where(newly_kept[:, None], part, kept_change)
            kept_categories = [
                torch.where(newly_kept, new, old)
                for new, old in zip(categories, kept_categories, strict=True)
            ]
            done = done | newly_kept
            if bool(done.all()):
                return kept_change, kept_categories
    return kept_change, kept_categories


def _find_share(rows: RowChanges, change: Tensor, chosen: Sequence[Tensor]) -> Tensor:
    """The largest share of the changes of numbers that keeps all rules, without steps, `(M,)`; all are linear."""
    share = torch.ones(len(change), dtype=torch.float64, device=change.device)
    # moves of a copula are not cut to the ranges yet, as other changes are
    if rows.options.prior != "independent" and rows.columns:
        zero = torch.zeros_like(share)
        everywhere = torch.ones_like(share, dtype=torch.bool)
        low, high = rows.find_ranges()
        for column in range(len(rows.columns)):
            share = _cut(share, zero, change[:, column], high[:, column], everywhere)
            share = _cut(share, zero, -change[:, column], -low[:, column], everywhere)
    # the rows without a change of a number, and with all of it
    first = rows.in_units(rows.apply(torch.zeros_like(change), chosen))
    last = rows.in_units(rows.apply(change, chosen))
    for rule in rows.plan.rules:
        holds = ~rows.has_missing_cell(rule)
        start = rule.evaluate(first)
        end = rule.evaluate(last)
        share = _cut(share, start, end, rows.allow(rule), holds)
    for rule in rows.plan.definitions:
        computed = rule.defines
        holds = ~rows.has_missing_cell(rule)
        std = rows.std[computed]
        mean = rows.mean[computed]
        upper = rows.upper[..., computed] * std + mean
        lower = rows.lower[..., computed] * std + mean
        start = first[:, computed]
        end = last[:, computed]
        share = _cut(share, start, end, upper, holds)
        share = _cut(share, -start, -end, -lower, holds)
    return share


def _cut(share: Tensor, start: Tensor, end: Tensor, most: Tensor, holds: Tensor) -> Tensor:
    """The share `(M,)` with which a value that rises from start to end stays at most `most`, where that holds."""
    rises = (end > most) & (end > start) & holds
    rise = torch.where(rises, end - start, 1.0)
    # the clean row's own rounding must not make the share negative
    allowed = ((most - start) / rise).clamp(min=0)
    return torch.where(rises, torch.minimum(share, allowed), share)
