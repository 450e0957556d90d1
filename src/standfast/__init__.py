"""standfast: how far can the explanations of a trained model be trusted?

Nothing is imported until it is asked for: `import standfast` takes milliseconds, and `standfast.data` brings the data
sets without the metrics. `dir(standfast)` shows all names from the start.
"""

import logging
import os
from importlib import import_module
from typing import TYPE_CHECKING

# Otherwise the last bits of matrix products depend on where in memory a row lies, on AMD's CPUs and on those without
# AVX-512. MKL reads it at the first product. It costs no time.
os.environ.setdefault("MKL_CBWR", "AUTO")
# Otherwise threads spin while they wait for each other, and small networks take five times as long where something else
# runs on one of the cores. OpenMP reads it when torch is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

if TYPE_CHECKING:
    from standfast import (
        algorithms,
        data,
        explainers,
        frames,
        metrics,
        neighbourhoods,
        similarity,
        tasks,
        zoo,
    )
    from standfast.checks import check
    from standfast.errors import ArgumentError, MissingExtraError, ModelError, StandfastError
    from standfast.evaluation import estimate, evaluate, run_study
    from standfast.frames import Table
    from standfast.model import Model
    from standfast.neighbourhoods import Compose, L2Ball, LinfBall, Neighbourhood
    from standfast.question.explanations import explain
    from standfast.race import choose
    from standfast.reason_cards import background_curve, reasons
    from standfast.report import Results, load_results
    from standfast.report.plots import show
    from standfast.texts import AnswerModel, CausalModel, Prompt, TextModel

    __version__: str

__all__ = [
    "AnswerModel",
    "ArgumentError",
    "CausalModel",
    "Compose",
    "L2Ball",
    "LinfBall",
    "MissingExtraError",
    "Model",
    "ModelError",
    "Neighbourhood",
    "Prompt",
    "Results",
    "StandfastError",
    "Table",
    "TextModel",
    "__version__",
    "algorithms",
    "background_curve",
    "check",
    "choose",
    "data",
    "estimate",
    "evaluate",
    "explain",
    "explainers",
    "frames",
    "load_results",
    "metrics",
    "neighbourhoods",
    "reasons",
    "run_study",
    "show",
    "similarity",
    "tasks",
    "zoo",
]

# silent unless the user asks for messages
logging.getLogger("standfast").addHandler(logging.NullHandler())

#: the modules of the public names that are no modules themselves
_HOMES = {
    "checks": ("check",),
    "errors": ("ArgumentError", "StandfastError", "MissingExtraError", "ModelError"),
    "evaluation": ("estimate", "evaluate", "run_study"),
    "frames": ("Table",),
    "model": ("Model",),
    "neighbourhoods": ("Compose", "L2Ball", "LinfBall", "Neighbourhood"),
    "report.plots": ("show",),
    "question.explanations": ("explain",),
    "race": ("choose",),
    "reason_cards": ("background_curve", "reasons"),
    "texts": ("AnswerModel", "CausalModel", "Prompt", "TextModel"),
    "report": ("Results", "load_results"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def _get(name: str) -> object:
    """A public name at its first use (PEP 562); it is an ordinary attribute from then on."""
    if name == "__version__":
        from standfast.errors import find_version

        value: object = find_version()
    elif name in _HOME_OF:
        value = getattr(import_module(f"standfast.{_HOME_OF[name]}"), name)
    elif name.startswith("_"):
        # private names are none of our modules, so nothing is imported to look for them
        raise AttributeError(f"module 'standfast' has no attribute {name!r}")
    else:
        try:
            value = import_module(f"standfast.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"standfast.{name}":  # it is there, and something that it needs is not
                raise
            raise AttributeError(f"module 'standfast' has no attribute {name!r}") from None
    # so the next use finds it in the module, and does not come here again
    globals()[name] = value
    return value


if not TYPE_CHECKING:  # type checkers would take any name for granted
    __getattr__ = _get


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
