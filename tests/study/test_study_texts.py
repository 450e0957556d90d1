"""Texts in a study file: the same numbers as in Python, the five classic traps, and what is refused."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from refusals import refused
from small_texts import make_network, read_reviews, transformers, wrap_tokenizer
from text_networks import BagOfWords, PieceTokenizer, Recurrent

import standfast
from standfast.checks.base import check_requirement
from standfast.neighbourhoods import Typos
from standfast.question.texts import TextReader
from standfast.study.executors import Processes
from standfast.study.file.document import StudyError
from standfast.study.file.entries import RequirementEntry
from standfast.study.file.schema import json_schema
from standfast.study.file.spec import load_study, study_from
from standfast.texts import CausalModel, TextModel

TEXTS = [
    "a dull film",
    "a great, great story",
    "a boring film",
    "great story?",
    "a flat, dull story",
]
LABELS = ["no", "yes", "no", "yes", "no"]
EXPLAINERS = ["saliency", "occlusion", "random"]
METRICS = {"worst": "worst_case:budget=12,similarity=spearman", "faith": "aopc:preset=quick"}
OWN = """
import torch
from text_networks import BagOfWords, PieceTokenizer, Recurrent
from standfast.texts import CausalModel, TextModel

def bag():
    return TextModel(BagOfWords(), PieceTokenizer(), granularity="word")

def sentences():
    return TextModel(BagOfWords(1), PieceTokenizer(), granularity="token")

def asked():
    return CausalModel(Recurrent(), PieceTokenizer(), template="{text} ? flat", labels=("yes", "no"))

ready = TextModel(BagOfWords(), PieceTokenizer())

def texts():
    return ["a dull film", "a great story"], ["no", "yes"]

def bare(count=2):
    return ["a dull film", "a great story", "flat film"][:count]

def hole():
    return ["a dull film", ""]

def explain(predict, texts, targets):
    return [[float(len(word)) for word in text.split()] for text in texts]
