"""Reading files that came from elsewhere without harm, and writing files whole or not at all.

A file may be a pipe that never ends, or say in a few bytes that it holds a billion numbers. So only regular files are
read, and what they claim to hold is checked before memory is taken.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import stat
import tempfile
import warnings
import zipfile
import zlib
from collections.abc import Container
from pathlib import Path
from typing import Any

import numpy as np

from standfast.errors import StandfastError

#: what a compressed file may become: so many bytes, or so many times its size if that is more
_ROOM = 10**9
_TIMES = 100
_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


class ReadError(StandfastError, OSError):
    """A file cannot be read, because of what it is; the message has its path and the reason."""

    def __init__(self, path: object, reason: str) -> None:
        super().__init__(f"{path} cannot be read: {reason}")
        self.strerror = reason


class WriteError(StandfastError, OSError):
    """A file, or a folder, cannot be written; the message has its path and the reason.

    Args:
        path: of the file or the folder.
        error: of the system, or another `WriteError`, whose reason is taken.
        stored: whether the file is one of several in a folder of results, of which those before are complete.
    """

    def __init__(self, path: object, error: OSError, stored: bool = False) -> None:
        self.reason = str(
            getattr(error, "reason", "") or error.strerror or f"{type(error).__name__}: {error}"
        )
        if isinstance(error, FileExistsError):
            self.reason = "a file is in the place of a folder"
        super().__init__(
            f"{path} could not be written: {self.reason}{'. What was stored before is intact' * stored}."
        )
        self.errno = error.errno


def read_file(path: Path, largest: int | None = None) -> bytes:
    """The content of a regular file, or of a link to one.

    Args:
        path: of the file.
        largest: how many bytes it may have; None for any number.

    Raises:
        ReadError: it is a pipe, a device or a socket, which might never end; it is too large; memory ran out.
        OSError: of the system, such as FileNotFoundError and IsADirectoryError.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "a").write_bytes(b"text")
    ...     read_file(Path(folder) / "a", largest=4)
    b'text'
    """
    # a pipe that is opened in this way does not wait for its writer
    with open(
        path, "rb", opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0))
    ) as file:
        # of the open file and not of its path, which may be another file by now
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode):
            kind = _KINDS.get(stat.S_IFMT(about.st_mode), "no file")
            raise ReadError(path, f"it is {kind}")
        if largest is not None and about.st_size > largest:
            raise ReadError(path, f"it has {about.st_size:,} bytes, and may have {largest:,}")
        try:
            if largest is None:
                return file.read()
            return file.read(largest)
        except MemoryError as error:
            raise ReadError(
                path, f"it has {about.st_size:,} bytes, for which there is no memory"
            ) from error


def find_room(size: int) -> int:
    """How many bytes a compressed file of `size` bytes may become: 1 GB, or 100 times as many if that is more.

    >>> find_room(5_000), find_room(10**9)
    (1000000000, 100000000000)
    """
    return max(_ROOM, _TIMES * size)


def check_archive(content: bytes) -> None:
    """Check how large a zip archive says that it becomes, before it does; other files are fine.

    Raises:
        ValueError: it is too large (see `find_room`).

    >>> check_archive(b"no archive")
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            claimed = sum(member.file_size for member in archive.infolist())
    except (zipfile.BadZipFile, NotImplementedError):
        return
    if claimed > find_room(len(content)):
        room = find_room(len(content))
        words = f"it has {len(content):,} bytes, and would become {claimed:,} of at most {room:,}"
        raise ValueError(words)


def load_npy(content: bytes) -> np.ndarray[Any, Any]:
    """The array in the bytes of a `.npy` file. Python objects are refused, since they could run code.

    Raises:
        ValueError: it is no such file; its header claims more than the file holds.
    """
    stream = io.BytesIO(content)
    try:
        version = np.lib.format.read_magic(stream)
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }
        if version not in read:
            raise ValueError(f"a file of version {version}, and not of 1.0 or 2.0")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Python 2
            shape, _, kind = read[version](stream)
        claimed = math.prod(shape) * kind.itemsize
        present = len(content) - stream.tell()
        # Python objects have no fixed size; `load` refuses them below
        if claimed > present and not kind.hasobject:
            raise ValueError(f"its header says that {claimed:,} bytes follow, and {present:,} do")
        # objects could run code when they are unpickled
        file = io.BytesIO(content)
        array: np.ndarray[Any, Any] = np.load(file, allow_pickle=False)
        return array
    except (
        EOFError,
        TypeError,
        OverflowError,
        RecursionError,
        MemoryError,
        AttributeError,
    ) as error:
        # damaged headers end in any of these, depending on which byte is wrong
        raise ValueError(str(error) or type(error).__name__) from error


def load_npz(content: bytes, wanted: Container[str]) -> dict[str, Any]:
    """The wanted arrays in the bytes of a `.npz` file, by name; None for arrays that are not wanted.

    Raises:
        ValueError: it is no such file; an array is none; it becomes too large (see `find_room`).
    """
    check_archive(content)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = {name.removesuffix(".npy"): name for name in archive.namelist()}
            return {
                key: load_npy(archive.read(name)) if key in wanted else None
                for key, name in members.items()
            }
    except (zipfile.BadZipFile, zlib.error, RuntimeError, EOFError, MemoryError) as error:
        raise ValueError(str(error) or type(error).__name__) from error


def write_atomically(path: Path, content: bytes, lasting: bool = True, new: bool = False) -> None:
    """Write a file. It is either complete or absent, also after a crash.

    Args:
        path: of the file.
        content: of the file.
        lasting: whether it has to survive a power cut, too, which takes a few milliseconds on a disk.
        new: whether there must be no such file, also if several processes write it at once.

    Raises:
        FileExistsError: there is one, and `new` is asked for.
        WriteError: the disk is full, or the place cannot be written.
    """
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # in the same folder, because a file can be renamed in one step only within a file system
        handle, temporary = tempfile.mkstemp(
            dir=path.parent, prefix=f".{path.name}.", suffix=".part"
        )
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            if lasting:
                # before the new name, or a power cut could leave the name with an empty file
                os.fsync(file.fileno())
        Path(temporary).chmod(0o666 & ~_umask())  # temporary files are private, results are not
        # a link fails where the file exists, and so decides between several writers; a rename would replace it
        publish = os.link if new else os.replace
        publish(temporary, path)
        if lasting:
            _sync_folder(path.parent)
    except OSError as error:
        # without the second check, another file in the way, such as one in the place of the folder, would look like
        # the file
        if new and isinstance(error, FileExistsError) and path.exists():
            raise
        raise WriteError(path, error) from error
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Make the new name of a file last through a power cut; not all systems can do that, or need it."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _umask() -> int:
    # it can only be read by setting it
    mask = os.umask(0)
    os.umask(mask)
    return mask
