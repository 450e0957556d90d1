"""Tables with any cells in a study file: the same numbers as in Python, the five classic traps, and what is refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from credit_frames import GRADES, fit_linear, fit_logistic, make_frame, score
from refusals import refused
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import standfast
from standfast.errors import ArgumentError
from standfast.neighbourhoods import TableChanges
from standfast.question.frames import FrameReader
from standfast.study.executors import Processes
from standfast.study.file.spec import study_from

TYPES: dict[str, Any] = {"opened": "date", "grade": GRADES}
CHANGES: dict[str, Any] = {"income": "5%", "town": "category", "grade": 1, "opened": 30}
N = 5
FILES = {"early": "credit", "late": "late"}


def read_csv(path: Path) -> pd.DataFrame:
    """As a user of pandas reads it."""
    return pd.read_csv(path, parse_dates=["opened"])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table and a pipeline that was fitted on it; not to be changed."""
    place = tmp_path_factory.mktemp("made")
    frame = make_frame(120)
    frame.assign(paid=np.where(score(frame) > 5, "yes", "no")).to_csv(
        place / "credit.csv", index=False
    )
    whole = read_csv(place / "credit.csv").drop(columns="paid")
    whole["grade"] = pd.Categorical(whole["grade"], categories=GRADES, ordered=True)
    joblib.dump(fit_logistic(whole), place / "pipeline.joblib")
    return place


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A copy of them for each test."""
    for name in ("credit.csv", "pipeline.joblib"):
        shutil.copy(made / name, tmp_path)
    return tmp_path


def make_study(folder: Path, model: Any = None, more: Any = None, **entry: Any) -> Any:
    table = {"table": "credit.csv", "label": "paid", "types": TYPES, **entry}
    content = {
        "samples": N,
        "data": {"credit": table},
        "models": {
            "pipeline": {"path": "pipeline.joblib", "trust": True} if model is None else model
        },
        "neighbourhood": {"table": {"changes": CHANGES}},
        "explainers": ["kernel_shap:samples=40", "random"],
        "metrics": {"worst": {"worst_case": {"budget": 20, "similarity": "spearman"}}},
        "sanity": False,
        "controls": False,
        **(more or {}),
    }
    return study_from(content, folder)


def run_study(study: Any, **options: Any) -> standfast.Results:
    return standfast.run_study(study, out=study.base / "out", progress=False, **options)


@pytest.mark.usefixtures("quick_workers")
def test_a_study_gives_the_numbers_of_python(folder: Path) -> None:
    """The same file by `pandas.read_csv` and `evaluate`; the bits are equal, and a worker builds the same model."""
    frame = read_csv(folder / "credit.csv").drop(columns="paid")
    frame["grade"] = pd.Categorical(frame["grade"], categories=GRADES, ordered=True)
    python = standfast.evaluate(
        joblib.load(folder / "pipeline.joblib"),
        ["kernel_shap:samples=40", "random"],
        frame[:N],
        {"worst": "worst_case:budget=20,similarity=spearman"},
        reference=frame,
        neighbourhood=TableChanges(CHANGES),
        controls=False,
        sanity=False,
        progress=False,
    )
    found = run_study(make_study(folder), executor=Processes(1, threads=1))
    assert found.failures == []
    for name in ("kernel_shap:samples=40", "random"):
        values = [
            each.samples.filter(explainer=own).sort("sample")["value"].to_list()
            for each, own in ((python, name), (found, name.partition(":")[0]))
        ]
        assert values[0] == values[1]
    stored = found.manifest["data"]["credit"]
    assert stored["columns"] == python.manifest["data"]["inputs"]["columns"]
    assert stored["classes"] == ["no", "yes"]


def test_the_data_and_the_pipeline_are_parts_of_what_is_stored(folder: Path) -> None:
    more = {"explainers": ["random"], "samples": 2}

    def count_done() -> int:
        done: int = run_study(make_study(folder, more=more)).run.done  # type: ignore[union-attr]
        return done

    assert count_done() > 0
    assert count_done() == 0
    whole = read_csv(folder / "credit.csv")
    text = (folder / "credit.csv").read_text()
    # the same codes for other names
    (folder / "credit.csv").write_text(text.replace("Kiel", "Köln"))
    assert count_done() > 0
    (folder / "credit.csv").write_text(text)
    frame = whole.drop(columns="paid")[20:]
    frame["grade"] = pd.Categorical(frame["grade"], categories=GRADES, ordered=True)
    joblib.dump(fit_logistic(frame), folder / "pipeline.joblib")
    assert count_done() > 0


def test_a_regressor_has_a_tenth_of_its_deviation_as_tolerance(folder: Path) -> None:
    frame = read_csv(folder / "credit.csv").drop(columns="paid")
    frame["grade"] = pd.Categorical(frame["grade"], categories=GRADES, ordered=True)
    joblib.dump(fit_linear(frame), folder / "pipeline.joblib")
    grid = make_study(folder, drop=[]).grid()
    model = grid.models["pipeline"].model(grid.data["credit"], "cpu")
    spread = np.std(fit_linear(frame).predict(frame)) / 10
    assert model.task.tolerance == pytest.approx(spread, rel=0.05)  # type: ignore[attr-defined]


def test_functions_of_the_users_get_frames(folder: Path) -> None:
    (folder / "own.py").write_text(
        "import joblib\nfrom pathlib import Path\n"
        "def load():\n    return joblib.load(Path(__file__).parent / 'pipeline.joblib')\n"
        "def explain(pipeline, frame, targets):\n"
        "    return frame.notna().to_numpy() * (frame.index.to_numpy()[:, None] + 1.0)\n"
    )
    more = {"explainers": [{"mine": {"function": "own:explain"}}]}
    study = make_study(folder, {"function": "own:load"}, more, reference="credit.csv")
    grid = study.grid()
    model = grid.models["pipeline"].model(grid.data["credit"], "cpu")
    maps = grid.explainers["mine"](model, grid.data["credit"].inputs)
    assert maps[:, 0].tolist() == [0.0, 2.0, 3.0, 4.0, 5.0]  # the first income is missing
    assert maps[1].tolist() == [2.0] * 6


def test_tables_of_a_study_share_their_codes(folder: Path) -> None:
    """Two windows of time, of which the second has other categories: codes, ranges and changes are those of both."""
    frame = pd.read_csv(folder / "credit.csv")
    frame[frame["town"] != "Bonn"].to_csv(folder / "late.csv", index=False)
    late = {"table": "late.csv", "label": "paid", "types": TYPES}
    early = {"table": "credit.csv", "label": "paid", "types": TYPES}
    grid = make_study(folder, more={"data": {"early": early, "late": late}}).grid()
    tables = [grid.data[name].reader.table for name in ("early", "late")]
    assert tables[0] is tables[1]
    assert tables[0] is not None
    towns = tables[0].decode(grid.data["late"].inputs)["town"].tolist()
    assert towns == frame[frame["town"] != "Bonn"]["town"].tolist()[:N]
    assert len(tables[0].rows) == len(frame) + (frame["town"] != "Bonn").sum()


def test_windows_of_time_are_compared(folder: Path) -> None:
    """A model for each window by the same function, and two windows of data: matrices of both."""
    (folder / "own.py").write_text(
        "import joblib\nimport pandas as pd\nfrom pathlib import Path\n"
        "here = Path(__file__).parent\n"
        "def fit(window):\n"
        "    model = joblib.load(here / 'pipeline.joblib')\n"
        "    model[-1].coef_ = model[-1].coef_[:, ::1 if window == 2023 else -1]\n"
        "    return model\n"
    )
    frame = pd.read_csv(folder / "credit.csv")
    frame[60:].to_csv(folder / "late.csv", index=False)
    tables = {
        name: {"table": f"{file}.csv", "label": "paid", "types": TYPES}
        for name, file in FILES.items()
    }
    more = {
        "data": tables,
        "explainers": ["kernel_shap:samples=64"],
        "metrics": [{"seed_agreement": {"seeds": 3}}],
        "samples": 8,
    }
    found = run_study(make_study(folder, {"function": "own:fit", "windows": [2023, 2024]}, more))
    assert found.models == ["pipeline@2023", "pipeline@2024"]
    agreement = found.agreement("early")
    # the weights have another order
    assert agreement.find(0, 1).median < 0.6 < 0.9 < agreement.find(0, 0).median
    windows = found.agreement_of_data("pipeline@2023")
    assert {name for name, _ in windows.sources} == set(FILES)
    assert windows.find(0, 1).median > 0.3
    with pytest.raises(ArgumentError, match="pipeline@2024"):
        found.agreement_of_data()
    page = found.to_html(folder / "report.html").read_text()
    assert page.count('class="heat"') == 3 * 4  # of two data sets, and of two models


# The five traps


def fit_plain(frame: pd.DataFrame, target: Any) -> Any:
    """A pipeline that takes any texts and numbers as categories."""
    return make_pipeline(OneHotEncoder(handle_unknown="ignore"), LogisticRegression()).fit(
        frame, target
    )


def write(folder: Path, frame: pd.DataFrame, **options: Any) -> pd.DataFrame:
    """The table as a file, with a pipeline that was fitted on what pandas reads of it."""
    target = np.where(np.arange(len(frame)) % 3 > 0, "yes", "no")
    frame.assign(paid=target).to_csv(folder / "credit.csv", index=False, **options)
    read = pd.read_csv(folder / "credit.csv").drop(columns="paid")
    joblib.dump(fit_plain(read, target), folder / "pipeline.joblib")
    return read


def check_answers(folder: Path, frame: pd.DataFrame, **entry: Any) -> standfast.Table:
    """The study's model answers as the pipeline does with the frame; its table."""
    changes = {"neighbourhood": {"table": {"changes": "5%"}}}
    grid = make_study(folder, more=changes, **{"types": {}, **entry}).grid()
    samples = grid.data["credit"]
    model = grid.models["pipeline"].model(samples, "cpu")
    expected = joblib.load(folder / "pipeline.joblib").predict_proba(frame[:N])
    np.testing.assert_allclose(model.logits(samples.inputs).softmax(1), expected, rtol=1e-9)
    assert isinstance(samples.reader, FrameReader)
    return samples.reader.table


