"""Programs and weights of models from the bytes of files, read without running code that the files bring along."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from typing import Literal

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_safetensors
from torch import Tensor, nn

from holdfast.study.file.problems import Problem, Wrong, listed, raised, typed


def kind_of_program(content: bytes, name: str) -> Literal["torchscript", "export"]:
    """Which kind of program a file holds, by what is in its archive.

    Raises:
        Wrong: neither; says what the file looks like.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.namelist()
    except zipfile.BadZipFile:
        members = []
    if any(m.endswith(("archive_format", "serialized_exported_program.json")) for m in members):
        return "export"
    if any("/code/" in m for m in members) and any(m.endswith("/constants.pkl") for m in members):
        return "torchscript"
    weights = any(m.endswith("/data.pkl") for m in members) or name.endswith(".safetensors")
    got = f"{name!r}, which looks like weights: those go with a function" if weights else repr(name)
    raise Wrong(Problem((), "a TorchScript or torch.export file", got))


def load_torchscript(content: bytes) -> nn.Module:
    """The module of a TorchScript file, on the CPU.

    Raises:
        Wrong: torch cannot load it.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r".*torch\.jit\.load.* is deprecated", category=DeprecationWarning)
        try:
            loaded: nn.Module = torch.jit.load(io.BytesIO(content), map_location="cpu")  # type: ignore[no-untyped-call]
        except (RuntimeError, ValueError) as error:
            raise Wrong(Problem((), "a TorchScript program that torch can load", raised(error))) from error
    return loaded


def load_exported(content: bytes, device: str) -> nn.Module:
    """The module of a torch.export file, for `device`.

    Raises:
        Wrong: torch cannot load it, its batch size is fixed, or it wants something else than one input.
    """
    try:
        with _weights_only():
            program = torch.export.load(io.BytesIO(content))
    except Exception as error:  # the loader raises whatever its parts raise
        raise Wrong(Problem((), "a torch.export program that torch can load", raised(error))) from error
    _check_batch(program)
    wanted = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    return Exported(_on_device(program, torch.device(wanted)).module())


class Exported(nn.Module):
    """The module of an exported program; it was exported in one mode, and to be asked for another changes nothing."""

    def __init__(self, program: nn.Module) -> None:
        super().__init__()
        self.program = program

    def forward(self, x: Tensor) -> Tensor:
        """Logits of a batch."""
        out: Tensor = self.program(x)
        return out

    def train(self, mode: bool = True) -> Exported:
        """Nothing but a flag: an exported program refuses to change its mode."""
        self.training = mode
        return self


def _check_batch(program: torch.export.ExportedProgram) -> None:
    inputs = program.graph_signature.user_inputs
    shapes = [n.meta["val"].shape for n in program.graph.nodes if n.op == "placeholder" and n.name in inputs]
    if len(shapes) != 1 or not shapes[0]:
        raise Wrong(Problem((), "a program with one input, a batch (N, ...)", f"one with {len(shapes)} inputs"))
    if isinstance(shapes[0][0], int):
        expected = "a program with a dynamic batch (export it with dynamic_shapes=({0: torch.export.Dim('batch')},))"
        raise Wrong(Problem((), expected, f"one for {shapes[0][0]} inputs at once"))


def _on_device(program: torch.export.ExportedProgram, device: torch.device) -> torch.export.ExportedProgram:
    """Devices are constants of the graph, so that `module.to` alone would not do."""
    tensors = [t for t in (*program.state_dict.values(), *program.constants.values()) if isinstance(t, Tensor)]
    if device.type == "cpu" and all(t.device.type == "cpu" for t in tensors):
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
        Wrong: it is neither, or holds something else than tensors.
    """
    torch_file = content[:2] == b"PK" or content[:1] == b"\x80"  # a zip archive, or the pickle of old versions
    try:
        if not torch_file:
            return dict(load_safetensors(content))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Detected pickle protocol", category=UserWarning)
            found = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        got = "a pickle with other objects, which is not loaded since that could run code"
        raise Wrong(Problem((), "weights alone: safetensors, or torch.save(module.state_dict())", got)) from error
    except (SafetensorError, RuntimeError, ValueError, EOFError, KeyError) as error:
        raise Wrong(Problem((), "a safetensors file, or one of torch.save", raised(error))) from error
    found = found.get("state_dict", found) if isinstance(found, Mapping) else found
    if not isinstance(found, Mapping) or not all(isinstance(value, Tensor) for value in found.values()):
        raise Wrong(Problem((), "a state dict: tensors by name", f"{typed(found)} of other things"))
    return dict(found)


def fill(module: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Load weights that fit exactly.

    Raises:
        Wrong: names or shapes differ; says which.
    """
    own = module.state_dict()
    missing, foreign = sorted(own.keys() - weights.keys()), sorted(weights.keys() - own.keys())
    shapes = [
        f"{k} {list(weights[k].shape)} instead of {list(own[k].shape)}"
        for k in own
        if k in weights and own[k].shape != weights[k].shape
    ]
    parts = [("without", missing), ("with unknown", foreign), ("with", shapes)]
    said = [f"{word} {listed(names, 60)}" for word, names in parts if names]
    if said:
        raise Wrong(Problem((), f"weights that fit the {type(module).__name__}", f"some {'; '.join(said)}"))
    try:
        module.load_state_dict(dict(weights))
    except RuntimeError as error:
        raise Wrong(Problem((), f"weights that fit the {type(module).__name__}", raised(error))) from error
