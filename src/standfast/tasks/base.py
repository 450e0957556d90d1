"""`Task`: what a model answers. It makes of the model's output a score, which is explained, and a margin.

All that metrics, explainers and searches need of a prediction are these two numbers of an input:

    score     what is explained, such as the logit of a class
    margin    below 0 while the answer is the one of the clean input, 0 or above when it is another (SAFARI, Eq. 1)

Both depend on the answer at the clean input, which is a tensor with a row for each sample: a class `(N,)`, or several
numbers `(N, k)` such as a reference box. Only its task reads what is in a row, so answers are indexed, repeated and cut
into chunks as inputs are.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor

from standfast.errors import ArgumentError, ModelError, check
from standfast.records import ConfigurationType
from standfast.registry import Registry
from standfast.tensors import describe_rows

#: the scale of scores and margins, where a task has both
Scale = Literal["logit", "probability"]
SCALES: tuple[Scale, ...] = get_args(Scale)
#: the fall of a log-probability to a tenth of the probability
_TENTH = math.log(10)


@dataclass(frozen=True)
class TaskWords:
    """What reports call that which a task measures; by default the words of classes.

    Attributes:
        logit, probability: a score on an axis, on either scale.
        own: the score of an answer, as metrics compare it, to follow "the drop of".
        answer: what stands before its value at the clean and at the changed input, as in "cosine 1 → 0.8".
        fall: what a drop is (`Task.measure_drop`); empty where it is the share of the score that is lost.
        kind: what answers are told apart by, such as "class"; empty where they are not kinds.
        classes: whether answers are classes, of which one is right.
        answers: what each answer is, by its number, where the task itself says so, such as the two sides of a decision.
        rule: of a decision, such as "P(default) > 0.35", whatever its sides are called; empty of other tasks.

    >>> TaskWords().say_drop, TaskWords(fall="how far the dose has fallen").say_drop
    ("how much of the answer's probability is lost", 'how far the dose has fallen')
    """

    logit: str = "logit"
    probability: str = "probability"
    own: str = "the answer's probability"
    answer: str = "answer"
    fall: str = ""
    kind: str = "class"
    classes: bool = True
    answers: tuple[str, ...] = ()
    rule: str = ""

    def __post_init__(self) -> None:
        # a list, in a manifest that was read
        object.__setattr__(self, "answers", tuple(self.answers))

    @property
    def say_drop(self) -> str:
        """What a drop is, in words."""
        return self.fall or f"how much of {self.own} is lost"

    @property
    def kinds(self) -> str:
        """Several kinds of answers."""
        if self.kind == "class":
            return f"{self.kind}es"
        return f"{self.kind or 'input'}s"


#: the words of classes, and of results that were stored without words
CLASS_WORDS = TaskWords()


def read_common_words(models: Iterable[Mapping[str, Any]]) -> TaskWords:
    """The words of the task of all models, or those of any task, if models have several.

    Args:
        models: as a manifest describes them, with `"words"`, where these are known.

    >>> read_common_words([{"words": {"own": "the dose"}}, {"words": {"own": "the dose"}}]).own
    'the dose'
    >>> read_common_words([]) == CLASS_WORDS
    True
    """
    different = set()
    for about in models:
        words = about.get("words") or {}
        different.add(TaskWords(**words))
    if not different:
        return CLASS_WORDS
    if len(different) > 1:  # such as decisions at several cut-offs, whose answers have other words
        different = {replace(words, answers=(), rule="") for words in different}
    if len(different) == 1:
        return different.pop()
    return Task.words


@dataclass(frozen=True)
class Task(metaclass=ConfigurationType):
    """The base of every task. A task of your own has the four methods `read`, `answer`, `score` and `rivals`.

    In shapes, N is the number of inputs, and `outputs` is the tensor that `read` returns. All methods but `read` get
    rows of any inputs, in any order, and treat each row alone.

    Attributes:
        name: under which the task is registered, such as `"regression"`.
        usual: options that must be given, with values, for texts that show how the task is named.
        version: a part of what results depend on, to be raised when the same options give other numbers.
        kept: what it means that the answer is kept, for the report.
        words: what a report calls scores and answers.
        classes: whether an answer is one of several classes, of which one is right and a softmax gives probabilities.
        switches: whether a changed input may have another answer that is explained there, such as another class. Where
            it is False, what was chosen for the clean input is explained everywhere.
        takes_vectors: whether targets are vectors `(N, D)`, and not whole numbers.
        linear: whether a score is linear in the outputs, so that attributions can add up to its change.
        peaks: whether an input's own answer may have the largest score at the input itself. The margin then has no
            gradient there. Searches for the least change look for a direction to leave it.
        may_be_empty: whether a module may find nothing at all, and then returns what has no gradients.
        scales: whether scores are logits that also are probabilities; otherwise both scales are the same.
        chance: what a score is, on which scale, where it says how probable the answer is: a `"probability"`, or its
            logarithm (`"log_probability"`); empty where it is neither, or log-odds already.
        parts_column: where the outputs `(N, K)` say of how many parts, such as tokens, a score is the sum.
    """

    name: ClassVar[str]
    usual: ClassVar[str] = ""
    version: ClassVar[int] = 1
    kept: ClassVar[str]
    words: ClassVar[TaskWords] = TaskWords("score", "score", "the score", kind="", classes=False)
    classes: ClassVar[bool] = False
    switches: ClassVar[bool] = False
    takes_vectors: ClassVar[bool] = False
    linear: ClassVar[bool] = True
    peaks: ClassVar[bool] = False
    may_be_empty: ClassVar[bool] = False
    scales: ClassVar[bool] = False
    chance: ClassVar[Literal["", "probability", "log_probability"]] = ""
    parts_column: ClassVar[int | None] = None

    @property
    def reads_logits(self) -> bool:
        """Whether outputs are logits as the module returns them, so that probabilities in their place are a mistake."""
        return self.scales and self.classes

    @property
    def below(self) -> Task:
        """The task that reads the module: by default this one; `standfast.tasks.Decision` has another one below it."""
        return self

    @property
    def same_within(self) -> float:
        """How far the number that another model answers may be from this one's and be the same answer; any by default.

        Where answers are no numbers, nothing depends on it.
        """
        return math.inf

    @property
    def fall_of_part(self) -> float | None:
        """The fall of the score, for each of its parts, with which an answer is lost (`find_lost`), if any."""
        return None

    def decide(self, outputs: Tensor) -> Tensor:
        """The outputs of this task, from those of the task below `(N, ...)`; by default they are the same."""
        return outputs

    def name_classes(self, names: Sequence[str]) -> Task:
        """The task, where the names of the classes are known, in the order of their numbers; by default itself.

        Raises:
            ArgumentError: it names a class that is not among them.
        """
        return self

    def load_files(self, folder: Path) -> Task:
        """The task with what files hold that its options name, relative to a folder; by default itself.

        Raises:
            ArgumentError: a file is missing, or holds something else.
        """
        return self

    @abstractmethod
    def read(self, output: Any, count: int) -> Tensor:
        """The outputs of `count` inputs as one tensor `(N, ...)`, from what the module returned.

        Raises:
            ModelError: the module returned something else.
        """

    def find_fault(self, outputs: Tensor) -> str:
        """What is wrong with the values of outputs `(N, ...)`, to follow "got"; empty, as by default, if nothing is."""
        return ""

    @abstractmethod
    def answer(self, outputs: Tensor, targets: Tensor | None = None) -> Tensor:
        """The answers at inputs with these outputs `(N, ...)`: `(N,)`, or `(N, k)`, a row for each.

        Args:
            outputs: of clean inputs, which may be not finite.
            targets: what to explain of each, as the user said it; None for what the model says itself.

        Raises:
            ArgumentError: the targets do not fit the outputs.
        """

    def exists(self, outputs: Tensor, answer: Tensor) -> Tensor:
        """Whether the clean inputs have the answer that is explained, bool `(N,)`: by default where the margin says so.

        A target class that is not predicted, an empty mask and a box that is not found are none.
        """
        return self.margin(outputs, answer) < 0

    @abstractmethod
    def score(self, outputs: Tensor, answer: Tensor, scale: Scale = "logit") -> Tensor:
        """The score of each input `(N,)`; it can be differentiated."""

    @abstractmethod
    def rivals(self, outputs: Tensor, answer: Tensor, scale: Scale = "logit") -> Tensor:
        """How near the answer is to change, in each of R ways, `(N, R)`: it is kept while all are below 0.

        It can be differentiated. Where an overlap has no useful gradient, this is a smooth stand-in for searches, and
        `margin`, which decides what counts, is the true one.
        """

    def margin(self, outputs: Tensor, answer: Tensor, scale: Scale = "logit") -> Tensor:
        """`J` of each input `(N,)`: below 0 while the answer is kept. It decides what counts."""
        return self.rivals(outputs, answer, scale).amax(1)

    def guide(self, outputs: Tensor, answer: Tensor, scale: Scale = "logit") -> Tensor:
        """The margin as searches differentiate it, `(N,)`: by default the true one."""
        return self.margin(outputs, answer, scale)

    def measure_drop(self, start: Tensor, scores: Tensor) -> Tensor:
        """How far scores have fallen from those at the start: of a probability, the share that is lost."""
        return 1 - scores / start

    def measure_closeness(self, first: Tensor, second: Tensor) -> Tensor:
        """How near scores, by their probabilities, are to others `(N,)`: 1 where they are the same, and at least 0."""
        return (1 - (first - second).abs()).clamp(min=0)

    def read_answer(self, outputs: Tensor, answer: Tensor) -> Tensor:
        """What the answer has become, as one number `(N,)`: another class, or else the score by which it is compared.

        Args:
            outputs: of clean or of changed inputs, `(N, ...)`.
            answer: at the clean inputs.
        """
        if self.switches:
            return self.describe(self.answer(outputs))
        return measure_score(self, outputs, answer, "probability")

    def describe(self, answer: Tensor) -> Tensor:
        """What is explained of each input, as a whole number `(N,)`: a class, a label, an output."""
        if answer.ndim == 1:
            return answer
        # answers of several numbers are floats, and so is the class in them
        return answer[:, 0].round().to(torch.int64)


tasks: Registry[type[Task]] = Registry(
    "task",
    "standfast.tasks",
    lambda entry: isinstance(entry, type) and issubclass(entry, Task),
    named=True,
)


def find_log_odds(task: Task, scores: Tensor) -> Tensor:
    """Scores as log-odds, which have no bounds: those of probabilities, and scores of other tasks as they are.

    Args:
        task: of the model.
        scores: as probabilities where the task has some, else of any scale.

    >>> from standfast.tasks import Classification, GeneratedAnswer
    >>> find_log_odds(Classification(), torch.tensor([0.5, 0.75]))
    tensor([0.0000, 1.0986])
    >>> find_log_odds(GeneratedAnswer(), torch.tensor([0.5, 0.75]).log())
    tensor([0.0000, 1.0986])
    """
    information = torch.finfo(scores.dtype)
    if task.chance == "probability":
        # probabilities of 0 and 1 have infinite logits
        return scores.clamp(information.tiny, 1 - information.eps).logit()
    if task.chance == "log_probability":
        # networks compute in single precision: what is nearer to 0 is no smaller chance of another answer
        below = scores.clamp(max=-torch.finfo(torch.float32).tiny)
        # log P - log(1 - P), without 1 - P, which is 0 for a sure answer
        return below - torch.log(-torch.expm1(below))
    return scores


def count_parts(task: Task, outputs: Tensor) -> Tensor:
    """Of how many parts each score is the sum, such as tokens, `(N,)`: by default of one."""
    if task.parts_column is None:
        return outputs.new_ones(len(outputs))
    return outputs[:, task.parts_column]


def find_lost(task: Task, start: Tensor, outputs: Tensor, answer: Tensor) -> Tensor:
    """Whether nothing speaks for the answers any more, bool `(N,)`: where they are others than at the start.

    A generated answer is lost where what is explained is less than a tenth as probable, and by more than the tolerance
    for each token. The second counts for long answers. A greedy answer is the likeliest one with its context, and so it
    is a little less probable with any other context: over many tokens, chance adds up.

    Args:
        task: of the model.
        start: outputs of the clean inputs, `(N, ...)`.
        outputs: of the changed inputs, such as those from which everything was removed, `(N, ...)`.
        answer: at the clean inputs.

    >>> from standfast.tasks import GeneratedAnswer
    >>> clean = torch.tensor([[-2.0, -0.5, -1.0, 4.0], [-2.0, -0.1, -1.0, 20.0]])
    >>> without = torch.tensor([[-5.0, -1.25, 0.3, 4.0], [-11.0, -0.55, 0.3, 20.0]])
    >>> find_lost(GeneratedAnswer(), clean, without, GeneratedAnswer().answer(clean))
    tensor([ True, False])
    """
    if task.fall_of_part is None:
        return task.margin(outputs, answer) >= 0
    fall = task.score(start, answer) - task.score(outputs, answer)
    return fall > (task.fall_of_part * count_parts(task, outputs)).clamp(min=_TENTH)


def make_mask(finite: Tensor, values: Tensor) -> Tensor:
    """Values `(N,)` where the outputs are finite, bool `(N,)`; NaN elsewhere."""
    return torch.where(finite, values, torch.nan)


def measure_score(task: Task, outputs: Tensor, answer: Tensor, scale: Scale) -> Tensor:
    """The score of each input, float64 `(N,)`; NaN where an output is not finite.

    >>> from standfast.tasks import Classification
    >>> measure_score(Classification(), torch.tensor([[0.0, 0.0]]), torch.tensor([1]), "probability")
    tensor([0.5000], dtype=torch.float64)
    """
    # in single precision the probability of a confident model rounds to 1
    outputs = outputs.double()
    return make_mask(torch.isfinite(outputs.flatten(1)).all(1), task.score(outputs, answer, scale))


def measure_margin(
    task: Task, outputs: Tensor, answer: Tensor, scale: Scale = "logit", guide: bool = False
) -> Tensor:
    """The margin of each input `(N,)`, or its stand-in as a `guide` of searches; from probabilities it is float64.

    In float32 a confident model's probability rounds to 1, and the margin to a plateau at -1.
    """
    find = task.guide if guide else task.margin
    # logits keep their differences in float32
    if scale != "logit":
        outputs = outputs.double()
    return find(outputs, answer, scale)


def expect_tensor(output: Any, count: int, shape: str, fits: bool) -> Tensor:
    """The output itself, a floating-point tensor with a row for each of `count` inputs.

    Args:
        output: of the module.
        count: of inputs.
        shape: that is expected, in words.
        fits: whether the output has it.

    Raises:
        ModelError: it is something else.
    """
    if not isinstance(output, Tensor):
        raise ModelError(f"module: expected {shape}, got a {type(output).__name__}")
    if not output.is_floating_point():
        advice = "return them with .float(), without argmax or round, which have no gradients"
        raise ModelError(
            f"module: expected {shape} as floating-point numbers, got {output.dtype}: {advice}"
        )
    same = output.ndim > 0 and output.shape[0] == count
    if not fits or not same:
        # the rows of a batch are padded, so their number says nothing to the user
        batch = f"{tuple(output.shape)} for a batch of N = {count} (small batches are padded)"
        got = describe_rows(output) if same else batch
        raise ModelError(f"module: expected {shape}, got a tensor of shape {got}")
    return output


def expand_targets(targets: object, rows: int) -> Tensor:
    """What the user asks to explain, as a tensor with a row for each input: numbers `(N,)`, or vectors `(N, D)`.

    Raises:
        ArgumentError: it is neither one number or vector, nor one for each of `rows` inputs.
    """
    expected = f"whole numbers of shape ({rows},) or one number"
    vectors = f"a vector for each of {rows} inputs, or one"
    try:
        # lists and arrays are taken as well
        values = torch.as_tensor(targets)
    except (TypeError, ValueError, RuntimeError):
        raise ArgumentError("targets", expected, repr(targets)) from None
    got = f"{values.dtype} of shape {tuple(values.shape)}"
    if values.is_floating_point() and values.ndim in (1, 2):
        check(values.ndim == 1 or len(values) in (1, rows), "targets", vectors, got)
        return values.expand(rows, -1)
    # one number stands for all inputs
    whole = values.dtype in (torch.int64, torch.int32, torch.uint8) and tuple(values.shape) in (
        (),
        (rows,),
    )
    check(whole, "targets", expected, got)
    return values.to(torch.int64).expand(rows)


def check_range(targets: Tensor, count: int, what: str) -> Tensor:
    """Whole numbers `(N,)` from 0 to `count - 1`.

    Raises:
        ArgumentError: they are something else; `what` says of what they are numbers.
    """
    got = f"{targets.dtype} of shape {tuple(targets.shape)}"
    check(
        not targets.is_floating_point() and targets.ndim == 1,
        "targets",
        f"whole numbers (N,), which are {what}",
        got,
    )
    if bool(((targets < 0) | (targets >= count)).any()):
        got = f"values from {int(targets.min())} to {int(targets.max())}"
        raise ArgumentError("targets", f"{what} from 0 to {count - 1}", got)
    return targets


def pick(values: Tensor, columns: Tensor) -> Tensor:
    """The values `(N,)` in the given columns `(N,)` of `(N, K)`."""
    return values.gather(1, columns[:, None])[:, 0]
