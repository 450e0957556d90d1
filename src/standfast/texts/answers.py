"""`AnswerModel`: a language model that answers questions about documents, and whose answers are explained."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from standfast.errors import (
    ArgumentError,
    ModelError,
    StandfastError,
    check,
    check_integer,
    warn_user,
)
from standfast.model import Model, resolve_device
from standfast.neighbourhoods.text import GONE, Word
from standfast.tasks import GeneratedAnswer, Task, find_output
from standfast.tasks import get as get_task
from standfast.texts.answer_network import AnswerBox, AnswerNetwork
from standfast.texts.model import Removal, TextModel, explain_padding_fault
from standfast.texts.network import CODE_BOUNDS
from standfast.texts.prompts import (
    CHAT_TEMPLATE,
    PLAIN_TEMPLATE,
    UNITS,
    Prompt,
    Unit,
    WrittenPrompt,
    choose_other_answer,
    choose_other_question,
    find_statement,
    write_prompt,
)
from standfast.texts.remembered import read_state
from standfast.texts.words import encode_texts, write_text
from standfast.texts.wrapped import find_attribute, walk_wrappers

_PROMPTS = "a Prompt, or several in a list: standfast.Prompt(question, documents)"
#: marks that a message needs
_PLACES = ("{documents}", "{question}")


class FixedAnswer(NamedTuple):
    """An answer whose probability is explained.

    Attributes:
        ids: of its tokens.
        text: what it says.
        spans: where each token begins and ends in the text.
    """

    ids: tuple[int, ...]
    text: str
    spans: tuple[tuple[int, int], ...]

    def find_tokens(self, statement: str | int | None) -> tuple[int, ...]:
        """The numbers of the tokens that have a part of a statement.

        Raises:
            ArgumentError: the answer does not have it.
        """
        if statement is None:
            return tuple(range(len(self.ids)))
        start, stop = find_statement(self.text, statement)
        numbers = [
            number for number, (begin, end) in enumerate(self.spans) if begin < stop and end > start
        ]
        check(
            len(numbers) > 0, "statement", "a part of the answer that has a token", repr(statement)
        )
        return tuple(numbers)


@dataclass(frozen=True, eq=False, repr=False)
class AnswerModel(TextModel):
    """A language model that answers prompts: which parts of the context make its answer probable?

    The answer is fixed: the one that the prompt says, or else the one that the model generates, the likeliest token
    after the other. Then its tokens are read by teacher forcing, and the score is the sum of their log-probabilities,
    or that of a part of them (`Prompt(statement=...)`). Explained are the units of the context: a removed one is left
    out of the text, and the others move up. The question, the system prompt and what the chat template writes stay.

    One prompt costs a forward pass for each different context; what was answered to one is remembered. Batches are
    bounded by tokens, and a row has the same outputs whatever else is in the batch.

    Args:
        model: a `...ForCausalLM` of transformers, or a module `(ids (N, T), present (N, T)) -> logits (N, T, V)`.
        tokenizer: as for `TextModel`; one of transformers has a chat template.
        task: when the answer is kept: `"answer:tolerance=0.5"`, as by default, or `"answer:first=3"`
            (`standfast.tasks.GeneratedAnswer`).
        granularity: what the context is cut into: a `"sentence"`, a `"word"`, or a `"passage"`, which is a document.
        removal: what stands in the place of a removed unit; by default it is left out (`"delete"`).
        embedding: the layer of token embeddings, for explainers that need gradients; by default it is found.
        device: as for `standfast.Model`.
        template: the message to the model, with `{documents}` and `{question}`.
        chat: whether the tokenizer's chat template writes the message; False for a plain prompt.
        longest: the most tokens of a generated answer.
        batch_tokens: how many tokens are run together at most, if not 4,096 on a processor and 65,536 on a card.

    Raises:
        ArgumentError: an argument does not fit; the tokenizer has no chat template.
    """

    _: KW_ONLY
    task: str | Task = "answer"
    granularity: Unit = "sentence"  # type: ignore[assignment]
    template: str | None = None
    chat: bool = True
    longest: int = 64
    batch_tokens: int | None = None
    _answers: dict[Prompt, tuple[bytes, FixedAnswer]] = field(
        default_factory=dict, init=False, repr=False
    )

    granularities = UNITS

    def __post_init__(self) -> None:
        check(self.word is None, "word", "None for a model of answers", self.word)
        check(isinstance(self.chat, bool), "chat", "True or False", repr(self.chat))
        check_integer(self.longest, "longest")
        check_integer(self.batch_tokens, "batch_tokens", also=(None,))
        holds = isinstance(self.message, str) and all(
            self.message.count(field) == 1 for field in _PLACES
        )
        check(
            holds,
            "template",
            "a text with {documents} and {question} once each",
            repr(self.template),
        )
        is_answer = isinstance(get_task(self.task), GeneratedAnswer)
        check(
            is_answer,
            "task",
            "'answer' with a tolerance, or with a number of first tokens",
            repr(self.task),
        )
        super().__post_init__()

    @property
    def message(self) -> str:
        """The template of the message."""
        if self.template is not None:
            return self.template
        if self.chat:
            return CHAT_TEMPLATE
        return PLAIN_TEMPLATE

    @property
    def classes(self) -> tuple[str, ...]:
        """None: an answer is not one of several."""
        return ()

    @property
    def removals(self) -> tuple[Removal, ...]:
        """What stands in the place of removed units."""
        if self.removal is None:
            return ("delete",)
        return super().removals

    @cached_property
    def _network(self) -> AnswerNetwork:
        padding = self.asked.padding
        assert padding is not None
        of_model = getattr(find_attribute(self.model, "config"), "pad_token_id", None)
        fill = padding
        if isinstance(of_model, int) and of_model >= 0:
            fill = of_model
        task = get_task(self.task)
        assert isinstance(task, GeneratedAnswer)
        return AnswerNetwork(self.model, fill, embedding=self.embedding, first=task.first)

    @property
    def _device(self) -> torch.device:
        return resolve_device(self.device, next(self.model.parameters(), None))

    def answer(self, prompt: Prompt) -> str:
        """The answer to a prompt: its own, or the one that the model generates.

        Raises:
            ArgumentError: the prompt is too long.
            ModelError: the model ends its answer before it begins.
        """
        return self._find_answer(prompt).text

    def score_tokens(self, prompt: Prompt) -> list[tuple[str, float]]:
        """Each token of the answer as a string, with its log-probability in nats, given the prompt and those before."""
        written = self.write(prompt)
        ids = [*self._read_prompt(prompt, written), *written.answer]
        tokens = torch.tensor([ids], device=self._device)
        self.model.to(self._device)
        network = replace(self._network, answer=written.answer)
        with torch.no_grad(), _evaluating(self.model):
            # every token can be seen
            present = torch.ones_like(tokens, dtype=torch.bool)
            scores = network.score_each(tokens, present)[0].tolist()
        answer = self._find_answer(prompt)
        pieces = [answer.text[start:end] for start, end in answer.spans]
        return list(zip(pieces, scores, strict=True))

    def split(self, prompts: Sequence[Prompt]) -> list[list[Word]]:  # type: ignore[override]
        """The units of the context of each prompt.

        Raises:
            ArgumentError: something else than prompts; one that is longer than what the model takes.
        """
        return [self._split_prompt(prompt) for prompt in list_prompts(prompts)]

    def _split_prompt(self, prompt: Prompt) -> list[Word]:
        assert self.granularity in UNITS
        return prompt.split(self.granularity)

    def encode(self, prompts: Sequence[Prompt]) -> Tensor:  # type: ignore[override]
        """The codes of the units of prompts, float64 `(N, W)`."""
        return encode_texts(self.split(prompts))

    def write(self, prompt: Prompt) -> WrittenPrompt:
        """A prompt as the model reads it, with the tokens of its answer.

        Raises:
            ArgumentError: it is longer than what the model takes; the answer does not have the statement.
            ModelError: the model ends its answer before it begins.
        """
        written = write_prompt(prompt, self.asked, self.message, self.chat)
        answer = self._find_answer(prompt)
        explained = answer.find_tokens(prompt.statement)
        self._check_length(prompt, written, len(answer.ids))
        other_answer = self._read_answer(
            replace(prompt, answer=choose_other_answer(answer.text), statement=None)
        )
        question, answer_to_it = choose_other_question(prompt.question)
        other_prompt = replace(prompt, question=question, answer=answer_to_it, statement=None)
        other = write_prompt(other_prompt, self.asked, self.message, self.chat)
        return replace(
            written,
            answer=answer.ids,
            explained=explained,
            other_answer=written.with_answer(other_answer.ids),
            other_question=other.with_answer(self._read_answer(other_prompt).ids),
        )

    def _find_answer(self, prompt: Prompt) -> FixedAnswer:
        """The answer of a prompt, which is generated once by the weights as they are."""
        whole_answer = replace(prompt, statement=None)
        if whole_answer.answer is not None:
            return self._read_answer(whole_answer)
        self.model.to(self._device)
        remembered = self._answers.get(whole_answer)
        if remembered is not None and remembered[0] == read_state(self.model):
            return remembered[1]
        answer = self._generate(whole_answer)
        self._answers[whole_answer] = read_state(self.model), answer
        return answer

    def _read_answer(self, prompt: Prompt) -> FixedAnswer:
        """An answer that is given, with its tokens as they follow the prompt."""
        assert prompt.answer is not None
        written = write_prompt(prompt, self.asked, self.message, self.chat)
        text = prompt.answer.strip()
        ends_with_blank = written.after[-1:].isspace()
        gap = "" if ends_with_blank else " "
        with_answer = f"{written.after}{gap}{text}"
        start, full = self.asked.read([written.after, with_answer], special=False)
        count = len(start.ids)
        offset = len(written.after) + len(gap)
        begins_alike = list(full.ids[:count]) == list(start.ids)
        follows = begins_alike and len(full.ids) > count
        if ends_with_blank and not follows:  # the last blank would become a part of the first word
            alone = self.asked.read([text], special=False)[0]
            return FixedAnswer(tuple(alone.ids), text, tuple(alone.spans))
        expected = "a text that ends so that the answer begins a token of its own"
        got = f"{written.after[-12:]!r} before {text[:20]!r}"
        check(follows, "template", expected, got)
        spans = []
        for begin, end in full.spans[count:]:
            spans.append((max(0, begin - offset), end - offset))
        return FixedAnswer(tuple(full.ids[count:]), text, tuple(spans))

    def _read_generated(self, ids: tuple[int, ...]) -> FixedAnswer:
        """An answer that the model has generated: what each token adds to its string."""
        # what the first tokens write, for each number of them
        texts = [self.asked.write(ids[:count]) for count in range(len(ids) + 1)]
        whole = texts[-1]
        blanks = len(whole) - len(whole.lstrip())
        ends = [max(0, len(text) - blanks) for text in texts]
        return FixedAnswer(ids, whole.strip(), tuple(pairwise(ends)))

    def _check_length(self, prompt: Prompt, written: WrittenPrompt, answer: int) -> None:
        """Raise `ArgumentError` for a prompt that is longer, with its answer, than what the model takes."""
        if self._most is None:
            return
        count = len(self._read_prompt(prompt, written)) + answer
        question = repr(prompt.question[:40])
        got = f"{count:,} with an answer of {answer}, for {question}"
        check(
            count <= self._most,
            "prompt",
            f"at most the {self._most:,} tokens that the model takes",
            got,
        )

    def _read_prompt(self, prompt: Prompt, written: WrittenPrompt) -> list[int]:
        """The tokens of a prompt without an answer."""
        row = encode_texts([self._split_prompt(prompt)])[0]
        context = write_text(row.tolist()).text
        text = f"{written.before}{context}{written.after}"
        (tokens,) = self.asked.read([text], written.special)
        ends = written.special and bool(tokens.special) and tokens.special[-1]
        check(not ends, "tokenizer", "one that adds no token at the end of a text", "one that does")
        return list(tokens.ids)

    def _generate(self, prompt: Prompt) -> FixedAnswer:
        """The likeliest token after the other, up to an end or the most tokens."""
        written = write_prompt(prompt, self.asked, self.message, self.chat)
        ids = self._read_prompt(prompt, written)
        self._check_length(prompt, written, answer=1)
        if self._most is None:
            room = self.longest
        else:
            room = min(self.longest, self._most - len(ids))
        answer = generate_greedily(self._network, ids, room, self._list_ends(), self._device)
        if not answer or not self.asked.write(answer).strip():
            raise ModelError(
                "model: expected an answer of at least one word, got none, since the model ends it at once;"
                " Prompt(answer=...) takes one"
            )
        if len(answer) == self.longest:
            warn_user(
                f"the answer is cut at its most tokens ({self.longest}); AnswerModel(longest=...) takes more"
            )
        elif len(answer) == room:
            warn_user(
                f"the answer is cut after {room} tokens, since the model takes {self._most:,} with its prompt"
            )
        return self._read_generated(answer)

    def _list_ends(self) -> set[int]:
        """The tokens with which an answer ends."""
        ends: list[Any] = []
        configurations = [
            find_attribute(self.model, name) for name in ("config", "generation_config")
        ]
        for holder in [*configurations, self.tokenizer]:
            of_holder = getattr(holder, "eos_token_id", None)
            if isinstance(of_holder, list | tuple):
                ends += of_holder
            else:
                ends.append(of_holder)
        return {end for end in ends if isinstance(end, int)}

    @cached_property
    def _box(self) -> AnswerBox:
        self.model.to(self._device)
        example = write_prompt(
            Prompt("Question", ["Documents"]), self.asked, self.message, self.chat
        )
        return AnswerBox(self._network, self.asked, self._most, {}, self.batch_tokens, example)

    def bind(self, prompt: Prompt) -> tuple[Model, Tensor]:
        """The model of the context of one prompt, and the row of its units `(1, W)`: for metrics and explainers alone.

        What it has answered is remembered: explainers and metrics that look at the same contexts share them.
        """
        rows = self.encode([prompt])
        model_of_all = self.make_model(rows, prompts=[prompt])
        extras = {"prompt": torch.tensor([[prompt.number]])}
        return model_of_all.for_sample(extras, 0), rows

    def make_model(
        self, rows: Tensor, removal: Removal | None = None, prompts: Sequence[Prompt] = ()
    ) -> Model:
        """The model of rows of codes `(N, W)` of prompts, which is bound to one of them before it is run.

        Args:
            rows: the units of the contexts.
            removal: what stands in the place of a removed unit.
            prompts: the user's, one for each row; those without an answer get that of the model. Of several, those
                that do not fit the model are refused, with a warning: they have no answer.

        Raises:
            ArgumentError: no prompt fits the model.
            ModelError: the model fails, or padding beside a prompt changes its answer.
        """
        check(
            len(prompts) == len(rows), "prompts", f"one for each of {len(rows)} rows", len(prompts)
        )
        written, refusals = self._write_all(prompts)
        box = self._box
        box.prompts.update(written)
        box.refusals.update(refusals)
        fill = self.make_fill(rows, removal or self.removals[0])
        box.remember(rows)
        for operator in self.removals:
            box.remember(self.make_fill(rows, operator))
        model = Model(
            box, CODE_BOUNDS, device=self._device, task=get_task(self.task), extras=("prompt",)
        )
        if not self._tried:
            readable = [row for row, prompt in enumerate(prompts) if prompt.number in written]
            first = readable[0]
            tried_box = box.bind_prompt(written[prompts[first].number])
            self._try_prompt(tried_box, rows[first : first + 1])
        return model.with_rows(fill)

    def _write_all(
        self, prompts: Sequence[Prompt]
    ) -> tuple[dict[int, WrittenPrompt], dict[int, str]]:
        """Prompts as the model reads them, and why it does not read the others, by their numbers.

        Raises:
            StandfastError: it reads none of them.
        """
        written: dict[int, WrittenPrompt] = {}
        refusals: dict[int, str] = {}
        first_error: StandfastError | None = None
        for row, prompt in enumerate(prompts):
            try:
                written[prompt.number] = self.write(prompt)
            except StandfastError as error:
                first_error = first_error or error
                refusals[prompt.number] = f"number {row}: {error}"
        if first_error is not None and not written:
            raise first_error
        if refusals:
            lines = [f"  {refusal}" for refusal in refusals.values()]
            how_many = f"{len(refusals)} of {len(prompts)}"
            listed = "\n".join(lines)
            warn_user(f"prompts without an answer ({how_many}):\n{listed}")
        return written, refusals

    def _try_prompt(self, box: AnswerBox, row: Tensor) -> None:
        """Run the first prompt twice, with padding beside it and without, and without any context."""
        with torch.no_grad(), _evaluating(self.model):
            device = self._device
            outputs = box(row.to(device))
            fault = box.find_padding_fault(row.to(device))
            no_context = torch.full_like(row, float(GONE))
            empty = box(no_context.to(device))
        if not bool(torch.isfinite(outputs).all()):
            raise ModelError("model: expected finite logits for the answer, got NaN or infinity")
        if fault:
            raise ModelError(
                "model: expected the same answer for a prompt with padding beside it, got differences of up to"
                f" {fault:.2g}. {explain_padding_fault(self.model)}"
            )
        if not bool(torch.isfinite(empty).all()):
            warn_user("model: it gives NaN or infinity for a prompt without a context")
        self.__dict__["_tried"] = True

    def logits(self, prompts: Sequence[Prompt]) -> Tensor:  # type: ignore[override]
        """What the task reads of each prompt, `(N, 4)`: see `standfast.tasks.generated`."""
        outputs: list[Tensor] = []
        for prompt in list_prompts(prompts):
            written = self.write(prompt)
            with torch.no_grad(), _evaluating(self.model):
                box = self._box.bind_prompt(written)
                outputs.append(box(self.encode([prompt])))
        return torch.cat(outputs)

    def predict(self, prompts: Sequence[Prompt]) -> Tensor:  # type: ignore[override]
        """The log-probability of what is explained of each answer, in nats, `(N,)`."""
        return self.logits(prompts)[:, 0]


class _evaluating:
    """A module in evaluation mode, which has its own mode afterwards."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.modes = [(part, part.training) for part in module.modules()]

    def __enter__(self) -> None:
        self.module.eval()

    def __exit__(self, *_: object) -> None:
        for part, mode in self.modes:
            part.training = mode