TOWNS = ["Bonn", "Kiel", "Ulm", "Bonn", "Kiel", "Ulm"] * 4
AGES = [20, 30, 40] * 8


def test_mixed_types_in_a_column_are_texts(folder: Path) -> None:
    frame = write(folder, pd.DataFrame({"mixed": [1, "one", 2.5] * 8, "age": AGES}))
    table = check_answers(folder, frame)
    assert table.columns[0].categories == ("1", "one", "2.5")


def test_an_unseen_category_gets_the_models_own_answer(folder: Path) -> None:
    frame = write(folder, pd.DataFrame({"town": TOWNS, "age": AGES}))
    frame.to_csv(folder / "train.csv", index=False)
    new = frame.assign(town=["Rome", *TOWNS[1:]])
    new.assign(paid="yes").to_csv(folder / "credit.csv", index=False)
    table = check_answers(folder, new, reference="train.csv")
    assert table.columns[0].categories == ("Bonn", "Kiel", "Ulm", "Rome")


def test_a_column_of_missing_cells_stays_so(folder: Path) -> None:
    frame = write(folder, pd.DataFrame({"town": TOWNS, "empty": [np.nan] * 24}))
    table = check_answers(folder, frame)
    assert table.decode(table.rows)["empty"].isna().all()


def test_columns_of_one_name_are_those_of_pandas(folder: Path) -> None:
    frame = write(folder, pd.DataFrame({"town": TOWNS, "age": AGES}), header=["age", "age", "paid"])
    assert check_answers(folder, frame).names == ("age", "age.1")
    joblib.dump(
        fit_plain(frame.rename(columns={"age.1": "year"}), ["yes", "no"] * 12),
        folder / "pipeline.joblib",
    )
    refused(
        make_study(folder, types={}, more={"neighbourhood": {"table": {"changes": "5%"}}}),
        "'age.1' more",
    )


