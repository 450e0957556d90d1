"""`standfast reasons`: a model and data from files, and the rows whose reasons are asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from standfast.cli.new_study import read_source, try_setting
from standfast.cli.setting import NamedSource, StudySetting
from standfast.cli.tables import choose_form, load_estimator
from standfast.data.user_files import read_frame
from standfast.errors import ArgumentError, StandfastError, check
from standfast.frames import Table, find_frame_function
from standfast.question.frames import FrameReader
from standfast.question.texts import TextReader
from standfast.tensors import is_image

if TYPE_CHECKING:
    from standfast.reason_cards import ReasonCards


@dataclass(frozen=True)
class ReasonArguments:
    """What `standfast.reasons` is called with.

    Attributes:
        model, inputs, reference: as it takes them.
        explainer: one that suits the model.
        retrained: models that were trained again; None where there are none.
        labels: what the model learns of each row of the reference, where models are to be trained again; else None.
        names: what the user calls the chosen inputs, such as their files; empty where they have no names.
    """

    model: Any
    inputs: Any
    reference: Any
    explainer: str
    retrained: list[Any] | None = None
    labels: list[Any] | None = None
    names: tuple[str, ...] = ()


def read_units(texts: Sequence[str]) -> dict[str, str] | None:
    """Units of columns from texts such as `"income=EUR"`; None without any.

    Raises:
        ArgumentError: a text has another form.

    >>> read_units(["income=EUR", "interest=% a year"])
    {'income': 'EUR', 'interest': '% a year'}
    """
    units: dict[str, str] = {}
    for text in texts:
        column, sign, unit = text.partition("=")
        check(
            bool(sign and column.strip() and unit.strip()),
            "--unit",
            "a column and its unit, as income=EUR",
            repr(text),
        )
        units[column.strip()] = unit.strip()
    return units or None


def read_rows(
    model: str,
    data: str,
    rows: Sequence[int],
    *,
    explainer: str | None = None,
    trust: bool = False,
    retrained: Sequence[str] = (),
    retrain: bool = False,
    **options: Any,
) -> ReasonArguments:
    """Load a model and some rows of its data.

    Args:
        model, data: as `standfast init` takes them.
        rows: their numbers, from 0; none for all rows.
        explainer: a name; None for one that suits the model.
        trust: run code in a pickled file, or of a module elsewhere.
        retrained: models that were trained again, as `model`.
        retrain: also read what the model learns of each training row, for models that are to be trained again.
        options: `weights`, `task`, `label`, `bounds` and `reference`, None where they are not given.

    Raises:
        ArgumentError: something is not there, or does not fit.
    """
    folder = Path.cwd()
    setting = load_setting(model, data, trust=trust, **options)
    count = len(setting.samples)
    for row in rows:
        check(
            0 <= row < count,
            "--row",
            f"a number from 0 to {count - 1}, as {data} has {count} rows",
            row,
        )
    chosen = list(rows) or list(range(count))
    # a default depends on the model, so it is chosen after loading
    name = _choose_explainer(setting) if explainer is None else explainer
    again = [_load_again(text, setting, folder, trust, options) for text in retrained] or None
    loaded_model, inputs, reference = take_inputs(setting, chosen)
    labels = None
    if retrain:
        check(setting.table is not None, "--retrain", "a pipeline and a table", model)
        assert setting.table is not None
        # the label is no input of the model, so the training rows are read again
        reference, labels = _read_training_rows(setting.data, setting.table, folder)
    known_names = setting.samples.sample_names
    if known_names is not None:
        names = tuple(known_names[row] for row in chosen)
    else:
        names = ()
    return ReasonArguments(loaded_model, inputs, reference, name, again, labels, names)


def load_setting(model: str, data: str, *, trust: bool = False, **options: Any) -> StudySetting:
    """Load a model and its data from files, and try them out.

    Args:
        model, data: as `standfast init` takes them.
        trust: run code in a pickled file, or of a module elsewhere.
        options: as of `read_rows`.

    Raises:
        ArgumentError: something is not there, or does not fit.
    """
    folder = Path.cwd()
    of_model = read_source(
        model, "--model", folder, trust, weights=options.get("weights"), task=options.get("task")
    )
    of_data = read_source(
        data, "--data", folder, trust, label=options.get("label"), bounds=options.get("bounds")
    )
    of_data = choose_form(of_model, of_data, folder)
    # only tables have a file of training rows
    if options.get("reference") is not None:
        is_table = "table" in of_data.options
        check(is_table, "--reference", "none but for a table of a pipeline", options["reference"])
        of_data = of_data.with_option("reference", options["reference"])
    return try_setting(of_model, of_data, folder)


def take_inputs(setting: StudySetting, rows: Sequence[int]) -> tuple[Any, Any, Any]:
    """The model, some of the inputs, and the training rows, as functions of Python take them."""
    reader = setting.samples.reader
    if isinstance(reader, FrameReader):
        table = reader.table
        function = find_frame_function(setting.tried)
        # the estimator gets frames, not rows of numbers
        assert function is not None  # as every model of data frames has one
        return (
            function.estimator,
            table.decode(setting.samples.inputs[rows]),
            table.decode(table.rows),
        )
    if isinstance(reader, TextReader):
        return load_estimator(setting.model, Path.cwd()), [reader.texts[row] for row in rows], None
    return setting.tried, setting.samples.inputs[rows], None


def _read_training_rows(data: NamedSource, table: Table, folder: Path) -> tuple[Any, list[Any]]:
    """The rows of the reference that have a label, and their labels.

    Raises:
        ArgumentError: they have none.
    """
    options = data.options
    path = options.get("reference") or options["table"]
    label = options.get("label")
    types = {
        name: how
        for name, how in (options.get("types") or {}).items()
        if name not in options.get("drop", ())
    }
    whole, _ = read_frame(folder / path, types)
    expected = (
        "training rows with the column that the model learns, which --label names, for --retrain"
    )
    check(label in whole.columns, "--reference", expected, f"{path} without it")
    # a row without a label teaches nothing
    labelled = whole[whole[label].notna()]
    rows = labelled.drop(columns=[label, *options.get("drop", ())], errors="ignore")
    return table.decode(table.encode(rows)), labelled[label].tolist()


def _load_again(
    text: str, setting: StudySetting, folder: Path, trust: bool, options: Mapping[str, Any]
) -> Any:
    """A model that was trained again, in the form in which the given one is explained."""
    source = read_source(text, "--model", folder, trust, task=options.get("task"))
    # estimators and models of texts are retrained as the user has them
    if setting.samples.reader is not None:
        return load_estimator(source, folder)
    return try_setting(source, setting.data, folder).tried


def name_rows(
    unnamed: ReasonCards, rows: Sequence[int], data: str, names: Sequence[str] = ()
) -> ReasonCards:
    """Cards with the user's number of each row, and the name of the data, as these are asked for.

    Args:
        unnamed: of the chosen rows.
        rows: their numbers in the data; none where all rows were asked for.
        data: as `standfast init` takes it.
        names: what the user calls each of them; empty where they have no names.
    """
    source = Path(data).name
    numbers = dict(enumerate(rows))
    cards = []
    for card in unnamed:
        name = card.name
        if names:
            # names are by the place among the chosen rows
            name = names[card.sample]
        number = numbers.get(card.sample, card.sample)
        cards.append(replace(card, data=source, sample=number, name=name))
    skipped = {numbers.get(sample, sample): status for sample, status in unnamed.skipped.items()}
    counter_examples: dict[int, tuple[Any, ...]] = {}
    for sample, examples in unnamed.counter_examples.items():
        row = numbers.get(sample, sample)
        counter_examples[row] = tuple(replace(example, sample=row) for example in examples)
    return replace(unnamed, cards=tuple(cards), skipped=skipped, counter_examples=counter_examples)
    return replace(unnamed, cards=tuple(cards), skipped=skipped, counter_examples=counter_examples)


def _choose_explainer(setting: StudySetting) -> str:
    """The explainer of those that suit the model which names reasons best: of images a map of regions.

    Raises:
        ArgumentError: all of them fail.
    """
    names = list(setting.explainers)
    # the last of these gives a map of regions or words, which people can name
    if is_image(setting.shape) or setting.holds_texts:
        names.reverse()
    reasons: list[str] = []
    for name in names:
        try:
            setting.explain_one(name)
        except StandfastError as error:
            reasons.append(f"{name}: {error}")
        else:
            return name
    raise ArgumentError(
        "--explainer", "the name of one, as those that are usual fail", "; ".join(reasons)
    )
