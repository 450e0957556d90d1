"""CPSC 2018, 12-lead electrocardiograms, read from the files of the PhysioNet/Computing in Cardiology Challenge 2020.

Liu et al., An open access database for evaluating the algorithms of electrocardiogram rhythm and morphology abnormality
detection, Journal of Medical Imaging and Health Informatics 8, 2018. Perez Alday et al., Classification of 12-lead
ECGs: the PhysioNet/Computing in Cardiology Challenge 2020, Physiological Measurement 41, 2020; CC BY 4.0. 6,877
recordings of 6 to 60 seconds at 500 Hz.

The files are `training/cpsc_2018/**/A*.hea` and `A*.mat` of https://physionet.org/content/challenge-2020/1.0.2/. A
header (WFDB) is a text file. Its first line has the name of the record, the number of signals, the samples per second
and the number of samples. Then one line for each signal has its file, format and offset, its gain in units of the
converter per physical unit, and its name. Then follow comments; `# Dx:` lists diagnoses as SNOMED CT codes. The signals
are the matrix `val`, int16 (12, samples), of a MATLAB file.
"""

from __future__ import annotations

import hashlib
import importlib
import math
import re
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from standfast.data.dataset import Dataset
from standfast.data.root import VARIABLE, MissingDataError, data_root
from standfast.data.ucr_archive import compute_moments
from standfast.errors import ArgumentError, MissingExtraError, check, check_integer

FOLDERS = ("cpsc", "cpsc_2018", "training/cpsc_2018")
ADDRESS = "https://physionet.org/content/challenge-2020/1.0.2/"
SPLITS = ("train", "test")
TEST_SHARE = 5  # one of this many recordings is in the test split
LEADS = ("I", "II", "III", "aVR", "aVL", "aVF", "V1", "V2", "V3", "V4", "V5", "V6")
DIAGNOSES = {
    "59118001": "right bundle branch block",
    "164909002": "left bundle branch block",
    "164889003": "atrial fibrillation",
    "164884008": "ventricular ectopics",
    "164931005": "ST elevation",
    "270492004": "first-degree atrioventricular block",
    "284470004": "premature atrial contraction",
    "426783006": "sinus rhythm",
    "429622005": "ST depression",
}

_FORMAT = re.compile(r"(?P<format>\d+)(?:x(?P<samples>\d+))?(?::(?P<skew>\d+))?(?:\+(?P<offset>\d+))?")
_GAIN = re.compile(r"(?P<gain>[-+.\deE]+)(?:\((?P<baseline>-?\d+)\))?(?:/(?P<units>\S+))?")
_MILLIVOLTS = {"mV": 1.0, "uV": 1e-3, "V": 1e3}
_DEFAULT_GAIN = 200.0  # WFDB's default, for a header with the gain 0 or without a gain

Signals = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Header:
    """The content of a recording's header."""

    record: str
    rate: float  # samples per second
    samples: int
    file: str  # with all signals
    gains: tuple[float, ...]  # for each signal, units of the converter per mV
    baselines: tuple[int, ...]  # for each signal, the converter's value at 0 mV
    leads: tuple[str, ...]
    diagnoses: tuple[str, ...]  # SNOMED CT codes


def read_header(path: Path) -> Header:
    """Read a header of the challenge; raises `ArgumentError`, with path and line, for an invalid one."""
    try:
        lines = [line.strip() for line in path.read_text("utf-8").splitlines()]
    except UnicodeDecodeError as error:
        raise ArgumentError(str(path), "a WFDB header as text", str(error)) from error
    comments = [line.lstrip("# ").rstrip() for line in lines if line.startswith("#")]
    rows = [line.split() for line in lines if line and not line.startswith("#")]
    first = rows[0] if rows else []
    expected = "a record's name, number of signals, samples per second and samples"
    try:
        record, signals, samples = first[0], int(first[1]), int(first[3])
        rate = float(re.split(r"[/(]", first[2])[0])
    except (IndexError, ValueError) as error:
        raise ArgumentError(f"{path}, line 1", expected, " ".join(first) or "nothing") from error
    check(signals >= 1 and 0 < rate < math.inf and samples >= 1, f"{path}, line 1", expected, " ".join(first))
    check(len(rows) == 1 + signals, str(path), f"{signals} lines of signals", len(rows) - 1)
    parsed = [_parse_signal(f"{path}, signal {number}", row) for number, row in enumerate(rows[1:], 1)]
    files, gains, baselines, leads = zip(*parsed, strict=True)
    check(len(set(files)) == 1, str(path), "one file for all signals", ", ".join(sorted(set(files))))
    named = [comment.partition(":") for comment in comments]
    codes = [code.strip() for key, _, value in named if key.strip() == "Dx" for code in value.split(",")]
    return Header(record, rate, samples, files[0], gains, baselines, leads, tuple(code for code in codes if code))


