"""A seal: the SHA-256 of a file, written within the file itself, so that one atomic write brings both.

The file is made with an empty seal, hashed, and the hash put in its place. A Parquet file has it in its metadata, a
safetensors file in its header, a JSON file as one of its entries.

>>> content = fill_seal(b'{"numbers": [1, 2], "seal": "' + EMPTY_SEAL.encode() + b'"}')
>>> is_intact(content), is_intact(content.replace(b"2", b"3", 1)), is_intact(b"{}")
(True, False, False)
"""

from __future__ import annotations

import hashlib

_PREFIX = b"standfast-sha256-"
_DIGITS = 64
#: what a writer puts where the seal will be
EMPTY_SEAL = (_PREFIX + b"0" * _DIGITS).decode()


def fill_seal(content: bytes) -> bytes:
    """The content of a file with its seal in the place of the empty one."""
    digits_start = _find(content)
    assert digits_start is not None, "the content has no place for a seal"
    return (
        content[:digits_start]
        + hashlib.sha256(content).hexdigest().encode()
        + content[digits_start + _DIGITS :]
    )


def is_intact(content: bytes) -> bool:
    """Whether the content is what was sealed."""
    digits_start = _find(content)
    return digits_start is not None and content == fill_seal(
        content[:digits_start] + b"0" * _DIGITS + content[digits_start + _DIGITS :]
    )


def _find(content: bytes) -> int | None:
    """Where the digits of the seal begin. In a Parquet file the metadata come last, in other files first."""
    # the place is found by the kind of file, since rows may contain the prefix as text
    if content[:4] == b"PAR1":
        prefix_start = content.rfind(_PREFIX)
    else:
        prefix_start = content.find(_PREFIX)
    if prefix_start < 0:
        return None
    return prefix_start + len(_PREFIX)
