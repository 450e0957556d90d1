"""Small networks for the synthetic waves, by name: trained by `scripts/train_series.py`, with weights in the zoo.

They are the architectures of Wei, Turbe and Mengaldo (2024), App. C, with fewer channels, and with strides or patches
that reduce 500 steps to 125 or 250. So a CPU trains each in minutes. The published sizes are the defaults of the
classes.

>>> sorted(SERIES_MODELS)
['bilstm-waves', 'cnn-waves', 'transformer-waves']
>>> sorted(name for name in BUNDLED if name.startswith("cnn-waves"))[:3]
['cnn-waves', 'cnn-waves-calibrated', 'cnn-waves10db']
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import nn

from standfast.zoo.networks.bilstm import BiLSTM
from standfast.zoo.networks.series_cnn import SeriesCNN
from standfast.zoo.networks.series_transformer import SeriesTransformer

SERIES_MODELS: dict[str, Callable[[], nn.Module]] = {
    "cnn-waves": partial(SeriesCNN, width=32, stride=2, dropout=0.1, hidden=32),
    "bilstm-waves": partial(BiLSTM, units=(32, 32), patch=4, hidden=64),
    "transformer-waves": partial(
        SeriesTransformer, stem=(32, 32), strides=(2, 2), layers=2, feedforward=64, dropout=0.1
    ),
}

#: endings of their names: trained on series without noise; with the calibrated loss; on series with noise, in dB
VARIANTS = ("", "-calibrated", "20db", "15db", "10db")

#: all models of series that the zoo has weights of
BUNDLED: dict[str, Callable[[], nn.Module]] = {}
for _name, _architecture in SERIES_MODELS.items():
    BUNDLED.update({f"{_name}{end}": _architecture for end in VARIANTS})
