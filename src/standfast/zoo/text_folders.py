"""Folders of transformers with a model of texts and its tokenizer, packed to bytes, so that workers need no folder."""

from __future__ import annotations

import contextlib
import io
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from standfast.errors import ArgumentError, check
from standfast.files import read_file
from standfast.texts import CausalModel, TextModel
from standfast.zoo.hub import import_package

#: the files of a folder that say what a model is; and those that can run code
_FILES = (".json", ".txt", ".model", ".safetensors", ".jinja")
_CODE = (".bin", ".py")
#: the class of transformers by how it is asked
_KINDS = {
    "sequence": "AutoModelForSequenceClassification",
    "token": "AutoModelForTokenClassification",
    "causal": "AutoModelForCausalLM",
}
#: files that have the vocabulary of a tokenizer
_TOKENIZERS = (
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "spiece.model",
    "tokenizer.model",
    "sentencepiece.bpe.model",
)


def pack_text_folder(folder: Path, trust: bool = False) -> bytes:
    """The files of a folder that make up a model and its tokenizer, as an archive; the same bytes for the same files.

    Args:
        folder: of `save_pretrained`.
        trust: also weights that are pickles (.bin) and code (.py).

    Raises:
        ArgumentError: there is no such folder, or it has no weights that are read.
    """
    expected = "a folder with config.json, weights and a tokenizer, as save_pretrained writes it"
    check((folder / "config.json").is_file(), "transformers", expected, repr(str(folder)))
    # what can run code is packed only if it is trusted
    endings = (*_FILES, *_CODE) if trust else _FILES
    files = sorted(file for file in folder.iterdir() if file.suffix in endings and file.is_file())
    has_pickle = any(file.suffix == ".bin" for file in folder.iterdir())
    has_weights = any(file.suffix in (".safetensors", ".bin") for file in files)
    expected = "weights as .safetensors"
    if has_pickle:
        expected += ", or trust: true for a pickle, which can run code"
    weights = ".bin files" if has_pickle else "none"
    check(has_weights, "transformers", expected, f"{folder.name} with {weights}")
    has_tokenizer = any(file.name in _TOKENIZERS for file in files)
    expected = f"a tokenizer ({', '.join(_TOKENIZERS[:3])}, ...)"
    check(has_tokenizer, "transformers", expected, f"{folder.name} without one")
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as packed:
        for file in files:
            # without the time of the file, so that the bytes are the same
            packed.writestr(zipfile.ZipInfo(file.name), read_file(file))
    return archive.getvalue()


def load_text_folder(
    content: bytes,
    trust: bool = False,
    labels: Sequence[str] | None = None,
    template: str = "{text}",
    **options: Any,
) -> TextModel:
    """The model of a packed folder, with its tokenizer.

    Args:
        content: of `pack_text_folder`.
        trust: run code that is in the folder.
        labels: of a language model, the words that stand for the classes; None for a classifier.
        template: the prompt of a language model.
        options: of `TextModel`; with `word` the model is one that answers for each token.

    Raises:
        MissingExtraError: transformers is missing.
        ArgumentError: the folder holds another kind of model, or what is in it cannot be loaded; an option does not
            fit.
    """
    transformers: Any = import_package("transformers")
    loader = _KINDS[_find_kind(labels, options.get("word"))]
    expected = f"what {loader} and AutoTokenizer of transformers can load"
    trusted_files = {"local_files_only": True, "trust_remote_code": trust}
    try:
        with _quiet(transformers.utils.logging), tempfile.TemporaryDirectory() as folder:
            # transformers reads folders only
            zipfile.ZipFile(io.BytesIO(content)).extractall(folder)
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **trusted_files)
            load = getattr(transformers, loader).from_pretrained
            safetensors_only = None if trust else True
            model, about = load(
                folder, output_loading_info=True, use_safetensors=safetensors_only, **trusted_files
            )
    except Exception as error:  # whatever the package, or code of the folder, raises
        reason = " ".join(str(error).split())
        raise ArgumentError(
            "transformers", expected, f"{type(error).__name__}: {reason}"
        ) from error
    names = model.config.architectures or [type(model).__name__]
    missing = sorted(map(str, [*about["missing_keys"], *about["mismatched_keys"]]))
    expected = f"weights for {type(model).__name__} (labels: for a language model, word: for one that answers by token)"
    got = f"those of {', '.join(names)}"
    if missing:
        got += f", without {missing[0]}"
    # transformers fills in missing weights at random, with a warning alone
    check(not missing and type(model).__name__ in names, "transformers", expected, got)
    model = model.eval()
    if labels is None:
        return TextModel(model, tokenizer, **options)
    return CausalModel(model, tokenizer, labels=tuple(labels), template=template, **options)


def _find_kind(labels: Sequence[str] | None, word: object) -> str:
    """How a model of texts is asked: for the next word, for a class, or for the answer at a word."""
    if labels is not None:
        return "causal"
    return "sequence" if word is None else "token"


@contextlib.contextmanager
def _quiet(logging: Any) -> Iterator[None]:
    """Inside the block, transformers shows no progress and logs errors alone: what is missing is an error here."""
    had_progress_bar = logging.is_progress_bar_enabled()
    verbosity = logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if had_progress_bar:
            logging.enable_progress_bar()