"""


def write(
    folder: Path, texts: list[str] = TEXTS, labels: list[str] = LABELS, name: str = "reviews.csv"
) -> None:
    with (folder / name).open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["review", "label"])
        rows.writerows(zip(texts, labels, strict=True))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path)
    (tmp_path / "own.py").write_text(OWN)
    return tmp_path


def make_study(folder: Path, model: Any = None, more: Any = None, **entry: Any) -> Any:
    content = {
        "data": {"reviews": {"path": "reviews.csv", "text": "review", **entry}},
        "models": {"mine": {"function": "own:bag"} if model is None else model},
        "explainers": EXPLAINERS,
        "metrics": METRICS,
        "sanity": False,
        "controls": False,
        **(more or {}),
    }
    return study_from(content, folder)


def run_study(study: Any, **options: Any) -> standfast.Results:
    return standfast.run_study(study, out=study.base / "out", progress=False, **options)


def evaluate(model: Any, texts: list[str], **options: Any) -> standfast.Results:
    options = {"controls": False, "sanity": False, "progress": False, **options}
    return standfast.evaluate(model, EXPLAINERS, texts, METRICS, **options)


def same_bits(found: standfast.Results, python: standfast.Results) -> None:
    assert found.failures == python.failures == []
    columns = ["explainer", "label", "sample", "value"]
    tables = [each.samples.select(columns).sort(columns[:3]).rows() for each in (found, python)]
    assert tables[0] == tables[1]
    assert len(tables[0]) > 0


# The same as in Python


@pytest.mark.usefixtures("quick_workers")
def test_a_study_gives_the_numbers_of_python(folder: Path) -> None:
    """Also from another process. Typos in one word of ten are the default; each way of removing words has a label."""
    found = run_study(make_study(folder, label="label"), executor=Processes(1, threads=1))
    python = evaluate(TextModel(BagOfWords(), PieceTokenizer()), TEXTS)
    same_bits(found, python)
    assert set(found.metrics) == {"worst", "faith (delete)"}
    # the label in the file
    check_requirement(found, RequirementEntry(metric="faith", at_least=-9.0), None)
    assert found.manifest["about"]["removal"] == python.manifest["about"]["removal"]
    stored, own = found.manifest["data"]["reviews"], python.manifest["data"]["texts"]
    assert (stored["tokens"], stored["texts"], stored["digest"]) == (
        own["tokens"],
        True,
        own["digest"],
    )
    assert stored["classes"] == ["no", "yes"]
    assert make_study(folder).grid().metrics["worst"].neighbourhood_in_use == Typos(rate=0.1)


def test_a_language_model_from_a_function(folder: Path) -> None:
    neighbourhood = {
        "token_swaps": {
            "table": {"dull": ["flat", "boring"], "great": ["dull"], "boring": ["flat"]},
            "rate": 0.5,
        }
    }
    study = make_study(folder, {"function": "own:asked"}, {"neighbourhood": neighbourhood})
    model = CausalModel(
        Recurrent(), PieceTokenizer(), template="{text} ? flat", labels=("yes", "no")
    )
    swaps = standfast.neighbourhoods.TokenSwaps(
        table={"dull": ["flat", "boring"], "great": ["dull"], "boring": ["flat"]}, rate=0.5
    )
    found = run_study(study)
    same_bits(found, evaluate(model, TEXTS, neighbourhood=swaps))
    assert found.manifest["data"]["reviews"]["classes"] == ["yes", "no"]


def test_labels_have_the_numbers_that_the_model_has_for_them(folder: Path) -> None:
    """In the file "no" comes before "yes"; for the model it is the second one."""
    grid = make_study(folder, {"function": "own:asked"}, label="label", targets="labels").grid()
    samples = grid.data["reviews"]
    assert samples.extras["labels"].tolist() == [1, 0, 1, 0, 1]
    assert samples.targets is not None
    assert samples.targets.tolist() == [1, 0, 1, 0, 1]
    write(folder, labels=["bad", "good", "bad", "good", "bad"])
    with pytest.warns(UserWarning, match="bad, good"):
        grid = make_study(folder, {"function": "own:asked"}, label="label").grid()
    assert grid.data["reviews"].extras["labels"].tolist() == [0, 1, 0, 1, 0]


def test_the_plain_form_is_the_same_study(folder: Path) -> None:
    study = make_study(folder, label="label", more={"samples": 2})
    assert run_study(study).run.done > 0  # type: ignore[union-attr]
    assert run_study(study_from(study.plain(), folder)).run.done == 0  # type: ignore[union-attr]


def test_a_model_that_is_ready_and_an_explainer_of_the_users(folder: Path) -> None:
    more = {
        "explainers": [{"mine": {"function": "own:explain"}}],
        "data": {"few": {"function": "own:bare"}},
    }
    grid = make_study(
        folder, {"function": "own:ready"}, {**more, "neighbourhood": {"typos": 0.2}}
    ).grid()
    samples = grid.data["few"]
    model = grid.models["mine"].model(samples, "cpu")
    assert grid.explainers["mine"](model, samples.inputs).tolist() == [
        [1.0, 4.0, 4.0],
        [1.0, 5.0, 5.0],
    ]


def test_texts_from_functions_and_other_files(folder: Path) -> None:
    (folder / "reviews.jsonl").write_text(
        "".join(json.dumps({"review": t, "label": 1}) + "\n" for t in TEXTS)
    )
    pl = pytest.importorskip("polars")
    pl.read_csv(folder / "reviews.csv").write_parquet(folder / "reviews.parquet")
    rows = make_study(folder).grid().data["reviews"].inputs
    for name in ("reviews.jsonl", "reviews.parquet"):
        assert torch.equal(make_study(folder, path=name).grid().data["reviews"].inputs, rows)
    some = make_study(
        folder, more={"data": {"r": {"function": "own:texts"}}, "neighbourhood": {"typos": 0.1}}
    ).grid()
    assert some.data["r"].lengths == (3, 3)
    assert some.data["r"].extras["labels"].tolist() == [0, 1]
    samples = {"function": "own:bare", "options": {"count": 3}, "samples": 1}
    some = make_study(folder, more={"data": {"r": samples}, "neighbourhood": {"typos": 0.1}}).grid()
    assert some.data["r"].tokens == (("a", " dull", " film"),)


def test_the_first_samples_alone_are_read(folder: Path) -> None:
    write(folder, [*TEXTS[:3], "", "x"])
    samples = make_study(folder, more={"samples": 3}).grid().data["reviews"]
    assert (len(samples), samples.lengths, len(samples.tokens or ())) == (3, (3, 5, 3), 3)
    assert isinstance(samples.reader, TextReader)
    assert samples.reader.texts == tuple(TEXTS[:3])


# The five traps


@pytest.mark.parametrize("text", ["", "   "])
def test_an_empty_text_and_a_missing_cell_are_refused_with_their_row(
    folder: Path, text: str
) -> None:
    write(folder, [*TEXTS[:2], text, *TEXTS[3:]])
    refused(make_study(folder), "data.reviews.text", "row 3")
    (folder / "reviews.jsonl").write_text('{"review": "a dull film"}\n{"review": null}\n')
    refused(make_study(folder, path="reviews.jsonl"), "data.reviews.text", "row 2")


def test_words_that_look_like_missing_cells_and_numbers_are_texts(folder: Path) -> None:
    texts = ["NA null a", "none", "007 1 a"]
    write(folder, texts, ["1", "1", "0"])
    samples = make_study(folder).grid().data["reviews"]
    assert samples.tokens == (("NA", " null", " a"), ("none",), ("007", " 1", " a"))
    assert samples.extras["labels"].tolist() == [1, 1, 0]
    write(folder, texts[1:2], ["0"])
    # a word has no order
    refused(make_study(folder), "data.reviews", "a text of at least 3 words", "of at most 1")


def test_a_wrong_column_is_named_with_its_line(folder: Path) -> None:
    lines = [
        "data:",
        "  reviews:",
        "    path: reviews.csv",
        "    text: reviw",
        "models: {m: {function: 'own:bag'}}",
    ]
    (folder / "study.yaml").write_text(
        "\n".join([*lines, "explainers: [occlusion]", "metrics: [aopc]"])
    )
    with pytest.raises(StudyError, match=r"data.reviews.text \(line 4\).*did you mean 'review'"):
        load_study(folder / "study.yaml").grid()
    refused(make_study(folder, label="lable"), "data.reviews.label", "did you mean 'label'")


def test_a_file_that_is_no_utf_8_is_refused_with_its_line(folder: Path) -> None:
    (folder / "reviews.csv").write_bytes(
        "review,label\na dull film,no\nun café bon,yes\n".encode("latin-1")
    )
    refused(make_study(folder), "data.reviews.path", "line 3", "0xe9")
    (folder / "reviews.csv").write_bytes(
        b"\xef\xbb\xbf" + "review,label\nun café bon,yes\n".encode()
    )
    assert make_study(folder).grid().data["reviews"].tokens == (("un", " café", " bon"),)


# Folders of transformers


def make_bert() -> Any:
    """A network that has learned nothing, with the same weights each time."""
    return make_network("BertForSequenceClassification", "wordpiece", num_labels=2)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    transformers()
    place = tmp_path_factory.mktemp("folders")
    network = make_bert()
    network.config.id2label = {0: "BAD", 1: "GOOD"}
    network.save_pretrained(place / "bert")
    wrap_tokenizer("wordpiece").save_pretrained(place / "bert")
    return place


def read_folder(saved: Path, kind: str = "SequenceClassification", **options: Any) -> TextModel:
    package = transformers()
    model = getattr(package, f"AutoModelFor{kind}").from_pretrained(saved / "bert").eval()
    return TextModel(model, package.AutoTokenizer.from_pretrained(saved / "bert"), **options)


@pytest.mark.usefixtures("quick_workers")
def test_a_folder_gives_the_numbers_of_python(saved: Path) -> None:
    texts = sorted(read_reviews()[0], key=len)[:4]
    write(saved, texts, ["good", "bad", "good", "bad"])
    study = make_study(
        saved, {"transformers": "bert", "removal": ["mask", "delete"]}, label="label"
    )
    found = run_study(study, executor=Processes(1, threads=1))
    same_bits(found, evaluate(read_folder(saved, removal=("mask", "delete")), texts))
    assert set(found.metrics) == {"worst", "faith (mask)", "faith (delete)"}
    assert found.manifest["data"]["reviews"]["classes"] == ["BAD", "GOOD"]
    labels = study.grid().data["reviews"].extras["labels"]
    assert labels.tolist() == [1, 0, 1, 0]


def test_the_weights_and_the_tokenizer_are_parts_of_what_is_stored(saved: Path) -> None:
    write(saved, list(read_reviews()[0][:2]), ["1", "0"])
    make = {"transformers": "bert"}
    digests = [make_study(saved, make).grid().models["mine"].about]
    for name, text in (("tokenizer_config.json", " "), ("config.json", " "), ("training.log", "x")):
        with (saved / "bert" / name).open("a") as file:
            file.write(text)
        digests.append(make_study(saved, make).grid().models["mine"].about)
    shas = [each["sha256"] for each in digests]
    assert len(set(shas)) == 3
    assert shas[2] == shas[3]  # a file that the model is not made of
    other = make_study(saved, {**make, "granularity": "token"}).grid().models["mine"].about
    assert other["granularity"] == "token"


def test_long_texts_are_cut_with_a_warning_at_the_end_of_a_word(saved: Path) -> None:
    write(saved, ["a dull film " * 100, "a great film"], ["1", "0"])
    with pytest.warns(UserWarning, match="1 of 2 texts have more than 128 tokens"):
        samples = make_study(saved, {"transformers": "bert"}).grid().data["reviews"]
    expected = len(read_folder(saved)._cut(standfast.texts.split_words("a dull film " * 100)))
    assert samples.lengths == (expected, 3)
    assert expected < 128


def test_folders_that_do_not_fit_are_refused(saved: Path) -> None:
    write(saved, list(read_reviews()[0][:2]), ["1", "0"])
    place = "models.mine.transformers"
    refused(make_study(saved, {"transformers": "none"}), place, "config.json")
    refused(
        make_study(saved, {"transformers": "bert", "word": 0}),
        place,
        "BertForSequenceClassification",
    )
    refused(make_study(saved, {"transformers": "bert", "labels": ["yes", "no"]}), place)
    refused(
        make_study(saved, {"transformers": "bert", "template": "{text}!"}), "models.mine.labels"
    )
    refused(make_study(saved, "lenet5-mnist"), "models.mine", "TextModel")


def test_a_pickle_runs_only_where_it_is_trusted(saved: Path, tmp_path: Path) -> None:
    write(tmp_path, list(read_reviews()[0][:2]), ["1", "0"])
    (tmp_path / "old").mkdir()
    for file in (saved / "bert").iterdir():
        if file.suffix == ".json":
            (tmp_path / "old" / file.name).write_bytes(file.read_bytes())
    torch.save(make_bert().state_dict(), tmp_path / "old" / "pytorch_model.bin")
    refused(
        make_study(tmp_path, {"transformers": "old"}), "models.mine.transformers", "trust: true"
    )
    grid = make_study(tmp_path, {"transformers": "old", "trust": True}).grid()
    samples = grid.data["reviews"]
    model = grid.models["mine"].model(samples, "cpu")
    expected = read_folder(saved).logits(list(read_reviews()[0][:2]))
    torch.testing.assert_close(model.logits(samples.inputs), expected, rtol=0, atol=0)


# What is refused


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"path": "none.csv"}, ["data.reviews.path", ".jsonl"]),
        ({"text": "label", "label": "review"}, ["data.reviews"]),
        ({"bounds": [0, 1]}, ["data.reviews.bounds"]),
        ({"targets": "labels", "label": "label", "path": "bare.csv"}, ["data.reviews"]),
    ],
)
def test_what_does_not_fit_is_said_at_its_place(folder: Path, entry: Any, words: list[str]) -> None:
    refused(make_study(folder, **entry), *words)


def test_parts_that_do_not_fit_texts_are_refused(folder: Path) -> None:
    refused(
        make_study(folder, more={"neighbourhood": {"linf": 0.1}}),
        "metrics.worst",
        "changes of texts",
    )
    refused(make_study(folder, more={"metrics": ["local_lipschitz"]}), "metrics", "local_lipschitz")
    several = {"a": {"function": "own:bag"}, "b": {"function": "own:sentences"}}
    refused(make_study(folder, more={"models": several}), "data.reviews", "the same words")
    both = {"digits": "digits", "reviews": {"path": "reviews.csv", "text": "review"}}
    refused(make_study(folder, more={"data": both}), "data.digits", "texts alone")
    refused(make_study(folder, {"function": "own:bag", "batch_size": 4}), "models.mine.batch_size")
    refused(
        make_study(folder, more={"data": {"d": "digits"}, "neighbourhood": {"linf": 0.1}}),
        "models.mine",
        "texts",
    )
    data = {"data": {"r": {"function": "own:hole"}}, "neighbourhood": {"typos": 0.1}}
    refused(make_study(folder, more=data), "data.r.function", "place 1")


def test_the_schema_takes_texts() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    content = {
        "data": {"reviews": {"path": "reviews.csv", "text": "text", "label": "label"}},
        "models": {
            "mine": {"transformers": "bert", "removal": ["mask", "delete"], "labels": ["yes", "no"]}
        },
        "explainers": ["saliency"],
        "metrics": ["aopc"],
    }
    validator = jsonschema.Draft202012Validator(json_schema())
    validator.validate(content)
    content["models"]["mine"]["removal"] = ["masks"]  # type: ignore[index]
    assert not validator.is_valid(content)


def test_a_folder_without_a_tokenizer_is_refused(saved: Path) -> None:
    """Transformers would make a tokenizer to which every word is unknown."""
    write(saved, list(read_reviews()[0][:2]), ["1", "0"])
    shutil.copytree(
        saved / "bert", saved / "bare", ignore=shutil.ignore_patterns("tokenizer*", "vocab*")
    )
    refused(make_study(saved, {"transformers": "bare"}), "models.mine.transformers", "a tokenizer")


def test_what_evaluate_refuses_a_study_refuses_too(saved: Path) -> None:
    """One constant where words are retrieved, and a change that no text can have."""
    write(saved, list(read_reviews()[0][:2]), ["1", "0"])
    retrieved = {"transformers": "bert", "removal": "retrieve"}
    refused(
        make_study(saved, retrieved, {"explainers": ["occlusion"], "metrics": ["worst_case"]}),
        "explainers",
    )
    swaps = {"worst_case": {"neighbourhood": {"token_swaps": {"table": {"unseenword": ["flat"]}}}}}
    refused(
        make_study(saved, {"transformers": "bert"}, {"metrics": [swaps]}),
        "metrics",
        "at least one word",
    )