def read_record(path: Path) -> tuple[Header, Signals]:
    """Read the header at `path` and its signals in mV, float32 (signals, samples).

    Raises `ArgumentError` for broken files.
    """
    header = read_header(path)
    file = path.with_name(header.file)
    values = _read_matrix(file)
    shape = (len(header.leads), header.samples)
    check(values.shape == shape, str(file), f"a matrix val of {shape}, as {path.name} says", values.shape)
    gains, baselines = (np.array(each, np.float64)[:, None] for each in (header.gains, header.baselines))
    return header, ((values - baselines) / gains).astype(np.float32)


def cpsc(
    split: str = "train",
    download: bool = False,
    *,
    diagnosis: str = "59118001",
    steps: int = 450,
    rate: float = 100.0,
    standardize: bool = True,
) -> Dataset:
    """CPSC 2018, electrocardiograms with and without one diagnosis: inputs (N, 12, steps), unbounded.

    Inputs are from the start of each recording.

    Wei, Turbe and Mengaldo (2024) use 6,877 recordings of 450 steps in two classes. They do not say which diagnosis
    they use, or how they cut the recordings. The framework is that of Turbe et al. (2023), who separate right bundle
    branch block from the rest, and so do we. We take 450 steps to be 4.5 seconds at 100 Hz; the shortest recording has
    6 seconds. The files have no split: we put one of five recordings, selected by a hash of its name, into "test".

    Args:
        split: "train" or "test".
        download: these files are not downloaded automatically; if they are missing, the error says so.
        diagnosis: a SNOMED CT code; `DIAGNOSES` lists those of this set.
        steps: number of steps of each input. Shorter recordings are padded with zeros; `extras["observed"]`, bool
            (N, 12, steps), is False there.
        rate: steps per second; recordings are filtered and resampled to this rate.
        standardize: subtract from each lead its mean over the training split and divide by its standard deviation; else
            values are in mV.

    Raises:
        ArgumentError: an argument is out of range, or a file is broken.
        MissingDataError: there are no recordings under `data_root()`.
        MissingExtraError: scipy, which reads MATLAB files, is not installed.

    >>> hearts = cpsc("test")  # doctest: +SKIP
    >>> hearts.classes         # doctest: +SKIP
    ('other', 'right bundle branch block')
    """
    check(split in SPLITS, "split", " or ".join(SPLITS), repr(split))
    check(re.fullmatch(r"\d+", diagnosis) is not None, "diagnosis", "a SNOMED CT code", repr(diagnosis))
    check_integer(steps, "steps", 2)
    check(1 <= rate < math.inf, "rate", "steps per second, at least 1", rate)
    headers = _find_headers(download)
    chosen = {each: [path for path in headers if _split_of(path.stem) == each] for each in SPLITS}
    needed = SPLITS if standardize and split == "test" else (split,)
    inputs, labels = {}, {}
    for each in needed:
        check(len(chosen[each]) > 0, each, "at least one recording in this split", f"none of {len(headers)}")
        read = [_read_input(path, diagnosis, steps, rate) for path in chosen[each]]
        inputs[each] = torch.from_numpy(np.stack([signals for signals, _ in read]))
        labels[each] = torch.tensor([has for _, has in read], dtype=torch.int64)
    values, observed = inputs[split], ~inputs[split].isnan()
    if standardize:
        mean, deviation = compute_moments(inputs["train"])
        values = (values - mean) / deviation
    extras = {} if bool(observed.all()) else {"observed": observed}
    classes = ("other", DIAGNOSES.get(diagnosis, diagnosis))
    values = torch.where(observed, values, 0.0)
    return Dataset(f"cpsc:{split}", values, labels[split], classes, (-math.inf, math.inf), extras, LEADS)


