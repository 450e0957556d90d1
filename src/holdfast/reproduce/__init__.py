"""Tables and figures of six papers, reproduced by studies: `holdfast reproduce senc-mnist --scale small`."""

from holdfast.reproduce.base import (
    Reproduction,
    Table,
    read_table,
    reproduce,
    reproductions,
    write_studies,
)
from holdfast.reproduce.c_eval import figures as c_eval
from holdfast.reproduce.coarse_to_fine import synthetic as coarse
from holdfast.reproduce.fass import tables as fass
from holdfast.reproduce.lens import tables as lens
from holdfast.reproduce.printing import print_table
from holdfast.reproduce.safari import cifar as safari_cifar
from holdfast.reproduce.safari import imagenet as safari_imagenet
from holdfast.reproduce.safari import tables as safari
from holdfast.reproduce.senc import figures as senc

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
