"""`Meeting`: a model that meets a data set for the first time, is checked with it, and asked for its answers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from standfast.model import Model, module_name
from standfast.question.grid import MOST_ANSWERS, Grid, ModelSource, Samples, SamplesPart, Tried
from standfast.segments import check_one_for_all
from standfast.study.answers import AnswerNumbers, answer_rows, ask_inputs, ask_model
from standfast.study.identity import Description, ModelContent, describe_model
from standfast.study.store import digest, tensor_digest


def inputs_for(
    model: Model, samples: Samples, checked: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    """The inputs and targets in the model's type and on its device.

    Args:
        model: which takes them.
        samples: whose they are.
        checked: the inputs, if they were checked with the model before.

    Raises:
        ArgumentError: they do not fit the model.
    """
    if checked is None:
        inputs = model.check_inputs(samples.inputs.to(model.dtype))
    else:
        inputs = checked
    if samples.targets is None:
        return inputs, None
    part = samples.split(model)[0]  # a task makes answers of targets, wherever they are used
    part.model.check_targets(samples.targets[part.rows], part.take(inputs))
    return inputs, samples.targets.to(inputs.device)


@dataclass(frozen=True, eq=False)
class Meeting:
    """A model that meets a data set.

    Attributes:
        data, name: of the data and of the model.
        source: which has made the model.
        samples: the data set.
        model: built, and checked with the data.
        inputs, targets: of the samples, as the model takes them.
        content: what the model consists of but for its answers.
        parts: the first samples in groups that can share a batch: all of them for tables and images, one group for each
            length of texts, and each sample alone if the model has further inputs. A part has `model`,
            bound to what its samples have in common; `rows`, their range; and `take(inputs)`.
        outputs: for the first of the parts, where they are known already.
    """

    data: str
    name: str
    source: ModelSource
    samples: Samples
    model: Model
    inputs: Tensor
    targets: Tensor | None
    content: ModelContent
    parts: Sequence[SamplesPart]
    outputs: Tensor | None

    @classmethod
    def begin(cls, grid: Grid, data: str, name: str) -> Meeting:
        """The model, built and checked with the data.

        Raises:
            ArgumentError: inputs or targets do not fit it; an explainer holds label maps for single samples.
        """
        samples = grid.data[data]
        source = grid.models[name]
        tried = grid.tried.get((data, name))
        if tried is None:
            tried = Tried(source.model(samples, "cpu"), inputs=None, outputs=None)
        model = tried.model
        inputs, targets = inputs_for(model, samples, tried.inputs)
        model.warn_of_units(inputs)
        for explainer in grid.explainers.values():
            check_one_for_all(explainer, inputs)
        # before forward runs, which may change attributes
        content = describe_model(model, source.about)
        parts = samples.split_answered(model, slice(0, MOST_ANSWERS))
        return cls(
            data, name, source, samples, model, inputs, targets, content, parts, tried.outputs
        )

    @property
    def has_user_code(self) -> bool:
        """Whether code of the user's is a part of the model."""
        return bool(self.content.user_modules)

    @property
    def first_inputs(self) -> Tensor:
        """The inputs of the first part."""
        return self.parts[0].take(self.inputs)

    @property
    def first_targets(self) -> Tensor | None:
        """The targets of the first part."""
        if self.targets is None:
            return None
        return self.targets[self.parts[0].rows]

    def ask(self) -> AnswerNumbers:
        """What the model answers.

        Raises:
            ModelError: it answers differently each time, or depending on the other inputs of the batch.
        """
        first = self.parts[0].model
        if self.outputs is None:
            outputs = answer_rows(first, self.first_inputs)
        else:
            outputs = self.outputs
        first.check_repeatable(self.first_inputs, in_batches=True, outputs=outputs)
        answers = [ask_model(first, self.first_inputs, outputs)]
        # the other lengths of texts are asked for the inputs alone, which takes a fifth of the time
        answers += [ask_inputs(part.model, part.take(self.inputs)) for part in self.parts[1:]]
        return AnswerNumbers.join(answers)

    def describe(self, answers_digest: str) -> dict[str, Any]:
        """What the manifest says of the model, of whose answers there is a hash."""
        module = self.model.module
        task = self.model.task
        return {
            "module": module_name(module),
            "parameters": sum(parameter.numel() for parameter in module.parameters()),
            "task": repr(task),
            "kept": task.kept,
            "of classes": task.classes,
            "words": vars(task.words),
            "same within": task.same_within if math.isfinite(task.same_within) else None,
            # versions count here: the same weights may answer differently after an upgrade
            "digest": digest([self.content.whole, answers_digest]),
            # versions do not count here, so that a board can compare networks
            "network": digest([self.content.without_versions, answers_digest]),
            **self.source.about,
        }

    def describe_reference(self) -> list[Any]:
        """The digests of the values that replace removed ones, as results depend on them; empty without any."""
        reference = self.model.with_reference(self.inputs).reference
        if reference is None:
            return []
        digests = [tensor_digest(reference.rows), tensor_digest(reference.baseline)]
        if reference.codes is None:
            return digests
        # only texts and categories have such codes; other jobs keep their identities
        return [*digests, Description(reference.codes).content]


class AnswerMemory:
    """The answers of this plan. Where they differ from earlier answers only by rounding, the earlier ones are kept.

    So the identities of jobs stay, although another processor rounds otherwise.

    Args:
        earlier: the answers in the manifest of earlier results.

    Attributes:
        answers: those for the manifest of the new ones.
    """

    def __init__(self, earlier: Mapping[str, Mapping[str, str]]) -> None:
        self.earlier = earlier
        self.answers: dict[str, dict[str, str]] = {}

    def remember(self, answers: AnswerNumbers, data: str, model: str, what: str) -> str:
        """Keep the answers of a thing (`what`, a hash), or earlier ones that are the same; returns their identity.

        The identity is a hash of the answers as they were when they were first remembered. A study that has grown has
        more inputs: then those that both know are compared.
        """
        # of a hash and not of names alone: a changed network has no earlier answers
        key = digest([data, model, what])
        stored = self.earlier.get(key, {})
        stored_numbers = {name: text for name, text in stored.items() if name != "identity"}
        before = AnswerNumbers.from_plain(stored_numbers)
        is_same = bool(before.numbers) and not before.find_difference(answers)
        if not is_same:
            identity = digest(answers.plain)
            self.answers[key] = {"identity": identity, **answers.plain}
            return identity
        # the longer answers can be compared with more samples later
        if len(before) > len(answers):
            longer = before
        else:
            longer = answers
        self.answers[key] = {"identity": stored["identity"], **longer.plain}
        # the identity of the first answers stays, which stored jobs have in theirs
        return stored["identity"]