def test_an_index_in_the_file_is_a_column_until_it_is_dropped(folder: Path) -> None:
    frame = write(folder, pd.DataFrame({"town": TOWNS, "age": AGES}))
    frame.assign(paid="yes").set_axis([7] * 24).to_csv(folder / "credit.csv")
    every = {"neighbourhood": {"table": {"changes": "5%"}}}
    refused(make_study(folder, types={}, more=every), "'Unnamed: 0' more")
    check_answers(folder, frame, drop=["Unnamed: 0"])


# What is refused


def test_a_pickle_runs_only_where_it_is_trusted(folder: Path) -> None:
    refused(make_study(folder, {"path": "pipeline.joblib"}), "trust: true")


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"table": "none.csv"}, ["data.credit.table", ".parquet"]),
        ({"label": "pait"}, ["data.credit.label", "did you mean 'paid'"]),
        ({"drop": ["x"]}, ["data.credit.drop", "'x'"]),
        ({"types": {"town": "date"}}, ["data.credit.types", "dates in the column town"]),
        ({"types": {"tow": "text"}}, ["data.credit.types", "'tow'"]),
        ({"types": {**TYPES, "grade": ["low", "mid"]}}, ["data.credit", "'high'"]),
        ({"drop": ["income"]}, ["models.pipeline", "'income' missing"]),
    ],
)
def test_what_does_not_fit_is_said_at_its_place(folder: Path, entry: Any, words: list[str]) -> None:
    refused(make_study(folder, **entry), *words)


def test_metrics_and_models_that_do_not_fit_are_refused(folder: Path) -> None:
    refused(
        make_study(folder, more={"neighbourhood": {"linf": 0.1}}), "metrics.worst", "TableChanges"
    )
    refused(
        make_study(folder, more={"neighbourhood": {"table": {"changes": {"incom": 1}}}}),
        "incom",
        "income",
    )
    refused(make_study(folder, "lenet5-mnist"), "models.pipeline", "pickled estimator")
    preprocess = {"path": "pipeline.joblib", "trust": True, "preprocess": {"mean": 0, "std": 1}}
    refused(make_study(folder, preprocess), "preprocess")
    table = make_study(folder).data["credit"].value.model_dump(exclude_defaults=True)
    refused(
        make_study(folder, more={"data": {"credit": table, "digits": "digits"}}), "tables alone"
    )


def test_a_model_that_cannot_lose_cells_is_refused_before_any_work(folder: Path) -> None:
    frame = pd.read_csv(folder / "credit.csv")[["age", "paid"]]
    frame.to_csv(folder / "credit.csv", index=False)
    bare = make_pipeline(LogisticRegression()).fit(frame[["age"]], frame["paid"])
    joblib.dump(bare, folder / "pipeline.joblib")
    losing = {"table": {"changes": {"age": 2}, "may_become_missing": 0.1}}
    refused(make_study(folder, types={}, more={"neighbourhood": losing}), "missing cell in 'age'")
    still = {"table": {"changes": {"age": 2}}}
    assert (
        make_study(folder, types={}, more={"neighbourhood": still})
        .grid()
        .data["credit"]
        .inputs.dtype
        == torch.float64
    )
