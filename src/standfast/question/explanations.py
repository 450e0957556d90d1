"""`explain`: the words of texts, or the parts of the context of an answer, with the number of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from standfast.errors import ArgumentError, check
from standfast.question.answers import explain_answers, make_prompts
from standfast.question.texts import explain_texts
from standfast.texts import AnswerModel, Prompt, TextModel


def explain(
    model: TextModel,
    explainer: Any,
    texts: Sequence[str] | str | Prompt | Sequence[Prompt] | Any,
    targets: Tensor | int | None = None,
    *,
    documents: Sequence[str] | None = None,
    progress: bool = True,
) -> Any:
    """Explain texts, or the answers to prompts.

    Args:
        model: of texts, or of answers.
        explainer: a name, an explainer, or a function of a predictor, strings and classes, as for `evaluate`.
        texts: a list of texts, or a column of a data frame. For an `AnswerModel` a question, a `Prompt`, or a list of
            prompts.
        targets: classes `(N,)`, one class for all, or None for the predicted ones.
        documents: the context of a question.
        progress: show how far it is, from ten seconds on.

    Returns:
        For each text a list of its words and their numbers; for each prompt a `CitedAnswer`, which is such a list of
        the parts of the context, and is printed with the answer. For one question or prompt it is not in a list.

    Raises:
        ArgumentError: another model, no texts, or an explainer that is not known.
        ModelError: the model fails.

    >>> import standfast
    >>> model = TextModel(standfast.zoo.load("transformer-sentences"), standfast.data.word_vectors())
    >>> found = explain(model, "occlusion", ["a great film"])
    >>> [word for word, value in found[0]], max(found[0], key=lambda pair: pair[1])[0]
    (['a', 'great', 'film'], 'great')
    """
    if not isinstance(model, TextModel):
        expected = (
            "a TextModel, since explain takes texts alone. Tensors are explained by"
            " standfast.explainers.get(name)(model, inputs), rows of a data frame by standfast.reasons; explainers of"
            " all kinds of inputs are compared by standfast.evaluate"
        )
        raise ArgumentError("model", expected, type(model).__name__)
    if not isinstance(model, AnswerModel):
        check(
            documents is None,
            "documents",
            "None for texts; an AnswerModel takes a question about some",
            "some",
        )
        return explain_texts(model, explainer, texts, targets, progress=progress)
    check(
        targets is None, "targets", "None for an answer, which is a part of its prompt", "targets"
    )
    cited = explain_answers(model, explainer, make_prompts(texts, documents), progress=progress)
    # one question gives one answer, not a list of one
    if isinstance(texts, str | Prompt):
        return cited[0]
    return cited
