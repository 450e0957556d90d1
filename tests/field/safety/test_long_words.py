"""A word of many thousand letters, such as a picture in a review, and texts that are much longer than others."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import resource
import sys
import warnings
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import torch
from quick_processes import QuickContext
from torch import Tensor, nn

import standfast
from standfast.errors import ArgumentError
from standfast.neighbourhoods import Deletion, Typos
from standfast.neighbourhoods.text import decode_word
from standfast.question.texts import check_change
from standfast.study.file.spec import load_study
from standfast.texts import encode_texts, network, split_words

PICTURE = "x" * 30_000
STUDY = """
samples: 2
sanity: false
controls: false
data: {d: {path: t.jsonl, text: text}}
models: {bag: {function: "build:build"}}
explainers: [occlusion]
metrics: [{worst_case: {budget: 10}}]
"""
BUILD = """
import torch, standfast
from torch import nn

class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(5161, 8), nn.Linear(8, 2)
    def forward(self, ids, present):
        return self.head((self.words(ids) * present[..., None]).sum(1))

def build():
    torch.manual_seed(0)
    return standfast.TextModel(Bag(), standfast.data.word_vectors(), device="cpu")
"""


class Bag(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        # as many as `word_vectors` has
        self.words, self.head = (
            nn.Embedding(5161, 8),
            nn.Linear(8, 2),
        )

    def forward(self, ids: Tensor, present: Tensor) -> Tensor:
        return self.head((self.words(ids) * present[..., None]).sum(1))


def make_model() -> standfast.TextModel:
    torch.manual_seed(0)
    return standfast.TextModel(Bag(), standfast.data.word_vectors(), device="cpu")


def encode(*texts: str) -> Tensor:
    return encode_texts([split_words(text) for text in texts])


def measure_memory(folder: Path, answers: Connection) -> None:
    """Send how many MB more the process has after it has read the study, and what it has said."""
    os.chdir(folder)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with contextlib.redirect_stderr(io.StringIO()) as said:
        load_study("s.yaml").grid()
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    answers.send(((after - before) // 1024, said.getvalue()))


@pytest.mark.skipif(sys.platform != "linux", reason="memory is counted in kB there")
def test_a_small_file_takes_small_memory(tmp_path: Path) -> None:
    lines = [{"text": f"a nice film {PICTURE}"}, {"text": "a dull film it was"}]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "s.yaml").write_text(STUDY)
    (tmp_path / "build.py").write_text(BUILD)
    context = QuickContext()
    mine, its = context.Pipe()
    process = context.Process(measure_memory, (tmp_path, its), "measure")
    process.start()
    its.close()
    megabytes, said = mine.recv()
    process.join()
    assert megabytes < 500  # candidates of all letters would take 2,700
    assert "1 word of more than 256 letters" in said


def test_words_are_misspelt_up_to_a_length() -> None:
    letters = "".join(itertools.islice(itertools.cycle("film"), 300))
    longest, longer = encode(letters[:256]), encode(letters[:257])
    assert bool(Typos().find_movable(longest).any())
    assert not bool(Typos().find_movable(longer).any())
    assert bool(Deletion().find_movable(longer).any())  # which has one candidate for each word


def test_long_words_stay_and_others_change() -> None:
    rows = encode(f"nice {PICTURE} film")
    region = Typos(rate=0.5).around(rows)
    points = torch.full((1, 3), 0.99, dtype=torch.float64)
    changed = [
        decode_word(code).text for code in region.perturb(points, torch.tensor([0]))[0].tolist()
    ]
    assert changed[1] == PICTURE
    assert changed[0] != "nice"
    assert changed[2] != "film"


def test_long_words_are_named_in_a_warning() -> None:
    with pytest.warns(UserWarning, match="Typos leaves 1 word of more than 256 letters"):
        check_change(Typos(), encode(f"nice {PICTURE} film"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_change(Typos(), encode("a nice film"))
        check_change(Deletion(), encode(f"nice {PICTURE} film"))


def test_only_long_words_are_refused() -> None:
    with pytest.raises(ArgumentError) as error:
        check_change(Typos(), encode(f"{PICTURE} a"))
    assert error.value.argument == "neighbourhood"


@pytest.mark.parametrize("codes", [[[1.0, 2.0]], [[0.0, 0.0]]])
def test_rows_without_candidates_stay(codes: list[list[float]]) -> None:
    rows = torch.tensor(codes, dtype=torch.float64)
    points = torch.full_like(rows, 0.99)
    assert torch.equal(Typos().around(rows).perturb(points, torch.tensor([0])), rows)


def test_a_text_of_a_million_characters_is_refused() -> None:
    model = make_model()
    with pytest.raises(ArgumentError) as error:
        model.split(["a dull film", "film " * 200_001])
    assert (error.value.argument, error.value.got) == ("inputs", "1,000,005 at place 1")
    assert "1,000,000 characters" in error.value.expected


def test_rows_that_one_long_text_makes_wide_are_refused() -> None:
    words = split_words("a dull film")
    with pytest.raises(ArgumentError) as error:
        encode_texts([words * 20_000, *[words] * 2_500])  # 1.2 GB for 0.6 million letters
    assert (error.value.argument, error.value.got) == (
        "texts",
        "2,501 texts, of which one has 60,000 words",
    )
    assert encode_texts([words * 200, *[words] * 2_500]).shape == (2_501, 600)


def test_few_long_texts_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "_REMEMBERED_WORDS", 12)
    model = make_model()
    rows = encode(*["a dull film", "a great film", "a nice film", "a boring film", "a flat film"])
    reader = model._box.reader
    for row in rows:
        reader.read(row[None].numpy())
    assert len(reader._known) <= 4
    first = reader.read(rows[:1].numpy())[0]
    assert first.ids.tolist() == standfast.data.word_vectors().find_words("a dull film")[0]
