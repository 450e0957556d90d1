"""Folders for results: local, or at any address that fsspec reaches. A file is either complete or absent."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from abc import ABC, abstractmethod
from pathlib import Path

from standfast.errors import ArgumentError, MissingExtraError
from standfast.files import ReadError, WriteError, read_file, write_atomically

__all__ = [
    "Folder",
    "LocalFolder",
    "ReadError",
    "RemoteFolder",
    "WriteError",
    "open_folder",
    "read_file",
]

#: how long another process may take between looking for a file and writing it, in stores that cannot create exclusively
SECONDS_TO_SETTLE = 2.0
_STALE_SECONDS = 3600.0
#: file systems of fsspec in which a file appears before it is complete
_GRADUAL = {"file", "local", "sftp", "ssh", "smb"}


class Folder(ABC):
    """A flat view of a folder: names are relative, with `/` between their parts."""

    address: str

    @abstractmethod
    def write(self, name: str, content: bytes, lasting: bool = True) -> None:
        """Write a file, as `standfast.files.write_atomically`."""

    @abstractmethod
    def read(self, name: str) -> bytes:
        """The content of a file; raises FileNotFoundError if it does not exist."""

    @abstractmethod
    def names(self, part: str) -> list[str]:
        """The names of the files directly in the subfolder `part`, in no order; empty if it does not exist."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Remove a file, if it exists."""

    def create(self, name: str, content: bytes) -> bool:
        """Write a file unless there is one, and say whether it was written.

        On a local disk nobody can come in between. Elsewhere as `replace`.
        """
        return not self.exists(name) and self.replace(name, content)

    def replace(self, name: str, content: bytes) -> bool:
        """Write a file, and say whether it is there a little later: of several writers at once the last one has it."""
        self.write(name, content)
        # long enough for another writer to have come in between
        time.sleep(SECONDS_TO_SETTLE)
        try:
            # another writer may have replaced it
            return self.read(name) == content
        except FileNotFoundError:
            return False

    def exists(self, name: str) -> bool:
        """Whether a file exists."""
        part, _, last = name.rpartition("/")
        return last in self.names(part)


class LocalFolder(Folder):
    """A folder on this computer."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.address = str(path)

    def write(self, name: str, content: bytes, lasting: bool = True) -> None:
        try:
            write_atomically(self.path / name, content, lasting)
        except WriteError as error:
            raise WriteError(self.path / name, error, stored=True) from error.__cause__

    def read(self, name: str) -> bytes:
        return read_file(self.path / name)

    def create(self, name: str, content: bytes) -> bool:
        try:
            write_atomically(self.path / name, content, new=True)
        except FileExistsError:
            return False
        except WriteError:  # a file system without links, or nothing can be written
            return super().create(name, content)
        return True

    def names(self, part: str) -> list[str]:
        """The names of the files in a subfolder; files that are being written are left out."""
        try:
            return [
                # temporary files begin with a dot (`write_atomically`)
                file.name
                for file in (self.path / part).iterdir()
                if not file.name.startswith(".")
            ]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def delete(self, name: str) -> None:
        try:
            (self.path / name).unlink(missing_ok=True)
        except OSError as error:
            raise WriteError(self.path / name, error) from error

    def exists(self, name: str) -> bool:
        return (self.path / name).exists()

    def sweep(self) -> None:
        """Remove incomplete files that are older than an hour: their writers were killed."""
        for leftover in self.path.glob("**/.*.part"):
            with contextlib.suppress(FileNotFoundError):  # another writer has just finished it
                # a younger one may belong to a run that works here now
                if time.time() - leftover.stat().st_mtime > _STALE_SECONDS:
                    leftover.unlink()


class RemoteFolder(Folder):
    """A folder of an fsspec file system, such as `s3://bucket/results` or `memory://results`.

    Object stores write an object in one piece. In other file systems the file is written under another name and moved.
    """

    def __init__(self, address: str) -> None:
        import fsspec

        self.address = address
        try:
            self.system, self.root = fsspec.core.url_to_fs(address)
        except ImportError as error:
            raise MissingExtraError(f"the address {address} ({error})", "remote") from error
        except ValueError as error:
            scheme = address.split("://")[0]
            raise ArgumentError(
                "address", "a folder, or an address that fsspec knows", f"{scheme}://"
            ) from error
        protocol = self.system.protocol
        if isinstance(protocol, str):
            self.protocols = {protocol}
        else:
            self.protocols = set(protocol)

    def _path(self, name: str) -> str:
        return f"{self.root.rstrip('/')}/{name}"

    def write(self, name: str, content: bytes, lasting: bool = True) -> None:
        path = self._path(name)
        beside = path
        if self.protocols & _GRADUAL:
            # process and thread, as several may write the same name at once
            writer = f"{os.getpid()}-{threading.get_ident()}"
            beside = f"{path}.{writer}.part"
        try:
            self.system.makedirs(path.rpartition("/")[0], exist_ok=True)
            self.system.pipe_file(beside, content)
            if beside != path:
                self.system.mv(beside, path)
        except OSError as error:
            raise WriteError(f"{self.address}/{name}", error, stored=True) from error

    def read(self, name: str) -> bytes:
        content: bytes = self.system.cat_file(self._path(name))
        return content

    def names(self, part: str) -> list[str]:
        self.system.invalidate_cache()  # other processes write here as well
        try:
            paths: list[str] = self.system.ls(self._path(part), detail=False)
        except FileNotFoundError:
            return []
        names = (entry.rstrip("/").rpartition("/")[2] for entry in paths)
        return [name for name in names if not name.endswith(".part")]

    def delete(self, name: str) -> None:
        try:
            self.system.rm_file(self._path(name))
        except FileNotFoundError:
            return


def open_folder(address: str | Path) -> Folder:
    """A folder by its path, or by an address with a scheme.

    >>> type(open_folder("results")).__name__, type(open_folder("memory://results")).__name__
    ('LocalFolder', 'RemoteFolder')
    """
    text = str(address)
    # then it has links and locks, which fsspec does not use
    if text.startswith("file://"):
        return LocalFolder(text.removeprefix("file://"))
    if "://" in text and not isinstance(address, Path):
        return RemoteFolder(text)
    return LocalFolder(text)
