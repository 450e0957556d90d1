"""Folders for results: local, or at any address that fsspec reaches. A file is either complete or absent."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
import threading
import time
import warnings
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from standfast.errors import ArgumentError, MissingExtraError, StandfastError

#: how long another process may take between looking for a file and writing it, in stores that cannot create exclusively
SECONDS_TO_SETTLE = 2.0
_STALE_SECONDS = 3600.0
#: file systems of fsspec whose `pipe_file(mode="create")` is one conditional request
_CONDITIONAL = {"s3", "s3a", "gs", "gcs", "abfs", "az", "abfss", "memory"}


class WriteError(StandfastError, OSError):
    """A file, or a folder, cannot be written; the message has its path and the reason.

    Args:
        path: of the file or the folder.
        error: of the system, or another `WriteError`, whose reason is taken.
        stored: whether the file is one of several in a folder of results, of which those before are complete.
    """

    def __init__(self, path: object, error: OSError, stored: bool = False) -> None:
        self.reason = str(getattr(error, "reason", "") or error.strerror or f"{type(error).__name__}: {error}")
        if isinstance(error, FileExistsError):
            self.reason = "a file is in the place of a folder"
        super().__init__(f"{path} could not be written: {self.reason}{'. What was stored before is intact' * stored}.")
        self.errno = error.errno


class Folder(ABC):
    """A flat view of a folder: names are relative, with `/` between their parts."""

    address: str

    @abstractmethod
    def write(self, name: str, content: bytes, lasting: bool = True) -> None:
        """Write a file. It is either complete or absent, also after a crash.

        Args:
            name: of the file.
            content: of the file.
            lasting: whether it has to survive a power cut, which takes a few milliseconds on a disk.

        Raises:
            WriteError: the disk is full, or the place cannot be written.
        """

    @abstractmethod
    def read(self, name: str) -> bytes:
        """The content of a file; raises FileNotFoundError if it does not exist."""

    @abstractmethod
    def names(self, part: str) -> list[str]:
        """The names of the files directly in the subfolder `part`, in no order; empty if it does not exist."""

    @abstractmethod
    def size(self, part: str) -> int:
        """The bytes of the files in a subfolder; 0 if it does not exist."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Remove a file, if it exists."""

    def create(self, name: str, content: bytes) -> bool:
        """Write a file unless there is one, and say whether it was written.

        Nobody can come in between on this computer, and where a file system can create files exclusively. Elsewhere the
        file is read again a little later: of several that wrote at the same time, the last one has it.
        """
        if self.exists(name):
            return False
        self.write(name, content)
        time.sleep(SECONDS_TO_SETTLE)
        return self._holds(name, content)

    def take_over(self, name: str, before: bytes, content: bytes) -> bool:
        """Write a file in the place of one that has the content `before`, and say whether it was this call that did.

        Nobody can come in between on this computer. Elsewhere the file is read again a little later, as in `create`.
        """
        if not self._holds(name, before):
            return False
        self.delete(name)
        if not self.create(name, content):
            return False
        time.sleep(SECONDS_TO_SETTLE)
        return self._holds(name, content)

    def _holds(self, name: str, content: bytes) -> bool:
        try:
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
        """Write a file atomically. A folder in its place is set aside."""
        path = self.path / name
        if path.is_dir():
            self._set_aside(path)
        try:
            write_atomically(path, content, lasting)
        except WriteError as error:
            raise WriteError(path, error, stored=True) from error.__cause__

    def _set_aside(self, path: Path) -> None:
        """Move a folder that has the name of a file to `set-aside/`, since what is in it is not ours to remove."""
        aside = self.path / "set-aside" / f"{path.name}-{secrets.token_hex(4)}"
        aside.parent.mkdir(exist_ok=True)
        path.rename(aside)
        warnings.warn(f"{path} was a folder, and a file is needed there; it is now {aside}", stacklevel=4)

    def read(self, name: str) -> bytes:
        """The content of a file."""
        return (self.path / name).read_bytes()

    def create(self, name: str, content: bytes) -> bool:
        """Write a file unless there is one."""
        path = self.path / name
        beside = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.part")
        try:
            write_atomically(beside, content)
        except WriteError as error:
            raise WriteError(self.path, error) from error.__cause__
        try:
            os.link(beside, path)  # which fails if there is one, and otherwise makes the whole file appear at once
        except FileExistsError:
            return False
        except OSError:  # a file system without links
            return super().create(name, content)
        finally:
            beside.unlink(missing_ok=True)
        return True

    def take_over(self, name: str, before: bytes, content: bytes) -> bool:
        """Write a file in the place of one that has the content `before`, unless another call has done so."""
        path = self.path / name
        aside = self.path / f".{name}.{os.getpid()}-{threading.get_ident()}.part"
        try:
            path.rename(aside)  # which only one of several can do
        except FileNotFoundError:
            return False
        try:
            if aside.read_bytes() != before:  # it was replaced in the meantime, so it is put back
                with contextlib.suppress(OSError):
                    os.link(aside, path)
                return False
        finally:
            aside.unlink(missing_ok=True)
        return self.create(name, content)

    def names(self, part: str) -> list[str]:
        """The names of the files in a subfolder; files that are being written are left out."""
        try:
            with os.scandir(self.path / part) as entries:
                return [entry.name for entry in entries if not entry.name.startswith(".")]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def delete(self, name: str) -> None:
        """Remove a file, if it exists. A folder in its place is set aside."""
        path = self.path / name
        if path.is_dir():
            self._set_aside(path)
        path.unlink(missing_ok=True)

    def exists(self, name: str) -> bool:
        """Whether a file exists."""
        return (self.path / name).exists()

    def size(self, part: str) -> int:
        """The bytes of the files in a subfolder."""
        try:
            with os.scandir(self.path / part) as entries:
                return sum(entry.stat().st_size for entry in entries)
        except (FileNotFoundError, NotADirectoryError):
            return 0

    def sweep(self, part: str) -> None:
        """Remove incomplete files in `part` that are older than an hour: their writers were killed."""
        for leftover in (self.path / part).glob(".*.part"):
            try:
                stale = time.time() - leftover.stat().st_mtime > _STALE_SECONDS
            except FileNotFoundError:  # another writer has just finished it
                continue
            if stale:
                leftover.unlink(missing_ok=True)


