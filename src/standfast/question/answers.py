"""Prompts: rows of codes for the units of their contexts, and models that answer them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

import torch
from torch import Tensor

from standfast.errors import ArgumentError, check
from standfast.explainers import Explainer
from standfast.explainers.adapters.callables import CallableExplainer
from standfast.explainers.adapters.other_prompts import OtherPrompt, OtherPromptExplainer
from standfast.model import Model
from standfast.neighbourhoods.text import Word
from standfast.question.grid import Reader, Samples
from standfast.question.inputs import kinds
from standfast.question.texts import (
    Texts,
    check_removal,
    encode_rows,
    fit_explainer,
    place_model,
    write_tokens,
)
from standfast.segments import FEWEST
from standfast.tasks import Task
from standfast.texts import AnswerModel, Prompt, Prompts, encode_texts
from standfast.texts.answers import list_prompts
from standfast.texts.network import CODE_BOUNDS

_FUNCTIONS = (
    "an explainer of standfast for answers, since functions of strings and classes know no answers"
)


@dataclass(frozen=True, eq=False)
class PromptReader(Reader):
    """Reads rows of codes as the contexts of prompts.

    Attributes:
        prompts: the user's.
        units_of_prompts: the units of the context of each.
    """

    prompts: tuple[Prompt, ...]
    units_of_prompts: tuple[Sequence[Word], ...] = field(repr=False)

    words = "a model of answers"
    expected = "a function that returns an AnswerModel, for prompts"

    @classmethod
    def takes(cls, model: object) -> bool:
        return isinstance(model, AnswerModel)

    def make_model(self, model: Any, task: Task | None, device: str) -> Model:
        check(isinstance(model, AnswerModel), "model", self.expected, type(model).__name__)
        rows = encode_rows(self.units_of_prompts)
        placed: Any = place_model(model, task, device)
        model_of_rows: Model = placed.make_model(rows, prompts=self.prompts)
        return model_of_rows


@kinds.register("answers")
@dataclass(eq=False)
class Answers(Texts):
    """Prompts, and models that answer them: texts whose words are the units of a context."""

    name = "answers"
    words = "prompts"
    forms = "prompts, where the model is an AnswerModel"
    given = Prompts
    reader = PromptReader
    model = AnswerModel
    no_reference = "None for prompts; AnswerModel(removal=...) says how units go"

    @classmethod
    def takes(cls, inputs: object, models: Sequence[object]) -> bool:
        return any(isinstance(model, AnswerModel) for model in models)

    @classmethod
    def title(cls, inputs: Any) -> str:
        return "prompts"

    @classmethod
    def give(cls, inputs: Any) -> Any:
        return Prompts(list_prompts(inputs))

    @classmethod
    def read_samples(cls, data: Any, models: Sequence[Any]) -> Samples:
        return _read_samples(list_prompts(data), models)

    @classmethod
    def make_model(
        cls, model: Any, data: Mapping[str, Any], samples: Mapping[str, Samples]
    ) -> Model:
        prompts = [prompt for prompts in data.values() for prompt in prompts]
        model_of_rows: Model = model.make_model(encode_texts(model.split(prompts)), prompts=prompts)
        return model_of_rows

    def fit_explainer(self, explainer: Any) -> Explainer:
        """An explainer of embeddings, or of units."""
        return fit_answer_explainer(explainer)

    def default_controls(
        self, explainers: Mapping[str, Explainer], models: Sequence[Model]
    ) -> dict[str, Explainer]:
        """As for texts, and the first explainer on another answer to the prompt, and on an unrelated question."""
        controls = super().default_controls(explainers, models)
        first = next(
            (explainer for explainer in explainers.values() if not explainer.control), None
        )
        if first is None:
            return controls
        for other in get_args(OtherPrompt):
            control = OtherPromptExplainer(first, other)
            controls[control.label] = control
        return controls


def fit_answer_explainer(explainer: Any) -> Explainer:
    """An explainer of answers: of embeddings where it needs gradients, else of units.

    Raises:
        ArgumentError: a function of strings and classes.
    """
    is_function = not isinstance(explainer, str | Explainer | type) and callable(explainer)
    is_function = is_function or isinstance(explainer, CallableExplainer)
    check(not is_function, "explainer", _FUNCTIONS, "a function")
    return fit_explainer(explainer)


def _read_samples(prompts: Sequence[Prompt], models: Sequence[AnswerModel]) -> Samples:
    """The prompts as the models read them.

    Raises:
        ArgumentError: no context has three units; the models cut contexts in different ways.
    """
    units = models[0].split(prompts)
    longest = max(map(len, units))
    expected = f"a context of at least {FEWEST} units, which maps put in an order"
    check(longest >= FEWEST, "inputs", expected, f"contexts of at most {longest}")
    for model in models[1:]:
        fits = model.split(prompts) == units
        check(fits, "model", "models that explain the same units (granularity)", "others")
    return Samples(
        encode_texts(units),
        None,
        CODE_BOUNDS,
        {"texts": True, "prompts": [prompt.question for prompt in prompts]},
        {"prompt": number_prompts(prompts)},
        tokens=tuple(map(write_tokens, units)),
        lengths=tuple(map(len, units)),
        reader=PromptReader(tuple(prompts), tuple(units)),
    )


def number_prompts(prompts: Sequence[Prompt]) -> Tensor:
    """Which prompt each row belongs to, int64 `(N, 1)`."""
    return torch.tensor([[prompt.number] for prompt in prompts])


class CitedAnswer(list[tuple[str, float]]):
    """The parts of the context of an answer with their numbers, in their order; printed, the largest first.

    Attributes:
        question: of the user.
        answer: whose probability is explained.
    """

    def __init__(self, parts: Sequence[tuple[str, float]], question: str, answer: str) -> None:
        super().__init__(parts)
        self.question = question
        self.answer = answer

    def __str__(self) -> str:
        ordered = sorted(self, key=lambda part: -part[1])
        lines = [f"Q: {self.question}", f"A: {self.answer}", ""]
        return "\n".join([*lines, *(f"{value:+9.2f}  {text}" for text, value in ordered)])


def explain_answers(
    model: AnswerModel, explainer: Any, prompts: Sequence[Prompt], *, progress: bool = True
) -> list[CitedAnswer]:
    """For each prompt the units of its context, and the number of each; see `standfast.explain`."""
    fitted = fit_answer_explainer(explainer)
    check_removal(model, [fitted])
    for prompt in prompts:
        model.write(prompt)  # one that does not fit is an error here, and not a status
    units_of_prompts = model.split(prompts)
    rows = encode_texts(units_of_prompts)
    model_of_all = model.make_model(rows, prompts=prompts)
    explained: list[CitedAnswer] = []
    for number, (prompt, units) in enumerate(zip(prompts, units_of_prompts, strict=True)):
        bound = model_of_all.for_sample({"prompt": number_prompts([prompt])}, 0).with_width(
            len(units)
        )
        values = fitted(bound, rows[number : number + 1, : len(units)], progress=progress)[
            0
        ].tolist()
        parts = [(unit.text, value) for unit, value in zip(units, values, strict=True)]
        explained.append(CitedAnswer(parts, prompt.question, model.answer(prompt)))
    return explained


def make_prompts(inputs: Any, documents: Sequence[str] | None) -> list[Prompt]:
    """Prompts as they are, or one of a question and its documents.

    Raises:
        ArgumentError: a question without documents, or documents beside prompts.
    """
    if isinstance(inputs, str):
        expected = "a list of texts, which is the context of the question"
        if documents is None:
            raise ArgumentError("documents", expected, "none")
        return [Prompt(inputs, documents)]
    if documents is not None:
        expected = "one question beside them, or a list of standfast.Prompt(question, documents) without them"
        raise ArgumentError("documents", expected, f"documents beside {type(inputs).__name__}")
    return list_prompts(inputs)
