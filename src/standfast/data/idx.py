"""The IDX format of the MNIST files, plain or gzipped.

A file has two zero bytes, the type of the values, the number of dimensions, the sizes as 32-bit integers, and the
values in row-major order; all numbers are big-endian.
"""

from __future__ import annotations

import gzip
import io
import math
import struct
import zlib
from pathlib import Path

import torch
from torch import Tensor

from standfast.errors import ArgumentError, check
from standfast.files import find_room, read_file

UNSIGNED_BYTE = 0x08  # the only type of value that the MNIST files use
GZIP_MAGIC = b"\x1f\x8b"


def read_idx(path: Path, dimensions: int) -> Tensor:
    """Read the unsigned bytes of the IDX file at `path`, as a uint8 tensor with `dimensions` dimensions.

    Raises `ArgumentError`, with the path, if the header, the sizes or the length of the file are wrong.
    """
    content = _read_content(path)
    header = 4 + 4 * dimensions
    check(len(content) >= header, str(path), f"an IDX file, at least {header} bytes", f"{len(content)} bytes")
    magic, expected = content[:4], bytes([0, 0, UNSIGNED_BYTE, dimensions])
    check(
        magic == expected,
        str(path),
        f"the IDX magic number {int.from_bytes(expected)} (unsigned bytes in {dimensions} dimensions)",
        int.from_bytes(magic),
    )
    sizes = struct.unpack(f">{dimensions}I", content[4:header])
    check(min(sizes) >= 1, str(path), "no empty dimension", f"sizes {sizes}")
    values = len(content) - header
    check(
        values == math.prod(sizes),
        str(path),
        f"{math.prod(sizes)} values for sizes {sizes}",
        f"{values} values",
    )
    return torch.frombuffer(bytearray(content), dtype=torch.uint8, offset=header).reshape(sizes)


def _read_content(path: Path) -> bytes:
    raw = read_file(path)
    if not raw.startswith(GZIP_MAGIC):
        return raw
    most = find_room(len(raw))
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(raw)) as packed:
            content = packed.read(most + 1)
    except (EOFError, OSError, zlib.error) as error:
        raise ArgumentError(str(path), "a complete gzip file", f"a broken file ({error})") from error
    check(len(content) <= most, str(path), f"at most {most:,} bytes when it is unpacked", "more")
    return content
