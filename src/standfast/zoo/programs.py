"""Programs and weights of models from the bytes of files.

Weights and TorchScript are read without running code that is in the file. A file of torch.export holds expressions that
torch evaluates as Python when it opens the file, and a pickle of an estimator (scikit-learn, XGBoost, LightGBM) calls
whatever it names. Both are opened only if the user trusts them.

What does not fit is an `ArgumentError`, for the argument `path` of a program and for `weights`.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import torch
from safetensors.torch import load as load_safetensors
from torch import Tensor, nn

from standfast.errors import ArgumentError, check
from standfast.files import check_archive
from standfast.model import BlackBox
from standfast.tasks import Classification, Task, ZeroShot
from standfast.tasks.estimators import choose_reading
from standfast.tasks.sources import has_method

#: what the names of files with a pickled estimator end with
PICKLES = (".joblib", ".pickle", ".pkl")
_TITLES = {
    "torchscript": "TorchScript program",
    "export": "torch.export program",
    "pickle": "pickled estimator",
}


def check_program(
    content: bytes, name: str, trust: bool = False
) -> Literal["torchscript", "export", "pickle"]:
    """Which kind of program a file holds, by what is in its archive; a pickle by its name.

    Args:
        content: of the file.
        name: of the file, for the error.
        trust: whether a file that can run code may be opened.

    Raises:
        ArgumentError: none of them; says what the file looks like. Or it can run code, and is not trusted.
    """
    # a pickle looks like no archive, so its name has to tell
    if name.endswith(PICKLES):
        expected = (
            f"trust: true beside {name}, because opening a pickle runs the code that it names"
        )
        check(trust, "path", expected, "no trust")
        return "pickle"
    # a few bytes could claim to become gigabytes
    try:
        check_archive(content)
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.namelist()
    except zipfile.BadZipFile:
        # no archive: the error below says what it looks like
        members = []
    except ValueError as error:
        raise ArgumentError("path", "a program", f"{name}: {error}") from error
    # by what is in it, as both kinds may have any ending
    if _has_member(members, "archive_format", "serialized_exported_program.json"):
        expected = f"trust: true beside {name}, because opening a file of torch.export can run code that is in it"
        check(trust, "path", expected, "no trust")
        return "export"
    # an archive of TorchScript has its code as text, and weights alone have none
    if any("/code/" in member for member in members) and _has_member(members, "/constants.pkl"):
        return "torchscript"
    pickled_module = _describe_pickled_module(content)
    got = repr(name)
    if pickled_module:
        got += f", which is {pickled_module}"
    elif name.endswith(".safetensors") or _has_member(members, "/data.pkl"):
        got += ", which looks like weights: those go with a function"
    raise ArgumentError(
        "path", f"a TorchScript or torch.export file, or a pickle ({', '.join(PICKLES)})", got
    )


def _has_member(members: Sequence[str], *endings: str) -> bool:
    """Whether an archive has a file whose name ends so."""
    return any(member.endswith(endings) for member in members)


def load_program(
    content: bytes, name: str, device: str, trust: bool = False, task: Task | None = None
) -> nn.Module:
    """The module of a program's file: of TorchScript on the CPU, of torch.export for `device`; or of an estimator.

    Raises:
        ArgumentError: it is not trusted; it cannot be loaded; a program's batch size is fixed, or it wants something
            else than one input; a pickle holds something that does not tell what the `task` reads.
    """
    kind = check_program(content, name, trust)
    if kind == "pickle":
        return as_module(load_estimator(content, name), "path", task)
    try:
        if kind == "torchscript":
            return _load_torchscript(content)
        with _weights_only():
            program = torch.export.load(io.BytesIO(content))
    except Exception as error:  # the loaders raise whatever their parts raise
        raise ArgumentError(
            "path", f"a {_TITLES[kind]} that torch can load", _reason(error)
        ) from error
    _check_batch(program)
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    return Exported(_move(program, torch.device(device)).module())


def _load_torchscript(content: bytes) -> nn.Module:
    with warnings.catch_warnings():
        deprecated = r".*torch\.jit\.load.* is deprecated"
        warnings.filterwarnings("ignore", message=deprecated, category=DeprecationWarning)
        # on the CPU, as it may have been saved on a card that is not here
        module: nn.Module = torch.jit.load(io.BytesIO(content), map_location="cpu")  # type: ignore[no-untyped-call]
    return module


def load_estimator(content: bytes, name: str) -> Any:
    """What a trusted pickle holds, such as a fitted pipeline of data frames.

    Raises:
        ArgumentError: it cannot be loaded, for example because a package is missing.
    """
    try:
        if name.endswith(".joblib"):
            import joblib  # comes with scikit-learn

            return joblib.load(io.BytesIO(content))
        return pickle.loads(content)
    except Exception as error:  # what is unpickled may raise anything
        raise ArgumentError(
            "path", "a pickled estimator that can be loaded", _reason(error)
        ) from error


def as_module(candidate: object, argument: str, task: Task | None = None) -> nn.Module:
    """A module as it is, and a fitted estimator as what it tells of a task, by default of classes.

    Raises:
        ArgumentError: for `argument`, if it is neither, or does not tell what the task reads.

    >>> as_module(nn.Identity(), "model")
    Identity()
    """
    if isinstance(candidate, nn.Module):
        return candidate
    task = Classification() if task is None else task
    is_estimator = any(
        has_method(candidate, method)
        for method in ("predict_proba", "decision_function", "predict")
    )
    name = "none" if candidate is None else type(candidate).__name__
    check(is_estimator, argument, "a torch.nn.Module, or an estimator with predict_proba", name)
    try:
        reading = choose_reading(candidate, task)
    except ArgumentError as error:
        raise ArgumentError(
            argument, f"a torch.nn.Module, or {error.expected}", error.got
        ) from error
    if reading.task is not None and reading.task.below != task.below:
        expected = f"of: {reading.task.below.name} beside the rule, as the estimator says something else than classes"
        raise ArgumentError(argument, expected, repr(task))
    reads_scores = task.below.classes and not isinstance(task.below, ZeroShot)
    output = reading.output if reads_scores else "value"
    return BlackBox(reading.function, output)


class Exported(nn.Module):
    """The module of an exported program, which stays in the mode in which it was exported."""

    def __init__(self, program: nn.Module) -> None:
        super().__init__()
        self.program = program

    def forward(self, x: Tensor) -> Tensor:
        """Logits of a batch."""
        out: Tensor = self.program(x)
        return out

    def train(self, mode: bool = True) -> Exported:
        """Sets the flag alone: an exported program refuses to change its mode."""
        # `Model` sets the mode of all modules, and would fail here
        self.training = mode
        return self


def _check_batch(program: torch.export.ExportedProgram) -> None:
    inputs = program.graph_signature.user_inputs
    shapes = [
        node.meta["val"].shape
        for node in program.graph.nodes
        if node.op == "placeholder" and node.name in inputs
    ]
    is_one_batch = len(shapes) == 1 and bool(shapes[0])
    check(
        is_one_batch,
        "path",
        "a program with one input, a batch (N, ...)",
        f"one with {len(shapes)} inputs",
    )
    expected = "a program with a dynamic batch (export it with dynamic_shapes=({0: torch.export.Dim('batch')},))"
    check(
        not isinstance(shapes[0][0], int),
        "path",
        expected,
        f"one for {shapes[0][0]} inputs at once",
    )


def _move(
    program: torch.export.ExportedProgram, device: torch.device
) -> torch.export.ExportedProgram:
    """Devices are constants of the graph, so that `module.to` alone would not do."""
    values = (*program.state_dict.values(), *program.constants.values())
    is_on_cpu = all(value.device.type == "cpu" for value in values if isinstance(value, Tensor))
    if device.type == "cpu" and is_on_cpu:
        return program
    from torch.export.passes import move_to_device_pass

    return move_to_device_pass(program, device)


@contextlib.contextmanager
def _weights_only() -> Iterator[None]:
    """torch.export.load reads some tensors as pickles; inside, those may hold nothing else."""
    name = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def read_weights(content: bytes) -> dict[str, Tensor]:
    """A state dict from the bytes of a safetensors or a torch file; code in the latter is refused and not run.

    Raises:
        ArgumentError: it is neither, or holds something else than tensors.
    """
    # a zip archive, or the pickle of old versions
    is_torch_file = content[:2] == b"PK" or content[:1] == b"\x80"
    try:
        if not is_torch_file:
            return dict(load_safetensors(content))
        check_archive(content)
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", message="Detected pickle protocol", category=UserWarning
            )
            stored = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        other = "a pickle with other objects, which is not loaded since that could run code"
        got = _describe_pickled_module(content) or other
        raise ArgumentError(
            "weights", "weights alone: safetensors, or torch.save(module.state_dict())", got
        ) from error
    except Exception as error:  # the loaders raise whatever their parts raise
        raise ArgumentError(
            "weights", "a safetensors file, or one of torch.save", _reason(error)
        ) from error
    if isinstance(stored, Mapping):
        # many programs store the weights beside other things
        stored = stored.get("state_dict", stored)
    fits = isinstance(stored, Mapping) and all(
        isinstance(value, Tensor) for value in stored.values()
    )
    check(
        fits,
        "weights",
        "a state dict: tensors by name",
        f"a {type(stored).__name__} of other things",
    )
    return dict(stored)


def _describe_pickled_module(content: bytes) -> str:
    """What to do with a file of `torch.save` or `pickle` that holds a whole module; empty if it holds none.

    The names of a module's attributes stand in the file, which is not opened.
    """
    why = "a pickled module, which is not loaded since that could run code: save its weights (module.state_dict()) and"
    use = f"{why} name the function that makes it, or save a TorchScript program"
    if b"_parameters" in content and b"_modules" in content:
        return use
    return ""


def fill(module: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Load weights that fit exactly.

    Raises:
        ArgumentError: names or shapes differ; says which.
    """
    expected_weights = module.state_dict()
    shapes = []
    for name, expected_tensor in expected_weights.items():
        if name in weights and weights[name].shape != expected_tensor.shape:
            shapes.append(
                f"{name} {list(weights[name].shape)} instead of {list(expected_tensor.shape)}"
            )
    faults = {
        "without": sorted(expected_weights.keys() - weights.keys()),
        "with unknown": sorted(weights.keys() - expected_weights.keys()),
        "with": shapes,
    }
    differences = "; ".join(
        f"{word} {_list_first(names)}" for word, names in faults.items() if names
    )
    expected = f"weights that fit the {type(module).__name__}"
    check(not differences, "weights", expected, f"some {differences}")
    # shapes fit already, but a module may have rules of its own
    try:
        module.load_state_dict(dict(weights))
    except RuntimeError as error:
        raise ArgumentError(
            "weights", "a safetensors file, or one of torch.save", _reason(error)
        ) from error


def _list_first(names: list[str]) -> str:
    first = ", ".join(names[:2])
    if len(names) <= 2:
        return first
    return f"{first}, ... {len(names)} in all"


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
