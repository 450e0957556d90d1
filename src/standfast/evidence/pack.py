"""Make an evidence pack, and verify it.

A pack is a folder. `evidence.json` lists every other file with its size and SHA-256, and has its own SHA-256 in it. So
a change of any file, a missing one and an added one are found. Somebody who changes a file can write a new
`evidence.json` as well. Two things show that: the digest that `standfast evidence` prints, if it was noted elsewhere;
and a signature, if the public key is known from elsewhere.

The digest is that of the whole pack: it depends on every byte of every file but the signature and its key.
"""

from __future__ import annotations

import hashlib
import json
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from standfast.checks.decision import Decisions
from standfast.checks.formats import FORMATS
from standfast.checks.sequence import confirm_decisions, read_decisions
from standfast.errors import ArgumentError, MissingExtraError, StandfastError, check
from standfast.evidence.crosswalk import write_crosswalk
from standfast.evidence.model_card import write_model_card
from standfast.evidence.pages import fill_page
from standfast.evidence.software import describe_software
from standfast.files import read_file, write_atomically
from standfast.report import build_html, exports, load_results
from standfast.results import Results, verify_results
from standfast.study.store import LOOKS

LIST, SIGNATURE, KEY = "evidence.json", "evidence.sig", "evidence.pub"
_SCHEMA = 1
#: what was decided, by the format
_CHECKS = {"check.json": "json", "check.md": "markdown"}


@dataclass(frozen=True)
class PackVerification:
    """What `verify_pack` found.

    Attributes:
        digest: SHA-256 of `evidence.json`, which stands for the whole pack.
        files: how many files it lists.
        problems: what is wrong, by the name of the file.
        unconfirmed: decisions against a baseline that is not here, so that they were not made again.
        signed: None without a signature; else whether it is that of the key in the pack, or of the given key.
        key: the fingerprint of the key that the signature is of; empty without one.
    """

    digest: str
    files: int
    problems: dict[str, str]
    unconfirmed: tuple[str, ...] = ()
    signed: bool | None = None
    key: str = ""

    @property
    def fine(self) -> bool:
        """Whether nothing was changed, and a signature, if there is one, is right."""
        return not self.problems


def make_pack(
    results: str | Path | Results, out: str | Path, key: str | Path | None = None, arrays: bool = False
) -> PackVerification:
    """Make an evidence pack of stored results, in a new folder.

    Args:
        results: a folder or an fsspec address of stored results, or opened ones.
        out: the folder of the pack.
        key: a file with an ed25519 private key in PEM format without a password, which signs the pack.
        arrays: also the stored arrays, which are the inputs, the maps and the curves of each sample.

    Returns:
        The verification of the pack that was made.

    Raises:
        ArgumentError: no results, damaged ones, ones whose numbers do not give what was decided, a folder that is not
            empty, or no such key.
        MissingExtraError: a key without the package cryptography.
    """
    opened = results if isinstance(results, Results) else load_results(results)
    folder = Path(out)
    empty = not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))
    check(empty, "out", "a new or an empty folder", str(out))
    private = None if key is None else _load_key(_read_key_file(Path(key)), str(key), public=False)
    done = opened.jobs.height - len(opened.failures)
    check(done > 0, "results", "results with a job that is done", repr(opened))
    stored = verify_results(opened.store)
    fine = "results of which every file is as it was written (see `standfast verify`)"
    check(not stored.damaged, "results", fine, f"{len(stored.damaged)} damaged files")
    decisions, confirmed = read_decisions(opened), confirm_decisions(opened)
    numbers = "decisions that the stored numbers give (decide again: `standfast check`)"
    check(not confirmed.different, "results", numbers, f"others in {LOOKS}: {'; '.join(confirmed.different)}")
    files = _write_parts(opened, decisions, private is not None)
    _copy_results(opened, files, arrays)
    listed = {name: {"sha256": _digest(content), "bytes": len(content)} for name, content in sorted(files.items())}
    listing = _seal(
        {
            "standfast_evidence": _SCHEMA,
            "created": _now(),
            "results": _describe_results(opened),
            "outcome": None if decisions is None else decisions.outcome,
            "files": listed,
        }
    )
    for name, content in files.items():
        write_atomically(folder / name, content, lasting=False)
    if private is not None:
        write_atomically(folder / KEY, _write_key(private.public_key()))
        write_atomically(folder / SIGNATURE, private.sign(listing))
    write_atomically(folder / LIST, listing)
    return verify_pack(folder)


