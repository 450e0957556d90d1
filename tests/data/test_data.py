"""Data sets: the folder of the files, the bundled digits, the class, the registry."""

import warnings
from pathlib import Path

import numpy as np
import pooch
import pytest
import torch
from refusals import assert_refused
from torch import nn

import standfast
from standfast import data
from standfast.errors import ArgumentError, UnknownNameError

# the data root


def test_the_environment_names_the_root(root):
    assert data.data_root() == root


def test_the_root_beside_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("STANDFAST_DATA", raising=False)
    (tmp_path / "shared" / "data").mkdir(parents=True)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    assert data.data_root() == tmp_path / "shared" / "data"


def test_the_root_is_else_the_cache(tmp_path, monkeypatch):
    monkeypatch.delenv("STANDFAST_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("standfast.data.root._find_repository", list)
    assert data.data_root() == Path(pooch.os_cache("standfast"))


# the bundled digits


def test_bundled_digits():
    digits = data.bundled("digits")
    assert digits.name == "digits"
    assert len(digits) == 300
    assert digits.inputs.shape == (300, 1, 28, 28)
    assert digits.inputs.dtype == torch.float32
    assert digits.labels.dtype == torch.int64
    assert digits.classes == tuple("0123456789")
    assert digits.bounds == (0.0, 1.0)
    assert digits.inputs.min() == 0
    assert digits.inputs.max() == 1
    assert digits.labels.tolist() == list(range(10)) * 30
    assert 0.1 < digits.inputs.mean() < 0.16  # MNIST: 0.13
    assert len(digits.inputs.flatten(1).unique(dim=0)) == 300
    assert torch.equal(data.load("digits").inputs, digits.inputs)


def test_bundled_digits_can_be_changed_without_changing_the_next():
    data.bundled("digits").inputs.zero_()
    assert data.bundled("digits").inputs.max() == 1


def test_bundled_digits_are_the_first_of_the_test_set():
    try:
        test = data.mnist("test")
    except data.MissingDataError as missing:
        pytest.skip(str(missing))
    assert len(test) == 10000
    digits = data.bundled("digits")
    for label in range(10):
        expected = test.inputs[test.labels == label][:30]
        assert torch.equal(digits.inputs[digits.labels == label], expected)


# the data set itself


@pytest.fixture
def small() -> data.Dataset:
    inputs = torch.linspace(0, 1, 6).reshape(6, 1, 1, 1)
    return data.Dataset("small", inputs, torch.tensor([1, 0, 1, 1, 0, 0]), ("a", "b"))


def test_slices_are_data_sets(small):
    part = small[1:4]
    assert isinstance(part, data.Dataset)
    assert (part.name, part.classes, part.bounds) == (small.name, small.classes, small.bounds)
    assert part.labels.tolist() == [0, 1, 1]
    assert torch.equal(part.inputs, small.inputs[1:4])
    assert len(small[:0]) == 0
    assert small[-2:].labels.tolist() == [0, 0]
    assert small[::-1].labels.tolist() == small.labels.tolist()[::-1]
    with pytest.raises(ArgumentError, match="index: expected a slice"):
        small[0]


def test_subsets_keep_the_order(small):
    part = small.subset(2)
    assert part.labels.tolist() == [1, 0, 1, 0]
    assert torch.equal(part.inputs, small.inputs[[0, 1, 2, 4]])
    assert small.subset(3).labels.tolist() == small.labels.tolist()
    assert small.subset(4, per_class=False).labels.tolist() == [1, 0, 1, 1]
    assert data.bundled("digits").subset(3).labels.tolist() == list(range(10)) * 3
    for n, per_class in [(0, True), (4, True), (7, False), (-1, False)]:
        with pytest.raises(ArgumentError, match="n: expected"):
            small.subset(n, per_class)


def test_taking_samples(small):
    assert torch.equal(small.take([3, 0]).inputs, small.inputs[[3, 0]])
    for index in (-1, 6):
        with pytest.raises(ArgumentError, match=r"indices: expected indices in 0 \.\. 5"):
            small.take([index])
    assert len(small.take([])) == 0
    for mask in ([True, False], [0.0, 1.0], [[0, 1]]):
        with pytest.raises(ArgumentError, match="indices: expected"):
            small.take(torch.tensor(mask))


def test_what_is_no_data_set_is_refused():
    def make(**change):
        given = {
            "inputs": torch.zeros(2, 1, 1, 1),
            "labels": torch.tensor([0, 1]),
            "classes": ("a", "b"),
        }
        return data.Dataset("wrong", **(given | change))

    pixel = torch.ones(2, 1, 1, 1)
    assert_refused(
        make, inputs=[pixel.double(), pixel.byte(), pixel.numpy(), pixel[:, 0, 0, 0], 1.5 * pixel]
    )
    assert_refused(make, inputs=[pixel * torch.nan], classes=[2, None, [0, 1], "ab"])
    assert_refused(
        make, labels=[torch.zeros(2), [0, 1], torch.tensor([0, 1]).numpy(), torch.tensor([0, 0, 0])]
    )
    assert_refused(make, labels=[torch.tensor([0, 2]), torch.tensor([-1, 0])])
    bounds = [1.0, None, (0.0, 0.5, 1.0), ("0", "1"), (torch.zeros(3), torch.ones(2)), (1.0, 0.0)]
    assert_refused(make, bounds=bounds)
    with pytest.raises(
        ArgumentError, match=r"inputs: expected values in \[0, 1\], got \[0.5, 0.5\]"
    ):
        make(
            inputs=torch.full((2, 2, 1, 1), 0.5),
            bounds=(0.0, torch.tensor([1.0, 0.4])[:, None, None]),
        )
    with pytest.raises(ArgumentError, match=r"use x.float\(\), divided by 255"):
        make(inputs=pixel.byte())


def test_names_and_bounds_of_other_types_are_plain_in_a_data_set():
    """Such as the names of scikit-learn's data sets, which are an array."""
    x, y = torch.zeros(2, 1), torch.tensor([0, 1])
    found = data.Dataset(
        "arrays", x, y, np.array(["a", "b"]), bounds=[torch.tensor(0), np.float64(1)]
    )
    assert (found.classes, found.bounds) == (("a", "b"), (0, 1.0))


def test_the_bounds_of_a_classifier_are_accepted_wherever_bounds_are(tmp_path):
    x, y = torch.rand(3, 2, 4, 4), torch.tensor([0, 1, 1])
    np.savez(tmp_path / "x.npz", inputs=x.numpy(), labels=y.numpy())
    for bounds in ((0.0, 1.0), (torch.zeros(2, 1, 1), torch.tensor([1.0, 2.0])[:, None, None])):
        net = nn.Sequential(nn.Flatten(), nn.Linear(32, 2))
        model = standfast.Model(net, bounds, device="cpu")
        made = data.Dataset("own", x, y, ("a", "b"), model.bounds)
        for found in (
            made,
            made[:2],
            data.from_file(tmp_path / "x.npz", bounds=model.bounds),
            data.from_samples(zip(x, y, strict=True), bounds=model.bounds),
        ):
            for own, given in zip(found.bounds, bounds, strict=True):
                assert torch.equal(torch.as_tensor(own), torch.as_tensor(given))
            again = standfast.Model.from_callable(lambda rows: rows[:, 0, 0, 0], found.bounds)
            assert again.logits(found.inputs).shape == (len(found), 2)
            assert repr(found).endswith(
                "bounds [0, 1])" if isinstance(bounds[0], float) else "bounds [0, 2])"
            )
        region = standfast.LinfBall(0.3).around(x, model.bounds)
        upper = torch.as_tensor(made.bounds[1]).expand(3, 2, 4, 4)
        assert torch.equal(
            region.project(torch.full_like(x, 9.0)[:, None])[:, 0], torch.minimum(x + 0.3, upper)
        )
        metric = standfast.metrics.AOPC(steps=2, samples=1)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            standfast.evaluate(
                net, "saliency", made, metric, controls=False, sanity=False, progress=False
            )  # bounds of the data


def test_names_of_swapped_axes_are_noticed():
    series = torch.zeros(5, 20, 3)
    with pytest.raises(
        ArgumentError, match=r"features: .* got 3 for .*axes are swapped.*: use x.movedim\(-1, 1\)"
    ):
        data.Dataset(
            "s", series, torch.zeros(5, dtype=torch.int64), ("a",), features=("x", "y", "z")
        )


def test_unknown_names_suggest_a_near_one():
    with pytest.raises(UnknownNameError, match="did you mean 'digits'"):
        data.bundled("digit")
    with pytest.raises(UnknownNameError, match="did you mean 'mnist:test'"):
        data.load("mnist:tests")