def _read_input(path: Path, diagnosis: str, steps: int, rate: float) -> tuple[Signals, bool]:
    """The first `steps` of a recording at `rate`, NaN after its end; and whether it has the diagnosis."""
    header, signals = read_record(path)
    check(header.leads == LEADS, str(path), f"the leads {', '.join(LEADS)}", ", ".join(header.leads))
    ratio = Fraction(rate / header.rate).limit_denominator(1000)
    seconds = steps / rate + 1  # the filter also uses values after the end
    resampled = signals[:, : math.ceil(seconds * header.rate)].astype(np.float64)
    if ratio != 1:  # "edge": a recording does not start at 0 mV
        resample = _import_scipy("scipy.signal").resample_poly
        resampled = resample(resampled, ratio.numerator, ratio.denominator, axis=1, padtype="edge")
    filled = np.full((len(LEADS), steps), np.nan, np.float32)
    filled[:, : resampled.shape[1]] = resampled[:, :steps]
    return filled, diagnosis in header.diagnoses


def _find_headers(download: bool) -> list[Path]:
    folders = [data_root() / folder for folder in FOLDERS]
    for folder in folders:
        found = sorted(folder.rglob("*.hea"), key=lambda path: path.stem)
        if found:
            return found
    by_hand = " This set cannot be downloaded automatically." if download else ""
    raise MissingDataError(
        f"cpsc: no *.hea in {' or '.join(map(str, folders))}. Put the recordings of training/cpsc_2018 of {ADDRESS}"
        f" there, or set {VARIABLE} to the folder that contains {FOLDERS[0]}/.{by_hand}"
    )


def _split_of(record: str) -> str:
    number = int.from_bytes(hashlib.sha256(record.encode()).digest()[:8])
    return "test" if number % TEST_SHARE == 0 else "train"


def _parse_signal(where: str, row: list[str]) -> tuple[str, float, int, str]:
    """File, gain per mV, baseline and name of the signal that a line of a header describes."""
    text = " ".join(row)
    check(len(row) >= 2, where, "a file, a format and a gain", text)
    shape = _FORMAT.fullmatch(row[1])
    fine = shape is not None and shape["format"] == "16" and shape["samples"] in (None, "1")
    fine = fine and row[0].endswith(".mat") and Path(row[0]).name == row[0]
    check(fine, where, "a MATLAB file with samples of 16 bits, one per frame (16+24)", text)
    if len(row) < 3:
        return row[0], _DEFAULT_GAIN, 0, ""
    gain = _GAIN.fullmatch(row[2])
    units = "mV" if gain is None else gain["units"] or "mV"
    try:
        check(gain is not None and units in _MILLIVOLTS, where, "a gain such as 1000/mV", row[2])
        assert gain is not None
        per_unit = float(gain["gain"]) or _DEFAULT_GAIN
        zero = int(row[4]) if len(row) > 4 else 0  # the converter's zero; it is the baseline if none is given
        baseline = int(gain["baseline"]) if gain["baseline"] is not None else zero
    except ValueError as error:
        if isinstance(error, ArgumentError):
            raise
        raise ArgumentError(where, "numbers for gain and zero", text) from error
    check(math.isfinite(per_unit), where, "a finite gain", row[2])
    return row[0], per_unit / _MILLIVOLTS[units], baseline, " ".join(row[8:])


def _read_matrix(file: Path) -> npt.NDArray[Any]:
    io = _import_scipy("scipy.io")
    if not file.is_file():
        raise MissingDataError(f"cpsc: {file} is missing; the header in the same folder names it")
    try:
        found = io.loadmat(file, variable_names=["val"])
    except (OSError, ValueError, TypeError, NotImplementedError, EOFError, io.matlab.MatReadError) as error:
        raise ArgumentError(str(file), "a MATLAB file", f"a broken or different file ({error})") from error
    check("val" in found, str(file), "a matrix val", "none of that name")
    values: npt.NDArray[Any] = found["val"]
    check(np.issubdtype(values.dtype, np.integer), str(file), "whole numbers in val", values.dtype)
    return values.astype(np.float64)


def _import_scipy(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(f"cpsc ({error})", "data") from error
