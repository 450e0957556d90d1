"""Tables and figures of six papers, reproduced by studies: `standfast reproduce senc-mnist --scale small`."""

from standfast.reproduce.base import (
    Reproduction,
    Table,
    read_table,
    reproduce,
    reproductions,
    write_studies,
)
from standfast.reproduce.c_eval import figures as c_eval
from standfast.reproduce.coarse_to_fine import synthetic as coarse
from standfast.reproduce.fass import tables as fass
from standfast.reproduce.lens import tables as lens
from standfast.reproduce.printing import print_table
from standfast.reproduce.safari import cifar as safari_cifar
from standfast.reproduce.safari import imagenet as safari_imagenet
from standfast.reproduce.safari import tables as safari
from standfast.reproduce.senc import figures as senc

__all__ = [
    "Reproduction",
    "Table",
    "c_eval",
    "coarse",
    "fass",
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
