"""A language model that is asked how probable a fixed answer is after a prompt."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from standfast.errors import ModelError
from standfast.model import BlackBox, Composition, Model
from standfast.similarity.rows import row_sum
from standfast.tasks import Task
from standfast.tasks.generated import COLUMNS
from standfast.tensors import widen_half
from standfast.texts.embedded import EmbeddedText
from standfast.texts.network import TextBox, TokenNetwork, TokenReader
from standfast.texts.prompts import WrittenPrompt
from standfast.texts.remembered import RememberedOutputs, read_state
from standfast.texts.tokenizers import Tokenizer
from standfast.texts.wrapped import walk_wrappers

#: lengths of batches are multiples of this, so that a prompt is read alike whatever the others are
_STEP = 8
#: tokens that are run together, forward alone and with gradients, on a processor and on a card
_TOKENS = 1 << 12
_TOKENS_ON_CARD = 1 << 16
_LEAST_GRADIENTS = 4
#: numbers in the logits of a batch: 256 MB
_LOGITS = 1 << 26
#: of how many prompts the tokens of contexts are remembered
_READ_PROMPTS = 8


@dataclass(frozen=True, eq=False)
class AnswerNetwork(TokenNetwork):
    """A language model, `(ids (N, T), present (N, T)) -> logits (N, T, V)`, and an answer at the end of its tokens.

    Attributes:
        answer: its tokens.
        explained: the numbers of the tokens of which the log-probabilities are summed.
        first: how many first tokens of the greedy answer have to stay; None for all.
        at_logits: gradients and relevance of what is explained are those of the logits of its tokens.
    """

    answer: tuple[int, ...] = ()
    explained: tuple[int, ...] = ()
    first: int | None = None
    at_logits: bool = False

    def start_at_logits(self) -> AnswerNetwork:
        """The network whose score is the same, and whose relevance starts at the logits of the explained tokens."""
        return replace(self, at_logits=True)

    def ask(self, ids: Tensor, present: Tensor, place: int | None = None) -> Tensor:
        if isinstance(self.module, EmbeddedText):
            return super().ask(ids, present, place)
        return self._select(self._call_for_few(ids, present), present, place)

    def score_each(self, ids: Tensor, present: Tensor) -> Tensor:
        """The log-probability of each token of the answer, `(N, A)`."""
        logits = self._find_logits(self._call_for_few(ids, present), present)
        return find_log_shares(logits, self.answer)[1]

    def _call_for_few(self, ids: Tensor, present: Tensor) -> Tensor:
        """Logits of the last tokens, or of all where the module knows no others."""
        if not self._can_keep_few():
            return self.call(ids, present)
        kept = min(self.count_logits(), ids.shape[1])
        return self.call(ids, present, logits_to_keep=kept)

    def _can_keep_few(self) -> bool:
        """Whether the module makes logits of the last tokens alone, if it is asked to."""
        for part in walk_wrappers(self.module):
            try:
                parameters = inspect.signature(part.forward).parameters
            except (TypeError, ValueError):  # a `forward` that is not written in Python
                return False
            if "logits_to_keep" in parameters:
                return True
        return False

    def count_logits(self) -> int:
        """Of how many last tokens logits are read: it depends on the answer alone, and so do the last bits."""
        padding = _STEP
        count = len(self.answer) + 1 + padding
        # a multiple, so that few sizes are met
        return -(-count // _STEP) * _STEP

    def count_vocabulary(self) -> int:
        """How many logits a token has, about: as the largest layer of embeddings says; 1 where there is none."""
        layers = (part for part in self.module.modules() if isinstance(part, nn.Embedding))
        return max((len(layer.weight) for layer in layers), default=1)

    def _select(self, out: Tensor, present: Tensor, place: int | None) -> Tensor:
        """What is read of logits `(N, K, V)` of the last K tokens: `(N, 4)`, as `standfast.tasks.generated` says."""
        logits = self._find_logits(out, present)
        return read_answer(logits, self.answer, self.explained, self.first, self.at_logits)

    def _find_logits(self, out: Tensor, present: Tensor) -> Tensor:
        """The logits `(N, A, V)` that predict the tokens of the answer, of those of the last K tokens `(N, K, V)`."""
        check_logits(out, present)
        length = present.shape[1]
        skipped = present.shape[1] - out.shape[1]
        positions = torch.arange(length, device=present.device)
        last = (present * positions).argmax(1)
        # a token is predicted at the place before it
        count = len(self.answer)
        numbers = torch.arange(count, device=present.device)
        predicting = last[:, None] - count + numbers - skipped
        rows = torch.arange(len(out), device=out.device)[:, None]
        return out[rows, predicting]


def check_logits(out: Tensor, present: Tensor) -> None:
    """Raise `ModelError` unless logits have a row for each token, or for the last of them."""
    has_logits = out.ndim == 3
    fits = has_logits and out.shape[1] <= present.shape[1]
    if not fits:
        raise ModelError(
            "model: expected a language model, with logits (N, T, V) for token ids (N, T), got outputs of shape"
            f" {tuple(out.shape)} for {tuple(present.shape)}"
        )


def read_answer(
    logits: Tensor,
    answer: Sequence[int],
    explained: Sequence[int],
    first: int | None,
    at_logits: bool = False,
) -> Tensor:
    """The numbers of the task "answer", `(N, 4)`, from the logits `(N, A, V)` that predict each token of an answer.

    Args:
        logits: of the model.
        answer: its tokens.
        explained: the numbers of those that are explained.
        first: how many first tokens have to stay; None for all.
        at_logits: the gradient of what is explained is that of the sum of the logits of its tokens.

    >>> logits = torch.log(torch.tensor([[[0.2, 0.8], [0.4, 0.6]]]))
    >>> read_answer(logits, (1, 0), (0, 1), None)[0, 0].exp()  # 0.8 * 0.4
    tensor(0.3200)
    """
    rivals, of_answer = find_log_shares(logits, answer)
    if at_logits:
        targets = pick_tokens(logits, answer)
        of_answer = targets + (of_answer - targets).detach()
    if first is None:
        deciding = rivals
    else:
        deciding = rivals[:, :first]
    total = row_sum(of_answer[:, list(explained)])
    mean = row_sum(of_answer) / len(answer)
    count = torch.full_like(total, len(explained))
    outputs = torch.stack([total, mean, deciding.amax(1), count], 1)
    assert outputs.shape[1] == COLUMNS
    return outputs


def find_log_shares(logits: Tensor, answer: Sequence[int]) -> tuple[Tensor, Tensor]:
    """By how much the largest other logits exceed those of an answer, and its log-probabilities, `(N, A)` each.

    The log-probability of a token follows from its log-odds. A softmax rounds probabilities close to 1 to 1, and the
    log-odds of a sure answer could not be had back.

    >>> logits = torch.tensor([[[40.0, 0.0, 0.0]]])
    >>> rival, log_share = find_log_shares(logits, (0,))
    >>> float(rival), f"{float(log_share):.4g}", f"{float(logits.log_softmax(2)[0, 0, 0].abs()):.4g}"
    (-40.0, '-8.497e-18', '0')
    """
    wide = widen_half(logits)
    ids = _expand_ids(answer, logits)
    of_answer = pick_tokens(logits, answer)
    others = wide.scatter(2, ids, -torch.inf)
    log_shares = nn.functional.logsigmoid(of_answer - others.logsumexp(2))
    # no search follows the gradient of rivals, as units have none, and relevance has no rule for a largest value
    rivals = others.detach().amax(2) - of_answer.detach()
    return rivals, log_shares


def pick_tokens(logits: Tensor, answer: Sequence[int]) -> Tensor:
    """The logits `(N, A)` of the tokens of an answer, of all logits `(N, A, V)`."""
    return widen_half(logits).gather(2, _expand_ids(answer, logits))[..., 0]


def _expand_ids(answer: Sequence[int], logits: Tensor) -> Tensor:
    """The tokens of an answer for each row of logits `(N, A, V)`, `(N, A, 1)`."""
    ids = torch.tensor([list(answer)], device=logits.device)
    return ids.expand(len(logits), -1)[..., None]


class AnswerBox(TextBox):
    """A language model as a module of rows of codes `(N, W)`, one for each unit of the context of one prompt.

    It is made for all prompts, and bound to one of them before it is run (`bind`). What it has answered to a row is
    remembered, as long as its weights are the same: each is run alone or beside others with the same number of tokens,
    and so nothing depends on who asks first.

    Args:
        network: of token ids.
        tokenizer: the user's.
        most: the largest number of tokens; None for any.
        prompts: of all samples, with their answers, by the numbers of the user's (`Prompt.number`).
        tokens: how many are run together; None for a usual number.
        example: a prompt as the model's templates write it, by which they are told from others.
    """

    remembers = True

    def __init__(
        self,
        network: AnswerNetwork,
        tokenizer: Tokenizer,
        most: int | None,
        prompts: Mapping[int, WrittenPrompt],
        tokens: int | None = None,
        example: WrittenPrompt | None = None,
    ) -> None:
        super().__init__(network, TokenReader(tokenizer, most=most))
        self.tokens = tokens
        self.example = example
        self.prompts = dict(prompts)
        #: why prompts are not answered, such as one that is too long, by their numbers
        self.refusals: dict[int, str] = {}
        #: to which it is bound
        self.prompt: WrittenPrompt | None = None
        self._bound: dict[WrittenPrompt, AnswerBox] = {}
        #: of all prompts
        self._outputs = RememberedOutputs()

    def __getstate__(self) -> dict[str, Any]:
        return {
            **super().__getstate__(),
            "_bound": {},
            "_outputs": RememberedOutputs(self._outputs.room),
        }

    @property
    def composition(self) -> Composition:
        """What a box of texts consists of, and how prompts are written; which ones these are their numbers say."""
        stated = super().composition
        if self.example is None:
            written = []
        else:
            written = [self.example.before, self.example.after, self.example.special]
        return replace(stated, content={**stated.content, "written": written})

    def bind(self, extras: Mapping[str, Tensor]) -> AnswerBox:
        """The box of one prompt, of which the number is the extra `"prompt"`.

        Raises:
            ModelError: it is not known in this process.
        """
        number = int(extras["prompt"].reshape(-1)[0])
        if number in self.refusals:
            refusing = self._copy()
            refusing.refusal = self.refusals[number]
            return refusing
        if number not in self.prompts:
            raise ModelError(
                "model: expected one of the prompts that it was made for, got another one"
            )
        return self.bind_prompt(self.prompts[number])

    def bind_prompt(self, prompt: WrittenPrompt) -> AnswerBox:
        """The box of one prompt, the same one at each call, so that it remembers what it was asked."""
        bound = self._bound.pop(prompt, None) or self._make_bound(prompt)
        self._bound[prompt] = bound
        if len(self._bound) > _READ_PROMPTS:
            earlier = list(self._bound.values())[-_READ_PROMPTS - 1]
            earlier.forget_tokens()
        return bound

    def forgetting(self) -> AbstractContextManager[None]:
        """Inside the block all contexts are run, also those that were run before it."""
        return self._outputs.set_aside()

    def forget_tokens(self) -> None:
        """Forget how contexts are read, which is soon done again."""
        self.reader.forget()
        self._engines.clear()
        for other in self._bound.values():
            other.forget_tokens()

    def bind_other(self, other: Literal["answer", "question"]) -> AnswerBox:
        """The box of the same context with another answer, or with another question and its answer."""
        prompt = self.prompt
        other_prompt: WrittenPrompt | None = None
        if prompt is not None:
            other_prompt = prompt.other_question if other == "question" else prompt.other_answer
        if other_prompt is None:
            raise ModelError(
                "model: expected one prompt at a time, since each has an answer of its own, got several"
            )
        return self.bind_prompt(other_prompt)

    def _copy(self) -> AnswerBox:
        """A box with the same network, prompts and memory."""
        copy = self.__new__(type(self))
        nn.Module.__init__(copy)
        copy.__dict__.update({**self.__dict__, "_modules": dict(self._modules)})
        return copy

    def _make_bound(self, prompt: WrittenPrompt) -> AnswerBox:
        bound = self._copy()
        assert isinstance(self.network, AnswerNetwork)
        bound.network = replace(self.network, answer=prompt.answer, explained=prompt.explained)
        tokenizer = self.reader.tokenizer
        most = self.reader.most
        bound.reader = TokenReader(
            tokenizer, prompt.before, prompt.after, most, prompt.special, prompt.answer
        )
        bound.prompt = prompt
        bound._engines = {}
        bound._bound = {}
        return bound

    def forward(self, x: Tensor) -> Tensor:
        """The numbers of the answer `(N, 4)` after the context of each row of codes `(N, W)`; NaN if it is refused.

        Raises:
            ModelError: it is bound to no prompt.
            NoGradientsError: the codes require gradients; gradients are those by embeddings.
        """
        if self.refusal:
            shape = (len(x), COLUMNS)
            return torch.full(shape, torch.nan, dtype=torch.float32, device=x.device)
        if self.prompt is None:
            raise ModelError(
                "model: expected one prompt at a time, since each has an answer of its own, got several"
            )
        self.refuse_gradients(x)
        group = self.prompt, read_state(self.network.module)
        rows = np.ascontiguousarray(x.detach().cpu().numpy())
        keys = [row.tobytes() for row in rows]
        remembered = self._outputs.find(group)
        outputs = {key: remembered[key] for key in keys if key in remembered}
        # equal rows, such as those that fill a batch up, are run once
        new_rows = {key: row for row, key in enumerate(keys) if key not in outputs}
        if new_rows:
            new_inputs = x[list(new_rows.values())]
            answered = super().forward(new_inputs).detach().cpu()
            new_outputs = dict(zip(new_rows, answered, strict=True))
            self._outputs.add(group, new_outputs)
            outputs |= new_outputs
        return torch.stack([outputs[key] for key in keys]).to(x.device)

    def _count_tokens(self, device: torch.device) -> int:
        """How many tokens are run together."""
        if self.tokens is not None:
            return self.tokens
        if device.type == "cpu":
            return _TOKENS
        return _TOKENS_ON_CARD

    def _count_rows(self, length: int, device: torch.device) -> int:
        """As many rows as have so many tokens, and no more logits than fit."""
        assert isinstance(self.network, AnswerNetwork)
        logits = min(length, self.network.count_logits()) * self.network.count_vocabulary()
        return max(1, min(self._count_tokens(device) // length, _LOGITS // logits))

    def _count_padding(self, count: int, most: int, device: torch.device) -> int:
        """None: the tokens of a row are a multiple of what gives a matrix product the same bits."""
        return 0

    def _make_engine_model(
        self, module: EmbeddedText, bounds: tuple[Tensor, Tensor], device: torch.device, task: Task
    ) -> Model:
        """With gradients what every layer computes is held, so that fewer rows fit."""
        assert isinstance(self.network, AnswerNetwork)
        length = self._count_usual_tokens()
        rows = max(1, self._count_tokens(device) // (_LEAST_GRADIENTS * length))
        if device.type == "cpu":
            rows = min(rows, _LEAST_GRADIENTS)
        engine = Model(module, bounds, device=device, task=task, batch_size=rows)
        engine.fills_batches = False
        return engine

    def _count_usual_tokens(self) -> int:
        """About how many tokens a row has: those of the last one that was read."""
        readings = self.reader._known
        return max((len(reading.ids) for reading in readings.values()), default=1)


def find_answer_box(model: Model) -> AnswerBox | None:
    """The box of a model of answers; None for another model."""
    box: BlackBox | None = model.black_box
    return box if isinstance(box, AnswerBox) else None
