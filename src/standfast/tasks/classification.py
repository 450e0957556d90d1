"""`Classification`: one of several classes is right; `ZeroShot`: the classes are texts or other vectors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from standfast.errors import ArgumentError, check
from standfast.records import Positive, TensorOption
from standfast.tasks.base import (
    CLASS_WORDS,
    Scale,
    Task,
    check_range,
    expect_tensor,
    pick,
    tasks,
)


@tasks.register("classification")
@dataclass(frozen=True)
class Classification(Task):
    """The module returns logits `(N, classes)`, of which a softmax gives probabilities.

    The answer is a class y. Its score is `f_y`, and the margin `max_{i != y} f_i - f_y`, of logits or of probabilities.

    >>> task, outputs = Classification(), torch.tensor([[3.0, 1.0, 2.0]])
    >>> task.answer(outputs), task.margin(outputs, torch.tensor([0]))
    (tensor([0]), tensor([-1.]))
    """

    name = "classification"
    kept = "the same class"
    words = CLASS_WORDS
    classes = True
    switches = True
    scales = True
    chance = "probability"

    def read(self, output: Any, count: int) -> Tensor:
        shape = "logits of shape (N, classes) with at least two classes"
        fits = isinstance(output, Tensor) and output.ndim == 2 and output.shape[1] >= 2
        return expect_tensor(output, count, shape, fits)

    def answer(self, outputs: Tensor, targets: Tensor | None = None) -> Tensor:
        if targets is None:
            return outputs.argmax(1)
        return check_range(targets, outputs.shape[1], "classes")

    def score(self, outputs: Tensor, answer: Tensor, scale: Scale = "logit") -> Tensor:
        if scale != "logit":
            outputs = outputs.softmax(1)
        return pick(outputs, answer)

    def rivals(self, outputs: Tensor, answer: Tensor, scale: Scale = "logit") -> Tensor:
        """`f_i - f_y` for all classes i, and minus infinity for y itself."""
        values = outputs if scale == "logit" else outputs.softmax(1)
        # y itself is no rival
        others = values.scatter(1, answer[:, None], -torch.inf)
        return others - pick(values, answer)[:, None]

    def margin(self, outputs: Tensor, answer: Tensor, scale: Scale = "logit") -> Tensor:
        values = outputs if scale == "logit" else outputs.softmax(1)
        others = values.scatter(1, answer[:, None], -torch.inf)
        return others.amax(1) - pick(values, answer)


@tasks.register("zero_shot")
@dataclass(frozen=True)
class ZeroShot(Classification):
    """The module returns embeddings `(N, D)`, which are compared with one vector for each class, such as a text's.

    The logit of a class is `temperature` times the cosine of the two, as in CLIP. All else is as in classification.

    Args:
        vectors: `(classes, D)`, of at least two classes; or the name of a .npy file that has them, in a study file
            relative to it.
        temperature: above 0; models like CLIP have learned it, and it is about 100 there.

    Raises:
        ArgumentError: the vectors have another shape, or one of them is 0; the file is none.

    >>> task = ZeroShot(torch.eye(2), temperature=10.0)
    >>> task.read(torch.tensor([[3.0, 4.0]]), 1)
    tensor([[6., 8.]])
    """

    name = "zero_shot"
    usual = "vectors=texts.npy"
    vectors: Tensor | TensorOption | str
    temperature: Positive = 100.0

    # the file is read later, where its folder is known
    def __post_init__(self) -> None:
        if isinstance(self.vectors, str):
            check(
                self.vectors.endswith(".npy"),
                "vectors",
                "the name of a .npy file",
                repr(self.vectors),
            )
            return
        if isinstance(self.vectors, TensorOption):
            vectors = self.vectors.tensor
        else:
            vectors = self.vectors
        fits = (
            isinstance(vectors, Tensor)
            and vectors.ndim == 2
            and len(vectors) >= 2
            and vectors.is_floating_point()
        )
        got = type(vectors).__name__
        if isinstance(vectors, Tensor):
            got = f"{vectors.dtype} of shape {tuple(vectors.shape)}"
        check(fits, "vectors", "a vector for each of at least two classes, (classes, D)", got)
        check(
            bool((vectors.norm(dim=1) > 0).all()),
            "vectors",
            "vectors that are not 0",
            "one that is",
        )
        # of length 1, so that a product is a cosine
        object.__setattr__(
            self, "vectors", TensorOption(vectors / vectors.norm(dim=1, keepdim=True))
        )

    def load_files(self, folder: Path) -> ZeroShot:
        if not isinstance(self.vectors, str):
            return self
        try:
            vectors = np.load(folder / self.vectors, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise ArgumentError(
                "vectors", "a .npy file of numbers", f"{self.vectors}: {error}"
            ) from error
        numbers = isinstance(vectors, np.ndarray) and vectors.dtype.kind == "f"
        # floats alone: whole numbers would be counts, not vectors
        check(
            numbers,
            "vectors",
            "a .npy file of floating-point numbers",
            f"{self.vectors} with something else",
        )
        # models compute in single precision
        return replace(self, vectors=torch.from_numpy(vectors.astype(np.float32)))

    def read(self, output: Any, count: int) -> Tensor:
        assert isinstance(self.vectors, TensorOption)
        width = self.vectors.shape[1]
        fits = isinstance(output, Tensor) and output.ndim == 2 and output.shape[1] == width
        embeddings = expect_tensor(output, count, f"embeddings of shape (N, {width})", fits)
        vectors = self.vectors.tensor.to(embeddings)
        return self.temperature * torch.nn.functional.normalize(embeddings, dim=1) @ vectors.T


def zero_shot(vectors: Tensor, temperature: float = 100.0) -> ZeroShot:
    """The task of an image-text model: which of some texts fits best; `vectors` `(classes, D)` are their embeddings."""
    return ZeroShot(vectors, temperature)