class RemoteFolder(Folder):
    """A folder of an fsspec file system, such as `s3://bucket/results` or `memory://results`.

    Object stores write an object in one piece. In other file systems the file is written under another name and moved.
    """

    def __init__(self, address: str) -> None:
        import fsspec

        self.address = address
        try:
            self.system, self.root = fsspec.core.url_to_fs(address)
        except (ImportError, ValueError) as error:
            scheme = address.split("://")[0]
            if isinstance(error, ImportError):
                raise MissingExtraError(f"the address {address} ({error})", "remote") from error
            raise ArgumentError("address", "a folder, or an address that fsspec knows", f"{scheme}://") from error

    def _path(self, name: str) -> str:
        return f"{self.root.rstrip('/')}/{name}"

    def write(self, name: str, content: bytes, lasting: bool = True) -> None:
        """Write a file: at once, or under another name and then moved."""
        path = self._path(name)
        try:
            self.system.makedirs(path.rpartition("/")[0], exist_ok=True)
            if self.system.protocol in ("file", "sftp", "ssh", "smb", ("file", "local"), ("sftp", "ssh")):
                beside = f"{path}.{os.getpid()}-{threading.get_ident()}.part"
                self.system.pipe_file(beside, content)
                self.system.mv(beside, path)
            else:
                self.system.pipe_file(path, content)
        except OSError as error:
            raise WriteError(f"{self.address}/{name}", error, stored=True) from error

    def create(self, name: str, content: bytes) -> bool:
        """Write a file unless there is one: with a conditional write where the store has one."""
        protocol = self.system.protocol
        if _CONDITIONAL.isdisjoint([protocol] if isinstance(protocol, str) else protocol):
            return super().create(name, content)
        path = self._path(name)
        try:
            self.system.makedirs(path.rpartition("/")[0], exist_ok=True)
            self.system.pipe_file(path, content, mode="create")
            # a server or package that does not know the condition ignores it, and writes the same once more
            self.system.pipe_file(path, content, mode="create")
        except FileExistsError:
            return self._holds(name, content)
        except OSError as error:
            raise WriteError(f"{self.address}/{name}", error, stored=True) from error
        time.sleep(SECONDS_TO_SETTLE)
        return self._holds(name, content)

    def read(self, name: str) -> bytes:
        """The content of a file."""
        content: bytes = self.system.cat_file(self._path(name))
        return content

    def names(self, part: str) -> list[str]:
        """The names of the files in a subfolder."""
        self.system.invalidate_cache()  # other processes write here as well
        try:
            found: list[str] = self.system.ls(self._path(part), detail=False)
        except FileNotFoundError:
            return []
        names = (entry.rstrip("/").rpartition("/")[2] for entry in found)
        return [name for name in names if not name.endswith(".part")]

    def size(self, part: str) -> int:
        """The bytes of the files in a subfolder, as the file system lists them."""
        try:
            return sum(entry.get("size") or 0 for entry in self.system.ls(self._path(part), detail=True))
        except FileNotFoundError:
            return 0

    def delete(self, name: str) -> None:
        """Remove a file, if it exists."""
        try:
            self.system.rm_file(self._path(name))
        except FileNotFoundError:
            return

    def __getstate__(self) -> dict[str, Any]:
        return {"address": self.address}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["address"])  # type: ignore[misc]


def open_folder(address: str | Path) -> Folder:
    """A folder by its path, or by an address with a scheme.

    >>> type(open_folder("results")).__name__, type(open_folder("memory://results")).__name__
    ('LocalFolder', 'RemoteFolder')
    """
    text = str(address)
    if text.startswith("file://"):
        return LocalFolder(text.removeprefix("file://"))
    return RemoteFolder(text) if "://" in text and not isinstance(address, Path) else LocalFolder(text)


def write_atomically(path: Path, content: bytes, lasting: bool = True) -> None:
    """Write a file. It is either complete or absent, also after a crash.

    Args:
        path: of the file.
        content: of the file.
        lasting: whether it has to survive a power cut, too.

    Raises:
        WriteError: the disk is full, or the place cannot be written.
    """
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            if lasting:
                os.fsync(file.fileno())
        Path(temporary).chmod(0o666 & ~_umask())  # temporary files are private, results are not
        Path(temporary).replace(path)
        if lasting:
            _sync_folder(path.parent)
    except BaseException as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise WriteError(path, error) from error
        raise


def _sync_folder(folder: Path) -> None:
    """Make the new name of a file last through a power cut; a system that cannot open folders needs no such thing."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:  # some network file systems refuse it
        return
    finally:
        os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
