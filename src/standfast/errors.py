"""Exceptions, and checks of arguments. A message names the argument, what was expected and what was given."""

from __future__ import annotations

import difflib
import math
import operator
import re
import sys
import unicodedata
import warnings
from collections.abc import Iterable, Sequence
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import FrameType
from typing import Any, TypeGuard

#: what is expected of inputs, and what to do about cells without a value
FINITE = "finite values (impute missing ones, as by the column's mean; another column can say which were missing)"
_PACKAGE = str(Path(__file__).parent)
#: the numbers of a tensor, an array or a list as Python shows them
_NUMBERS = re.compile(
    r"[\[(](?:[-+\d.,\s\[\]()]|tensor|array|nan|inf|True|False|e[-+]|dtype=[\w.]+|grad_fn=<\w+>){100,}"
)


def shorten_numbers(text: str) -> str:
    """A text in which tensors, arrays and lists show only their first numbers, in one line.

    >>> shorten_numbers(f"got {[0.25] * 1000}")
    'got [0.25, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25, ...'
    """
    return _NUMBERS.sub(
        lambda found: " ".join(found[0].split())[:61].rpartition(" ")[0] + " ...", text
    )


def make_printable(text: str) -> str:
    r"""A text in which control characters, invisible ones and halves of pairs stand as escapes; lines and tabs stay.

    >>> make_printable("\x1b[2Ja\u202eb\ud800\tç\n")
    '\\x1b[2Ja\\u202eb\\ud800\tç\n'
    """
    return "".join(map(_make_character_printable, text))


def _make_character_printable(char: str) -> str:
    is_control = unicodedata.category(char)[0] == "C" and char not in "\n\t"
    if is_control:
        return char.encode("unicode_escape").decode()
    return char


class StandfastError(Exception):
    """Base class of every exception that standfast raises on purpose. No message has all numbers of a tensor."""

    def __init__(self, *parts: object) -> None:
        super().__init__(
            *(shorten_numbers(part) if isinstance(part, str) else part for part in parts)
        )


class ArgumentError(StandfastError, ValueError):
    """An argument has a type, shape or value that the function does not accept.

    >>> raise ArgumentError("radius", "a number above 0", -1)
    Traceback (most recent call last):
        ...
    standfast.errors.ArgumentError: radius: expected a number above 0, got -1
    """

    def __init__(self, argument: str, expected: str, got: object) -> None:
        self.argument = argument
        self.expected = expected
        self.got = got
        super().__init__(f"{argument}: expected {expected}, got {got}")


class ModelError(StandfastError, RuntimeError):
    """The user's module does not behave like a model on these inputs."""


class FailedModuleError(ModelError):
    """The user's module or function raised an error of its own, or returned something that cannot be used."""


class SecondDerivativeError(ModelError):
    """The user's module cannot be differentiated twice, as a white-box search or attack needs."""


class NoGradientsError(ModelError):
    """What was to be differentiated has no gradients: a function (`Model.from_callable`), or the user's module."""


