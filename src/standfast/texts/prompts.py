"""`Prompt`: a question, the documents that it is asked about, and the answer; and how it is written for a model."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from standfast.errors import ArgumentError, check
from standfast.neighbourhoods.text import Word
from standfast.records import set_fields
from standfast.texts.tokenizers import Tokenizer
from standfast.texts.words import mark_sentences, split_words

#: what the context of a prompt is cut into
Unit = Literal["word", "sentence", "passage"]
UNITS: tuple[Unit, ...] = get_args(Unit)
#: what stands between two documents
_BETWEEN = "\n\n"
#: stands in the place of the documents while a template is filled; letters alone, which no template changes
_MARK = "STANDFASTDOCUMENTS"
#: the most characters of a prompt: a longer one is a file that was taken for a text
_MOST_CHARACTERS = 10**6
#: other answers to any question; and questions that have nothing to do with a context, with their answers. The second
#: of each is for prompts that have the first one themselves
_OTHER_ANSWERS = ("I do not know.", "Yes, that is so.")
_OTHER_QUESTIONS = (("What is two plus two?", "Four."), ("Which day follows Monday?", "Tuesday."))
#: how a question and its documents are put into one message, and into a prompt without a chat template
CHAT_TEMPLATE = "Context: {documents}\n\nQuery: {question}"
PLAIN_TEMPLATE = "Context: {documents}\n\nQuery: {question}\n\nAnswer:"


def _is_written(value: object) -> bool:
    """Whether it is a string with something to see."""
    return isinstance(value, str) and bool(value.strip())


@dataclass(frozen=True)
class Prompt:
    """A question about documents, and the answer whose reasons are looked for.

    Only the documents are changed, left out and explained; the question, the system prompt and what the chat template
    adds stay.

    Args:
        question: of the user.
        documents: the context: passages of text, one or several.
        system: the system prompt; empty for none, or for that of the chat template.
        answer: whose probability is explained; None for the one that the model generates, word by word the likeliest.
        statement: the part of the answer that is explained: as it stands in the answer, or the number of a sentence
            of the answer, from 0. None for all of it.

    Raises:
        ArgumentError: a question, a document or an answer without a word; a statement without an answer that has it.

    >>> Prompt("Who built it?", ["Ann built the bridge.", "It is old."], answer="Ann did. In May.", statement=1)
    Prompt('Who built it?', 2 documents, answer='Ann did. In May.', statement=1)
    """

    question: str
    documents: Sequence[str]
    system: str = field(default="", kw_only=True)
    answer: str | None = field(default=None, kw_only=True)
    statement: str | int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check(
            _is_written(self.question),
            "question",
            "a text of at least one word",
            repr(self.question),
        )
        if isinstance(self.documents, str):
            documents: Any = (self.documents,)
        else:
            documents = self.documents
        is_list = isinstance(documents, Iterable)
        check(
            is_list, "documents", "a list of texts, which is the context", type(documents).__name__
        )
        listed = tuple(documents)
        check(len(listed) > 0, "documents", "at least one text, which is the context", "none")
        wrong = next((document for document in listed if not _is_written(document)), None)
        check(all(map(_is_written, listed)), "documents", "texts of at least one word", repr(wrong))
        total = sum(map(len, listed))
        check(
            total <= _MOST_CHARACTERS,
            "documents",
            f"at most {_MOST_CHARACTERS:,} characters",
            f"{total:,}",
        )
        check(isinstance(self.system, str), "system", "a text", type(self.system).__name__)
        has_answer = self.answer is None or _is_written(self.answer)
        check(
            has_answer,
            "answer",
            "a text of at least one word, or None to generate one",
            repr(self.answer),
        )
        _check_statement(self.answer, self.statement)
        set_fields(self, documents=tuple(document.strip() for document in listed))

    def __repr__(self) -> str:
        count = len(self.documents)
        documents = "1 document" if count == 1 else f"{count} documents"
        parts = [repr(self.question), documents]
        for name in ("answer", "statement"):
            if getattr(self, name) is not None:
                parts.append(f"{name}={getattr(self, name)!r}")
        return f"Prompt({', '.join(parts)})"

    @property
    def number(self) -> int:
        """A hash of all of it, a whole number."""
        parts = (self.question, self.documents, self.system, self.answer, self.statement)
        return (
            int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "big")
            >> 2
        )

    def split(self, unit: Unit) -> list[Word]:
        """The words, sentences or passages of the documents, which together are the context.

        >>> [part.text for part in Prompt("Why?", ["It is dull. It ends.", "A film."]).split("sentence")]
        ['It is dull.', 'It ends.', 'A film.']
        """
        parts: list[Word] = []
        for number, document in enumerate(self.documents):
            first, *others = _split_document(document, unit)
            gap = _BETWEEN if number else ""
            parts += [first._replace(gap=gap), *others]
        return parts


class Prompts(tuple[Prompt, ...]):
    """Several prompts, as a function of a study returns them."""

    __slots__ = ()


def _check_statement(answer: str | None, statement: str | int | None) -> None:
    """Raise `ArgumentError` unless a statement can be a part of the answer."""
    if statement is None:
        return
    is_number = type(statement) is int and statement >= 0
    fits = is_number or _is_written(statement)
    check(
        fits,
        "statement",
        "a part of the answer, or the number of its sentence, from 0",
        repr(statement),
    )
    if answer is not None:
        find_statement(answer, statement)


def _split_document(document: str, unit: Unit) -> list[Word]:
    """The units of one document."""
    if unit == "passage":
        return [Word(document)]
    words = split_words(document)
    if unit == "word":
        return words
    marked = mark_sentences(words)
    sentences: list[Word] = []
    begins = True
    for word, following in zip(marked, [*marked[1:], None], strict=True):
        if begins:
            sentences.append(Word(word.text, word.gap))
        else:
            last = sentences[-1]
            sentences[-1] = last._replace(text=last.text + word.gap + word.text)
        # a heading has no full stop, but a line of its own
        begins = word.ends or (following is not None and "\n" in following.gap)
    return sentences


def find_statement(answer: str, statement: str | int | None) -> tuple[int, int]:
    """Where the part of an answer that is explained begins and ends.

    Raises:
        ArgumentError: the answer does not have it.

    >>> find_statement("Ann did. In May.", 1), find_statement("Ann did. In May.", "did")
    ((9, 16), (4, 7))
    """
    if statement is None:
        return 0, len(answer)
    if isinstance(statement, int):
        sentences = [sentence.text for sentence in _split_document(answer.strip(), "sentence")]
        expected = f"the number of one of the {len(sentences)} sentences of the answer, from 0"
        check(statement < len(sentences), "statement", expected, statement)
        start = 0
        for sentence in sentences[:statement]:
            start = answer.index(sentence, start) + len(sentence)
        start = answer.index(sentences[statement], start)
        return start, start + len(sentences[statement])
    start = answer.find(statement)
    check(start >= 0, "statement", f"a part of the answer {answer!r}", repr(statement))
    return start, start + len(statement)


def choose_other_answer(answer: str) -> str:
    """An answer that is not the one given.

    >>> choose_other_answer("Ann did."), choose_other_answer("I do not know")
    ('I do not know.', 'Yes, that is so.')
    """
    return next(other for other in _OTHER_ANSWERS if _list_letters(other) != _list_letters(answer))


def choose_other_question(question: str) -> tuple[str, str]:
    """A question that is not the one given and has nothing to do with a context, and its answer."""
    return next(
        pair for pair in _OTHER_QUESTIONS if _list_letters(pair[0]) != _list_letters(question)
    )


def _list_letters(text: str) -> list[str]:
    """The letters of a text, by which it is compared."""
    return [letter for letter in text.casefold() if letter.isalnum()]


@dataclass(frozen=True)
class WrittenPrompt:
    """A prompt as a model reads it, with its answer.

    Attributes:
        before, after: what stands before and after the documents.
        special: whether the tokenizer adds its special tokens; a chat template has written them.
        answer: the tokens of the answer.
        explained: the numbers of those that are explained.
        other_answer: the same prompt with another answer; None where it is not known.
        other_question: a prompt that has nothing to do with the context, with its answer.
    """

    before: str
    after: str
    special: bool
    answer: tuple[int, ...] = ()
    explained: tuple[int, ...] = ()
    other_answer: WrittenPrompt | None = None
    other_question: WrittenPrompt | None = None

    def with_answer(self, answer: tuple[int, ...]) -> WrittenPrompt:
        """The same prompt with an answer, all of which is explained."""
        return replace(self, answer=answer, explained=tuple(range(len(answer))))


def write_prompt(prompt: Prompt, tokenizer: Tokenizer, template: str, chat: bool) -> WrittenPrompt:
    """What stands around the documents of a prompt, without an answer.

    Args:
        prompt: the user's.
        tokenizer: of the model.
        template: of the message, with `{documents}` and `{question}`.
        chat: whether the tokenizer's chat template writes the message; else the system prompt stands before it.

    Raises:
        ArgumentError: there is no chat template, or it does not hold the documents.
    """
    message = template.replace("{documents}", _MARK).replace("{question}", prompt.question.strip())
    if chat:
        messages = [{"role": "user", "content": message}]
        if prompt.system:
            messages.insert(0, {"role": "system", "content": prompt.system})
        text = tokenizer.write_chat(messages)
    else:
        if prompt.system:
            text = f"{prompt.system}\n\n{message}"
        else:
            text = message
    count = text.count(_MARK)
    if count != 1:
        expected = "a chat template that writes the documents once (or AnswerModel(chat=False))"
        raise ArgumentError("tokenizer", expected, f"one that writes them {count} times")
    before, _, after = text.partition(_MARK)
    return WrittenPrompt(before, after, special=not chat)
