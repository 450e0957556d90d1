"""Default changes of a frame: a tenth of the standard deviation among the reference rows, and of no others."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from standfast import Table
from standfast.errors import ArgumentError


def test_explained_rows_do_not_widen_the_default() -> None:
    rng = np.random.default_rng(0)
    reference = pd.DataFrame({"income": rng.normal(3000, 500, 200), "age": rng.normal(40, 10, 200)})
    for incomes in ([3000.0], [3000.0, 60000.0]):
        rows = pd.DataFrame({"income": incomes, "age": [40.0] * len(incomes)})
        changes = Table.read(reference, rows).default_changes().changes
        assert abs(changes["income"].by - reference["income"].std(ddof=0) / 10) < 1


def test_several_references_count_together() -> None:
    """As in a study with several tables, each of which has training rows."""
    parts = [pd.DataFrame({"x": [0.0, 2.0]}), pd.DataFrame({"x": [10.0, 12.0]})]
    table = Table.join(parts, [pd.DataFrame({"x": [1e6]})])
    assert len(table.rows) == 4
    assert table.columns[0].spread == pytest.approx(np.std([0.0, 2.0, 10.0, 12.0]))


def test_a_column_that_is_constant_in_the_reference_stays() -> None:
    reference = pd.DataFrame({"x": [1.0, 1.0, 1.0], "n": [2, 2, 2], "y": [1.0, 2.0, 3.0]})
    rows = pd.DataFrame({"x": [5.0], "n": [9], "y": [1.0]})
    assert set(Table.read(reference, rows).default_changes().changes) == {"y"}
    with pytest.raises(ArgumentError, match="reference"):
        Table.read(reference[["x"]], rows[["x"]]).default_changes()
