"""Make the bundled sample of digits, src/standfast/data/assets/digits.npz, from the MNIST test set.

    STANDFAST_DATA=<folder with mnist/> python scripts/make_bundled_digits.py

The first 30 digits of each class, in the order of the test set, are interleaved: the first of each class
0..9, the second of each, and so on. Stored as unsigned bytes; `digits.txt` beside the file says where they
are from.
"""

from __future__ import annotations

import argparse
import io
from pathlib import Path

import numpy as np

from standfast import data

ASSETS = Path(__file__).resolve().parents[1] / "src" / "standfast" / "data" / "assets"
PER_CLASS = 30
PROVENANCE = """\
digits.npz: 300 of the 10,000 digits of the MNIST test set, unchanged: the first 30 of each class in the
order of the test set, interleaved (0, 1, ..., 9, 0, 1, ...). Made by scripts/make_bundled_digits.py.

MNIST is by Yann LeCun and Corinna Cortes; it is a subset of data from NIST. Licence of the data, and so of
digits.npz: Creative Commons Attribution-ShareAlike 3.0, https://creativecommons.org/licenses/by-sa/3.0/

Y. LeCun, L. Bottou, Y. Bengio and P. Haffner, Gradient-based learning applied to document recognition,
Proceedings of the IEEE 86(11):2278-2324, 1998.
"""


def interleaved_digits() -> data.Dataset:
    test = data.mnist("test")
    order = [
        (test.labels == label).nonzero().squeeze(1)[:PER_CLASS]
        for label in range(len(test.classes))
    ]
    return test.take([int(index) for indices in zip(*order, strict=True) for index in indices])


def write(path: Path, content: bytes) -> None:
    """All of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".part")
    unfinished.write_bytes(content)
    unfinished.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the bundled sample of digits.")
    parser.add_argument("--folder", type=Path, default=ASSETS, help="where the files go")
    folder: Path = parser.parse_args().folder
    digits = interleaved_digits()
    content = io.BytesIO()
    np.savez_compressed(
        content,
        inputs=(digits.inputs * 255).round().byte().numpy(),
        labels=digits.labels.byte().numpy(),
        classes=np.array(digits.classes),
    )
    write(folder / "digits.npz", content.getvalue())
    write(folder / "digits.txt", PROVENANCE.encode())


if __name__ == "__main__":
    main()