def list_prompts(prompts: Any) -> list[Prompt]:
    """Prompts as a list.

    Raises:
        ArgumentError: something else, or none.
    """
    listed = [prompts] if isinstance(prompts, Prompt) else prompts
    is_list = isinstance(listed, list | tuple) and len(listed) > 0
    got = type(prompts).__name__ if listed else "none"
    check(is_list, "inputs", _PROMPTS, got)
    for entry in listed:
        if not isinstance(entry, Prompt):
            raise ArgumentError("inputs", _PROMPTS, f"{type(entry).__name__} among them")
    return list(listed)


def generate_greedily(
    network: AnswerNetwork, ids: Sequence[int], most: int, ends: set[int], device: torch.device
) -> tuple[int, ...]:
    """The likeliest token after the other, without the token that ends an answer.

    Args:
        network: a language model.
        ids: of the prompt.
        most: how many tokens at most.
        ends: tokens that end an answer.
        device: of the model.
    """
    takes_cache = any(
        "past_key_values" in _list_parameters(part) for part in walk_wrappers(network.module)
    )
    answer: list[int] = []
    cache: Any = None
    with torch.no_grad(), _evaluating(network.module):
        while len(answer) < most:
            if takes_cache:
                if cache is None:
                    fresh = [*ids]
                else:
                    fresh = answer[-1:]
                tokens = torch.tensor([fresh], device=device)
                returned = network.module(tokens, past_key_values=cache, use_cache=True)
                cache = getattr(returned, "past_key_values", None)
                takes_cache = cache is not None
                logits = find_output(returned, rows=1)
            else:
                tokens = torch.tensor([[*ids, *answer]], device=device)
                logits = network.call(tokens, torch.ones_like(tokens, dtype=torch.bool))
            likeliest = int(logits[0, -1].argmax())
            if likeliest in ends:
                break
            answer.append(likeliest)
    return tuple(answer)


def _list_parameters(module: nn.Module) -> list[str]:
    try:
        return list(inspect.signature(module.forward).parameters)
    except (TypeError, ValueError):  # a `forward` that is not written in Python
        return []