class MissingExtraError(StandfastError, ImportError):
    """An optional package is missing. The message names the extra that installs it."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an optional dependency: pip install 'standfast[{extra}]'")


class UnknownNameError(ArgumentError):
    """A name is not in a registry; the message suggests the nearest. `name` is the unknown name, `names` are all."""

    def __init__(self, kind: str, name: object, names: Iterable[str]) -> None:
        self.name, self.names = name, sorted(names)
        names = self.names
        near = suggest_name(name, names)
        super().__init__(kind, f"one of {', '.join(names)}", f"{name!r}{near}")


#: what other packages (Captum, Quantus, shap, LIME, Foolbox) call an option, and what it is called here
SYNONYMS = {
    **dict.fromkeys(
        ("n_steps", "num_steps", "iterations", "n_iter", "num_iter", "max_iter"), ("steps",)
    ),
    **dict.fromkeys(
        (
            "n_samples",
            "nb_samples",
            "num_samples",
            "nsamples",
            "nt_samples",
            "nr_samples",
            "n_perturb_samples",
        ),
        ("samples", "permutations", "particles"),
    ),
    **dict.fromkeys(("n_masks", "num_masks", "nr_masks"), ("masks", "samples")),
    **dict.fromkeys(
        ("baselines", "perturb_baseline", "reference"), ("baseline", "background", "replacement")
    ),
    **dict.fromkeys(
        ("references", "background_data", "feature_background"), ("background", "baseline")
    ),
    **dict.fromkeys(
        ("eps", "epsilon", "epsilons", "perturb_radius", "perturb_std"), ("radius", "neighbourhood")
    ),
    **dict.fromkeys(("stdevs", "std", "stdev", "noise_level"), ("sigma", "noise")),
    **dict.fromkeys(("sliding_window_shapes", "patch_size", "window"), ("size", "region", "width")),
    **dict.fromkeys(("strides",), ("stride",)),
    **dict.fromkeys(("feature_mask", "segmentation"), ("segments",)),
    **dict.fromkeys(("similarity_func", "sim_func", "metric"), ("similarity",)),
    **dict.fromkeys(("normalize", "normalise_attributions"), ("normalise",)),
    **dict.fromkeys(("max_evals", "n_evals", "max_queries", "n_queries"), ("budget",)),
    **dict.fromkeys(("topk", "top_k", "num_features"), ("k", "fraction")),
    **dict.fromkeys(("random_state", "random_seed"), ("seed",)),
    **dict.fromkeys(("target_layer", "layer_name"), ("layer",)),
    **dict.fromkeys(("normal", "gaussian"), ("truncated_normal",)),
}
#: options of other packages that belong to another place here
ELSEWHERE = {
    **dict.fromkeys(
        ("internal_batch_size", "batch_size", "perturbations_per_eval"),
        "the batch size belongs to the model: standfast.Model(module, bounds, batch_size=...)",
    ),
    **dict.fromkeys(
        ("device",), "the device belongs to the model: standfast.Model(module, bounds, device=...)"
    ),
    **dict.fromkeys(
        ("target", "targets"),
        "targets are an argument of the call: standfast.evaluate(..., targets=...)",
    ),
    **dict.fromkeys(
        ("multiply_by_inputs",),
        "input x gradient is an explainer of its own, and integrated gradients multiply",
    ),
    **dict.fromkeys(
        ("display_progressbar", "show_progress"),
        "progress is an argument of the call: standfast.evaluate(..., progress=...)",
    ),
}


def nearest_name(name: object, known: Iterable[str]) -> str | None:
    """The known name that somebody may have meant: what other packages call it so, the one spelled most like it, or the
    shortest that contains it.

    >>> nearest_name("n_steps", ["steps", "baseline"]), nearest_name("radios", ["radius", "norm"])
    ('steps', 'radius')
    >>> nearest_name("rollout", ["lrp", "attention_rollout"])
    'attention_rollout'
    """
    names = list(known)
    # a name of another package wins over one that is spelled alike
    synonyms = (other for other in SYNONYMS.get(str(name).lower(), ()) if other in names)
    near = difflib.get_close_matches(str(name), names, n=1)
    # three letters are a part of too many names
    if not near and len(str(name)) > 3:
        near = sorted(
            (other for other in names if str(name).lower() in str(other).lower()), key=len
        )[:1]
    nearest = near[0] if near and near[0] != name else None
    return next(synonyms, nearest)


def suggest_name(name: object, names: Iterable[str]) -> str:
    """A hint at the name that may be meant, for the end of a message; empty if there is none.

    >>> suggest_name("radios", ["radius", "norm"])
    " (did you mean 'radius'?)"
    """
    near = nearest_name(name, names)
    if near is None and str(name) in ELSEWHERE:
        return f" ({ELSEWHERE[str(name)]})"
    if near:
        return f" (did you mean {near!r}?)"
    return ""


def _find_kind(value: Any) -> Any:
    """The function or class that a value is or is made from; the class of the object that a method is bound to."""
    if isinstance(value, partial):
        value = value.func
    # a bound method belongs to the package of its object, not to the one that wrote the function
    value = getattr(value, "__self__", value)
    if hasattr(value, "__qualname__"):
        return value
    return type(value)


def find_package(value: object, packages: Iterable[str]) -> str:
    """Which of the packages an object, class, function or bound method comes from; empty for none of them.

    >>> from fractions import Fraction
    >>> find_package(Fraction(1, 2).limit_denominator, ["fractions"])
    'fractions'
    """
    module = getattr(_find_kind(value), "__module__", "")
    package = str(module).partition(".")[0]
    if package in packages:
        return package
    return ""


def describe_foreign(value: object, packages: Iterable[str], adapters: bool = False) -> str:
    """An object, class or function for the end of a message; if it is of another package, how to give it.

    Args:
        value: of any kind.
        packages: those whose classes and functions can be given by name.
        adapters: whether there is a function `from_captum` and so on for each of them.

    >>> from fractions import Fraction
    >>> describe_foreign(Fraction(1, 2), ["fractions"])
    "Fraction of fractions: use 'fractions:Fraction'"
    """
    package = find_package(value, packages)
    kind = _find_kind(value)
    if not package:
        return repr(value)
    title = kind.__name__
    use = repr(f"{package}:{title}")
    if adapters:
        use += f", or standfast.explainers.from_{package}"
    return f"{title} of {package}: use {use}"


class UnknownOptionError(ArgumentError, TypeError):
    """An option that a class does not have; the message suggests the nearest."""

    def __init__(self, owner: str, option: str, value: object, options: Sequence[str]) -> None:
        if options:
            expected = f"an option of {owner}: {', '.join(options)}"
        else:
            expected = f"no options for {owner}"
        near = suggest_name(option, options)
        super().__init__(option, expected, f"{option}={value!r}{near}")


def as_number(value: Any) -> Any:
    """A number of NumPy or torch as an `int` or a `float`, also within a list or tuple; anything else as it is.

    >>> import numpy, torch
    >>> as_number(numpy.int64(3)), as_number(torch.tensor(3)), as_number((numpy.float32(0.5), True))
    (3, 3, (0.5, True))
    """
    if type(value) in (list, tuple):
        return type(value)(as_number(entry) for entry in value)
    kind = str(getattr(value, "dtype", "")).removeprefix("torch.")
    # an array of one number is an array here, so only those without an axis become numbers
    if getattr(value, "shape", None) != ():
        return value
    if kind.startswith(("int", "uint")):
        return operator.index(value)
    if kind.startswith("float"):
        return float(value)
    return value


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value is an `int` or a `float`, and no `bool`; infinity and NaN count.

    >>> is_number(3), is_number(True), is_number("3")
    (True, False, False)
    """
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_integer(
    value: object, argument: str, least: int = 1, also: Sequence[str | None] = ()
) -> None:
    """Raise `ArgumentError` unless `value` is a whole number of at least `least`, or one of `also`.

    Whole numbers of NumPy and torch are accepted; booleans and floats are refused.

    >>> check_integer(0, "steps")
    Traceback (most recent call last):
        ...
    standfast.errors.ArgumentError: steps: expected a whole number of at least 1, got 0
    """
    # so numbers of NumPy and torch count as whole numbers
    value = as_number(value)
    fits = (type(value) is int and value >= least) or any(
        type(value) is type(other) and value == other for other in also
    )
    check(
        fits,
        argument,
        ", or ".join([f"a whole number of at least {least}", *map(repr, also)]),
        repr(value),
    )