def verify_pack(path: str | Path, key: str | Path | None = None) -> PackVerification:
    """Compare every file of a pack with its digest, its decisions with its numbers, and the signature with the key.

    Args:
        path: the folder.
        key: a file with the public key (PEM) that must have signed the pack; None for the key in the pack, which only
            shows that the pack was signed by whoever added that key.

    Raises:
        ArgumentError: no evidence pack, or no such key.
        MissingExtraError: a signature or a key without the package cryptography.
    """
    folder = Path(path)
    check((folder / LIST).is_file(), "path", f"an evidence pack, which has the file {LIST}", str(path))
    content = read_file(folder / LIST)
    problems: dict[str, str] = {}
    listed: dict[str, Any] = {}
    try:
        about = json.loads(content)
        if about.get("standfast_evidence") != _SCHEMA:
            problems[LIST] = f"not of version {_SCHEMA}"
        if _seal({name: value for name, value in about.items() if name != "seal"}) != content:
            problems[LIST] = "changed: its own SHA-256 differs"
        listed = dict(about["files"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        problems[LIST] = f"damaged: {error}"
    places = ((place, place.lstat().st_mode) for place in sorted(folder.rglob("*")))
    present = {place.relative_to(folder).as_posix(): mode for place, mode in places if not stat.S_ISDIR(mode)}
    for name, entry in listed.items():
        if name not in present:
            problems[name] = "missing"
        elif stat.S_ISREG(present[name]) and not _is_as_listed(folder / name, entry):
            problems[name] = "changed: its SHA-256 differs"
    for name, mode in present.items():
        if stat.S_ISLNK(mode):
            problems[name] = "a link to elsewhere"
        elif not stat.S_ISREG(mode):
            problems[name] = "neither a file nor a folder"
        elif name not in listed and name not in (LIST, SIGNATURE, KEY):
            problems[name] = "not listed: added later"
    signed, fingerprint = _check_signature(folder, content, key, problems)
    unconfirmed = () if problems else _decide_again(folder, listed, problems)
    return PackVerification(_digest(content), len(listed), problems, unconfirmed, signed, fingerprint)


def _decide_again(folder: Path, listed: Mapping[str, Any], problems: dict[str, str]) -> tuple[str, ...]:
    """Decide the requirements again from the numbers of a pack, and add what differs to the problems."""
    try:
        results = load_results(folder / "results")
        decisions, confirmed = read_decisions(results), confirm_decisions(results)
    except Exception as error:  # somebody may have sealed anything
        problems["results"] = str(error) if isinstance(error, StandfastError) else f"cannot be read: {error!r}"
        return ()
    if confirmed.different:
        problems[f"results/{LOOKS}"] = f"not what the numbers give: {'; '.join(confirmed.different)}"
    for name, form in _CHECKS.items():
        expected = None if decisions is None else _digest(FORMATS[form](decisions).encode())
        if (listed.get(name) or {}).get("sha256") != expected:
            problems[name] = f"not what results/{LOOKS} says"
    return confirmed.unknown


def _is_as_listed(file: Path, entry: object) -> bool:
    """Whether a file has the size and the SHA-256 of its entry."""
    if not isinstance(entry, dict) or file.stat().st_size != entry.get("bytes"):
        return False
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest() == entry.get("sha256")


def _write_parts(results: Results, decisions: Decisions | None, signed: bool) -> dict[str, bytes]:
    """The files that are made for the pack, by name."""
    with tempfile.TemporaryDirectory() as place:
        samples = exports.to_parquet(results, Path(place) / "samples.parquet").read_bytes()
    files = {
        "report.html": build_html(results).encode(),
        "samples.parquet": samples,
        "summary.csv": exports.to_csv(results, what="summary").encode(),
        "MODEL_CARD.md": write_model_card(results, decisions).encode(),
        "CROSSWALK.md": write_crosswalk(results, decisions).encode(),
        "software.cdx.json": describe_software().encode(),
    }
    if decisions is not None:
        files |= {name: FORMATS[form](decisions).encode() for name, form in _CHECKS.items()}
    version = (results.manifest.get("environment") or {}).get("standfast", "?")
    title = (results.manifest.get("about") or {}).get("title") or ""
    about = {"version": version, "date": _now()[:10], "title": title, "decided": decisions is not None}
    files["README.md"] = fill_page("README.md", **about, signed=signed).encode()
    return files


def _copy_results(results: Results, files: dict[str, bytes], arrays: bool) -> None:
    """Add the stored results: the manifest, the jobs, the looks, and the arrays if they are wanted."""
    folder = results.store.folder
    parts = ["jobs", *(["artefacts"] if arrays else [])]
    names = ["manifest.json", *(f"{part}/{name}" for part in parts for name in folder.names(part))]
    names += [name for name in (LOOKS,) if folder.exists(name)]
    for name in names:
        files[f"results/{name}"] = folder.read(name)


def _describe_results(results: Results) -> dict[str, Any]:
    """Digests and seeds, from the manifest."""
    manifest = results.manifest
    digests = {
        section: {name: (about or {}).get("digest") for name, about in (manifest.get(section) or {}).items()}
        for section in ("data", "models")
    }
    return {
        **digests,
        "code": manifest.get("code") or {},
        "sanity": manifest.get("sanity"),
        "seed": manifest.get("seed"),
        "repeats": manifest.get("repeats"),
        "jobs": results.planned,
        "failed": len(results.failures),
        "missing": results.missing,
    }


def _seal(content: dict[str, Any]) -> bytes:
    """The only bytes that this content has: sorted, with the SHA-256 of the rest in it."""
    sealed = hashlib.sha256(_dump(content)).hexdigest()
    return _dump({**content, "seal": sealed})


def _dump(content: dict[str, Any]) -> bytes:
    return (json.dumps(content, indent=1, sort_keys=True, ensure_ascii=True) + "\n").encode()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


# Signatures


def _load_key(content: bytes, place: str, public: bool) -> Any:
    """An ed25519 key in PEM format."""
    crypto = _import_cryptography()
    kind = crypto.ed25519.Ed25519PublicKey if public else crypto.ed25519.Ed25519PrivateKey
    expected = f"a file with an ed25519 {'public' if public else 'private'} key in PEM format, without a password"
    try:
        if public:
            found = crypto.serialization.load_pem_public_key(content)
        else:
            found = crypto.serialization.load_pem_private_key(content, password=None)
    except (ValueError, TypeError, crypto.exceptions.UnsupportedAlgorithm) as error:
        raise ArgumentError("key", expected, f"{place}, which is none") from error
    check(isinstance(found, kind), "key", expected, f"{place}, a key of another kind")
    return found


def _read_key_file(path: Path) -> bytes:
    try:
        return read_file(path)
    except OSError as error:
        raise ArgumentError("key", "a file with a key", f"{path}: {error.strerror}") from error


def _import_cryptography() -> Any:
    """The package, with the parts that are used."""
    try:
        import cryptography.exceptions
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise MissingExtraError("cryptography", "evidence") from error
    return SimpleNamespace(exceptions=cryptography.exceptions, serialization=serialization, ed25519=ed25519)


def _write_key(public: Any) -> bytes:
    """The only bytes that a pack has for a public key."""
    serialization = _import_cryptography().serialization
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    content: bytes = public.public_bytes(serialization.Encoding.PEM, form)
    return content


def _check_signature(
    folder: Path, content: bytes, key: str | Path | None, problems: dict[str, str]
) -> tuple[bool | None, str]:
    """Whether the signature is right, and the key's fingerprint; adds to the problems."""
    signature, own = folder / SIGNATURE, folder / KEY
    if not signature.is_file():
        if key is not None:
            problems[SIGNATURE] = "missing: the pack is not signed"
        elif own.exists():
            problems[SIGNATURE] = "missing, though there is a public key"
        return (False if key is not None else None), ""
    if not own.is_file():
        problems[KEY] = "missing"
        if key is None:
            return False, ""
    try:
        public = _load_key(_read_key_file(own if key is None else Path(key)), str(key or KEY), public=True)
    except ArgumentError:
        if key is not None:
            raise
        problems[KEY] = "damaged: not a public key"
        return False, ""
    if own.is_file() and read_file(own) != _write_key(public):
        problems[KEY] = "changed" if key is None else "another key than the given one"
    fingerprint = _digest(public.public_bytes_raw())[:16]
    try:
        public.verify(read_file(signature), content)
    except _import_cryptography().exceptions.InvalidSignature:
        problems[SIGNATURE] = "not the signature of this list by this key"
        return False, fingerprint
    return True, fingerprint


def is_pack(path: str | Path) -> bool:
    """Whether a folder is an evidence pack."""
    return (Path(path) / LIST).is_file()
