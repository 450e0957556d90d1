"""Tables and figures of papers, run as studies: `holdfast reproduce senc-mnist --scale small`."""

from holdfast.reproduce import c_eval, coarse, lens, safari, safari_cifar, safari_imagenet, senc
from holdfast.reproduce.base import (
    Reproduction,
    Table,
    read_table,
    reproduce,
    reproductions,
    write_studies,
)
from holdfast.reproduce.printing import print_table

__all__ = [
    "Reproduction",
    "Table",
    "c_eval",
    "coarse",
    "lens",
    "print_table",
    "read_table",
    "reproduce",
    "reproductions",
    "safari",
    "safari_cifar",
    "safari_imagenet",
    "senc",
    "write_studies",
]