def check_number(
    value: object,
    argument: str,
    least: float = -math.inf,
    above: float = -math.inf,
    below: float = math.inf,
) -> None:
    """Raise `ArgumentError` unless `value` is a number of at least `least`, above `above` and below `below`.

    >>> check_number(1.5, "keep", above=0, below=1)
    Traceback (most recent call last):
        ...
    standfast.errors.ArgumentError: keep: expected a number above 0 and below 1, got 1.5
    """
    fits = is_number(value) and value >= least and above < value < below
    if above == -math.inf:
        start = f"of at least {least}"
    else:
        start = f"above {above}"
    if below == math.inf:
        expected = f"a finite number {start}"
    else:
        expected = f"a number {start} and below {below}"
    check(fits, argument, expected, repr(value))


def check_choice(value: object, argument: str, choices: Sequence[str]) -> None:
    """Raise `ArgumentError` unless `value` is one of the `choices`.

    >>> check_choice("cubic", "interpolation", ["linear", "nearest"])
    Traceback (most recent call last):
        ...
    standfast.errors.ArgumentError: interpolation: expected one of linear, nearest, got 'cubic'
    """
    check(value in choices, argument, f"one of {', '.join(choices)}", repr(value))


def warn_user(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn, at the line of the user's code that called standfast."""
    frame: FrameType | None = sys._getframe()
    level = own_level = 1
    # the last frame of ours from below is where the user's code called us
    while frame is not None:
        if frame.f_code.co_filename.startswith(_PACKAGE):
            own_level = level + 1
        frame, level = frame.f_back, level + 1
    warnings.warn(shorten_numbers(text), category, stacklevel=own_level)


def check(condition: bool, argument: str, expected: str, got: object) -> None:
    """Raise `ArgumentError` unless `condition` holds."""
    if not condition:
        raise ArgumentError(argument, expected, got)


def find_version(package: str = "standfast") -> str:
    """The version of an installed package; empty for a source that is used without being installed."""
    try:
        return _read_version(package)
    except PackageNotFoundError:
        return ""


@cache
def _read_version(package: str) -> str:
    # each run asks for some fifteen, and to read one takes a millisecond; that one is missing is not remembered
    return version(package)
