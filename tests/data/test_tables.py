"""Tables from CSV files, and the names of features and words that a data set carries to the manifest."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import standfast
from standfast.data import Dataset, from_file
from standfast.data.user_files import read_data
from standfast.errors import ArgumentError

TABLE = "age,height,class\n30,1.8,tall\n41,1.5,short\n52,1.9,tall\n"


def table(folder: Path, text: str = TABLE) -> Path:
    file = folder / "people.csv"
    file.write_text(text)
    return file


def reviews() -> Dataset:
    words = (("a", "film"), ("dull",), ("not", "bad", "really"))
    return Dataset(
        "reviews", torch.rand(3, 4, 3), torch.tensor([0, 1, 0]), ("good", "bad"), tokens=words
    )


def test_the_header_names_the_features_and_the_texts_the_classes(tmp_path: Path) -> None:
    found = from_file(table(tmp_path))
    assert (found.name, found.features, found.classes) == (
        "people",
        ("age", "height"),
        ("short", "tall"),
    )
    assert found.labels.tolist() == [1, 0, 1]
    torch.testing.assert_close(found.inputs, torch.tensor([[30, 1.8], [41, 1.5], [52, 1.9]]))
    assert found.bounds == pytest.approx((1.5, 52.0))
    other = from_file(table(tmp_path, "a,b,kind\n0,1,2\n1,0,0\n"), label="kind", bounds=(0, 1))
    assert (other.features, other.classes, other.labels.tolist()) == (
        ("a", "b"),
        ("0", "1", "2"),
        [2, 0],
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            "a,b\n1,2\n",
            "path: expected samples with labels; for a table, `label` names their column, got people.csv",
        ),
        ("a,b,y\n1,,0\n", "people.csv: 1 empty cell in the column b"),
        ("a,b,y\n1,,0\n2,,0\n", "people.csv: 2 empty cells in the column b"),
        ("a,b,y\n1,x,0\n", "the column b has String values"),
        ("a,y,label\n1,0,0\n", "one column of labels, got people.csv with y, label"),
        ("a,b,y\n1,,0\n", r"\{table: "),
        ("a,b,y\n1,x,0\n", r"\{table: "),
        ("y\n1\n", "columns of numbers"),
        ("a,y\n1,-1\n", "labels of at least 0"),
        ("", "a .csv table"),
    ],
)
def test_what_is_no_such_table_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(ArgumentError, match=complaint):
        from_file(table(tmp_path, text))


def test_a_study_file_takes_a_table_by_its_path_and_the_manifest_has_the_names(
    tmp_path: Path,
) -> None:
    table(tmp_path, "a,b,y\n0,1,1\n1,0,0\n1,1,1\n")
    (tmp_path / "own_net.py").write_text(
        "import torch\ndef make():\n    torch.manual_seed(0)\n    return torch.nn.Linear(2, 2)\n"
    )
    (tmp_path / "study.yaml").write_text(
        "data:\n  mine: {path: people.csv, targets: labels}\nmodels:\n  net: {function: 'own_net:make'}\n"
        "explainers: [random]\nmetrics: [{aopc: {steps: 1, samples: 1}}]\nsamples: 2\n"
    )
    found = standfast.run_study(tmp_path / "study.yaml", tmp_path / "out", progress=False)
    about = found.manifest["data"]["mine"]
    assert about["features"] == ["a", "b"]
    assert "tokens" not in about
    assert about["samples"] == 2
    assert read_data(tmp_path / "people.csv").labels is not None


def test_names_in_a_numpy_file(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", x=np.zeros((2, 3), np.float32), y=[0, 1], features=["a", "b", "c"])
    assert from_file(tmp_path / "t.npz").features == ("a", "b", "c")


def test_words_are_sliced_with_their_samples() -> None:
    found = reviews()
    assert found[1:].tokens == (("dull",), ("not", "bad", "really"))
    assert found[::-1].tokens == found.take([2, 1, 0]).tokens == tuple(reversed(found.tokens or ()))
    assert found.subset(1).tokens == (("a", "film"), ("dull",))
    assert found[:0].tokens == ()


def test_names_must_fit_the_inputs() -> None:
    inputs, labels = torch.zeros(2, 3), torch.tensor([0, 0])
    with pytest.raises(
        ArgumentError, match="features: expected 3 names, one for each column or channel, got 2"
    ):
        Dataset("t", inputs, labels, ("a",), features=("x", "y"))
    with pytest.raises(ArgumentError, match="features: expected 3 names.*, got 'xyz'"):
        Dataset("t", inputs, labels, ("a",), features="xyz")  # type: ignore[arg-type]
    with pytest.raises(
        ArgumentError, match=r"tokens\[1\]: expected at most 3 words, one for each position, got 4"
    ):
        Dataset("t", inputs, labels, ("a",), tokens=((), tuple("abcd")))
    with pytest.raises(
        ArgumentError, match="tokens: expected the words of 2 samples, got 1 samples"
    ):
        Dataset("t", inputs, labels, ("a",), tokens=(("a",),))


def test_the_manifest_has_the_names_and_jobs_do_not_depend_on_them() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(12, 2))
    model = standfast.Model(net, (0.0, 1.0), device="cpu")
    metric = standfast.metrics.AOPC(steps=1, samples=1)
    named = reviews()
    plain = Dataset("reviews", named.inputs, named.labels, named.classes)
    found = [
        standfast.evaluate(model, "random", data, metric, progress=False) for data in (named, plain)
    ]
    about, other = (each.manifest["data"]["reviews"] for each in found)
    assert about["tokens"] == [["a", "film"], ["dull"], ["not", "bad", "really"]]
    assert "tokens" not in other
    assert found[0].manifest["jobs"] == found[1].manifest["jobs"]


def test_a_short_text_for_a_data_set() -> None:
    assert (
        repr(reviews())
        == "Dataset('reviews', 3 x (4, 3), 2 classes: good, bad, bounds [0, 1], tokens)"
    )
