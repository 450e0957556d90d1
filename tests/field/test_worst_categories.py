"""Worst cases among categories, against the enumeration of all rows, with the default search and budget."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor, nn

import standfast
from standfast.neighbourhoods import TableChanges

COLUMNS, VALUES = 6, 3


class OneHot(nn.Module):
    """A small network on one-hot codes."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.layers = nn.Sequential(nn.Linear(COLUMNS * VALUES, 10), nn.Tanh(), nn.Linear(10, 2))

    def forward(self, rows: Tensor) -> Tensor:
        codes = (
            nn.functional.one_hot(rows.round().long().clamp(0, VALUES - 1), VALUES)
            .float()
            .flatten(1)
        )
        logits: Tensor = self.layers(codes * 1.5)
        return logits


def occlude(network: nn.Module, rows: Tensor, medians: Tensor) -> Tensor:
    """How much the probability of the class falls with the median of each column, in absolute value."""
    shares = network(rows).softmax(1)
    label = shares.argmax(1, keepdim=True)
    drops = []
    for column in range(COLUMNS):
        changed = rows.clone()
        changed[:, column] = medians[column]
        drops.append(shares.gather(1, label) - network(changed).softmax(1).gather(1, label))
    return torch.cat(drops, 1).abs()


@pytest.mark.parametrize("seed", range(8))
def test_the_worst_categories_are_found(seed: int) -> None:
    network = OneHot(seed).eval()
    generator = torch.Generator().manual_seed(seed)
    data = torch.randint(VALUES, (200, COLUMNS), generator=generator).float()
    clean = data[:1]
    rows = torch.tensor(list(itertools.product(range(VALUES), repeat=COLUMNS))).float()
    medians = data.median(0).values
    with torch.no_grad():
        logits, maps, clean_map = (
            network(rows),
            occlude(network, rows, medians),
            occlude(network, clean, medians),
        )
    label = int(network(clean).argmax())
    margins = logits[:, 1 - label] - logits[:, label]
    centred, clean_centred = maps - maps.mean(1, keepdim=True), clean_map - clean_map.mean()
    norms = centred.norm(dim=1)
    similarities = (centred * clean_centred).sum(1) / (norms * clean_centred.norm()).clamp(
        min=1e-12
    )
    counted = (margins < 0) & (norms >= 1e-9)

    model = standfast.Model(network, bounds=(0.0, VALUES - 1.0), reference=data)
    changes = TableChanges({f"x{column}": "category" for column in range(COLUMNS)}, data=data)
    margin = standfast.metrics.WorstCase(changes, event="misclassification")(
        model, "occlusion", clean
    )
    similarity = standfast.metrics.WorstCase(changes)(model, "occlusion", clean)
    assert float(margin.value[0]) == pytest.approx(float(margins.max()), abs=1e-5)
    assert float(similarity.value[0]) == pytest.approx(float(similarities[counted].min()), abs=1e-4)
    for result in (margin, similarity):
        assert result.exact is not None
        assert bool(result.exact.all())


def test_a_rare_change_of_the_class_is_found() -> None:
    """Four categories of five values and a number: one combination of 625 changes the class, for large numbers only."""

    class Vault(nn.Module):
        def forward(self, rows: Tensor) -> Tensor:
            opens = (rows[:, :4].round() == torch.tensor([3.0, 1.0, 2.0, 3.0])).double()
            score = opens.sum(1) - 3.6 + 0.1 * rows[:, 4]
            return torch.stack([-score, score], 1).float()

    generator = torch.Generator().manual_seed(0)
    data = torch.cat(
        [torch.randint(5, (300, 4), generator=generator).float(), torch.zeros(300, 1)], 1
    )
    clean = torch.tensor([[0.0, 0.0, 0.0, 0.0, 0.0]])
    model = standfast.Model(Vault().eval(), bounds=(-5.0, 5.0), reference=data)
    changes = TableChanges(
        {**{f"x{column}": "category" for column in range(4)}, "x4": 2.0}, data=data
    )
    worst = standfast.metrics.WorstCase(changes, event="misclassification", budget=500)(
        model, "occlusion", clean
    )
    assert float(worst.value[0]) == pytest.approx(2 * (4 - 3.6 + 0.2), abs=1e-3)
