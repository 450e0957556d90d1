"""How alike two attribution maps are: a class for each similarity, and a registry of them.

Some compare maps feature by feature, or by the order of the features. They accept maps `(N, ...)` of any shape. Others
use the positions of the values in the image or series (`local`, `profile`). For these, `channels` says how a map is
reduced to one value per position before it is compared. Half precision is computed in float32, and a row that holds a
NaN or an infinity has the similarity NaN.

>>> import torch
>>> from standfast import similarity
>>> similarity.names()[:6]
['centre_of_mass', 'cosine', 'kendall', 'lens_distance', 'lens_kendall', 'lens_precision']
>>> similarity.names()[6:]
['lens_recall', 'lens_spearman', 'mse', 'pearson', 'spearman', 'ssim', 'topk_intersection']
>>> top = similarity.get("topk_intersection:k=1")
>>> top(torch.tensor([[1.0, 3.0, 2.0]]), torch.tensor([[0.0, 3.0, 1.0]]))
tensor([1.])
>>> top.name, top.low, top.high
('topk_intersection:k=1', 0.4, 0.6)
"""

from standfast.similarity.base import Similarity, get, names, similarities
from standfast.similarity.chance import ChanceLevel, correct_for_chance
from standfast.similarity.diverse import top_k, top_k_diverse
from standfast.similarity.local import (
    CentreOfMass,
    LensKendall,
    LensPrecision,
    LensRecall,
    LensSpearman,
    TopKIntersection,
    mass_centre,
)
from standfast.similarity.pointwise import MSE, Cosine, Pearson
from standfast.similarity.profile import LensDistance, LensProfile, lens_profile
from standfast.similarity.rank import Kendall, Spearman
from standfast.similarity.rows import is_degenerate
from standfast.similarity.structural import SSIM
from standfast.similarity.windows import Channels, dilate, per_position, smooth

__all__ = [
    "MSE",
    "SSIM",
    "CentreOfMass",
    "ChanceLevel",
    "Channels",
    "Cosine",
    "Kendall",
    "LensDistance",
    "LensKendall",
    "LensPrecision",
    "LensProfile",
    "LensRecall",
    "LensSpearman",
    "Pearson",
    "Similarity",
    "Spearman",
    "TopKIntersection",
    "correct_for_chance",
    "dilate",
    "get",
    "is_degenerate",
    "lens_profile",
    "mass_centre",
    "names",
    "per_position",
    "similarities",
    "smooth",
    "top_k",
    "top_k_diverse",
]
