"""holdfast: how far can the explanations of a trained classifier be trusted to hold fast?"""

from importlib.metadata import version

from holdfast import algorithms, data, explainers, metrics, similarity, zoo
from holdfast.errors import ArgumentError, HoldfastError, MissingExtraError, ModelError
from holdfast.evaluation import Evaluation, evaluate, run_study
from holdfast.model import Classifier
from holdfast.neighbourhood import L2Ball, LinfBall, Neighbourhood
from holdfast.study.results import Results, load_results

__version__ = version("holdfast")

__all__ = [
    "ArgumentError",
    "Classifier",
    "Evaluation",
    "HoldfastError",
    "L2Ball",
    "LinfBall",
    "MissingExtraError",
    "ModelError",
    "Neighbourhood",
    "Results",
    "__version__",
    "algorithms",
    "data",
    "evaluate",
    "explainers",
    "load_results",
    "metrics",
    "run_study",
    "similarity",
    "zoo",
]
