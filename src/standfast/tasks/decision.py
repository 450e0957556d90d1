"""`Decision`: what the user does with the probability of one class or label, at a cut-off of the user's."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import torch
from torch import Tensor

from standfast.errors import ArgumentError, check, suggest_name
from standfast.records import NO_IDENTITY, CountFromZero, set_fields
from standfast.registry import build
from standfast.tasks.base import Scale, Task, TaskWords, tasks
from standfast.tasks.classification import Classification
from standfast.tasks.labels import Binary, MultiLabel

#: what the module may answer below a decision
_BELOW = (Classification, Binary, MultiLabel)
_GRAMMAR = (
    "P(class) > number, or P(class) < number, such as 'P(1) > 0.35' or 'declined: P(1) > 0.35'"
)
_RULE = re.compile(
    r"\s*P\((?P<name>.*\S.*)\)\s*(?P<sign>[<>])\s*(?P<cut_off>[^<>]+?)\s*", re.DOTALL
)
#: what stands before a rule that says what its sides are called
_SIDES = re.compile(
    r"\s*(?P<made>\S.*?)\s*(?:,\s*(?i:else)\b\s*(?P<otherwise>.*?)\s*)?:\s*(?P<rule>P\(.*)",
    re.DOTALL,
)

#: the name of a task with an option
_TASK = re.compile(r"\s*\w+:\w+\s*=")


class _Parts(NamedTuple):
    """What a rule says.

    Attributes:
        name: of the class or label, or its number.
        sign: `>` where the decision is made above the cut-off, `<` below it.
        cut_off: a probability.
    """

    name: str
    sign: str
    cut_off: float

    @property
    def is_above(self) -> bool:
        """Whether the decision is made above the cut-off."""
        return self.sign == ">"

    @property
    # below the cut-off, the other side's probability speaks for the decision
    def limit(self) -> float:
        """The cut-off of the probability that speaks for the decision."""
        if self.is_above:
            return self.cut_off
        return 1 - self.cut_off


def _parse(rule: str) -> _Parts:
    """The parts of a rule; `ArgumentError` if it has another form, or a cut-off that is no probability."""
    match = _RULE.fullmatch(rule)
    if match is None:
        raise ArgumentError("decision", _GRAMMAR, repr(rule))
    try:
        cut_off = float(match["cut_off"])
    except ValueError:
        raise ArgumentError("decision", _GRAMMAR, repr(rule)) from None
    check(0 < cut_off < 1, "decision", "a number above 0 and below 1 behind the sign", repr(rule))
    return _Parts(match["name"].strip(), match["sign"], cut_off)


class _NamedRule(NamedTuple):
    """A rule, and what its sides are called; empty where nothing is said of it."""

    rule: str
    made: str = ""
    otherwise: str = ""


def _split_names(text: str) -> _NamedRule:
    """A rule without what stands before it.

    >>> _split_names("declined, else approved: P(default) > 0.35")
    _NamedRule(rule='P(default) > 0.35', made='declined', otherwise='approved')
    """
    # a rule alone may contain a colon in the name of a class
    match = None if text.lstrip().startswith("P(") else _SIDES.fullmatch(text)
    if match is None:
        return _NamedRule(text)
    otherwise = match["otherwise"]
    check(otherwise != "", "decision", "behind 'else' what the other side is called", repr(text))
    return _NamedRule(match["rule"], match["made"], otherwise or "")


def is_rule(text: str) -> bool:
    """Whether a text is meant as the rule of a decision, and not as the name of a task.

    >>> [is_rule(text) for text in ("P(1) > 0.35", "declined: P(1) > 0.35", "binary:threshold=0.3")]
    [True, True, False]
    >>> is_rule("decision:rule=declined: P(1) > 0.35")
    False
    """
    is_task = _TASK.match(text) is not None
    return not is_task and _split_names(text).rule.lstrip().startswith("P(")


def _hold_rule(rule: object, option: str) -> str:
    """A rule as it is held, with what its sides are called: in one form, whatever its blanks."""
    if not isinstance(rule, str):
        raise ArgumentError("decision", _GRAMMAR, repr(rule))
    named = _split_names(rule)
    parts = _parse(named.rule)
    # the shortest text of a number, so that equal rules have one identity
    spelled = f"P({parts.name}) {parts.sign} {parts.cut_off!r}"
    if not named.made:
        return spelled
    sides = [named.made]
    if named.otherwise:
        sides.append(f"else {named.otherwise}")
    return f"{', '.join(sides)}: {spelled}"


def _hold_below(task: object, option: str) -> Task | None:
    """The task below as it is held."""
    below = build(tasks, task) if isinstance(task, str) else task
    expected = "a task with probabilities: classification, zero_shot, binary or multi_label"
    check(below is None or isinstance(below, _BELOW), option, expected, repr(task))
    assert below is None or isinstance(below, Task)
    return below


@tasks.register("decision")
@dataclass(frozen=True)
class Decision(Task):
    """What is decided by the probability of one class or label at a cut-off of yours: `"P(default) > 0.35"`.

    The answer is a side: 1 where the decision is made, 0 where it is not. The output is the logit z of the probability
    P: of several classes the log-odds of the class against all others together, `log(P / (1 - P))`; of a label, or of
    one number, its own logit. The score is z for side 1 and -z for side 0 (the other way round for `<`), or the
    probability of the side; so a map says what speaks for the side that an input is on. The margin is minus the
    distance from the cut-off, in logits or in probability: above 0 on the other side. Targets are sides: with 1,
    every input is explained for the decision.

    Args:
        rule: `P(<class or label>) > number`, or `<`. The class is named as the estimator or the data set names it, or
            by its number. Where all names are whole numbers, a number is a name. What the sides are called may stand
            before it: `"declined: P(default) > 0.35"`, or `"declined, else approved: P(default) > 0.35"`.
        of: what the module answers; None is what suits an estimator, and classification of a module.
        number: of the class, where it is known already (`name_classes` finds it).
        made, otherwise: what the sides are called, where the rule does not say it. No number depends on them.

    Raises:
        ArgumentError: a rule of another form, a cut-off outside of (0, 1), or a task below that has no probabilities.
            When the module answers: the class is unknown.

    >>> task = Decision("P(2) > 0.35")
    >>> outputs = task.read(torch.tensor([[0.5, 0.3, 0.2], [0.3, 0.3, 0.4]]).log(), 2)
    >>> sides = task.answer(outputs)
    >>> sides, task.margin(outputs, sides, "probability")
    (tensor([0, 1]), tensor([-0.1500, -0.0500]))
    >>> Decision("declined: P(2) > 0.35").words.answers
    ('not declined', 'declined')
    """

    name = "decision"
    usual = "rule=P(1) > 0.35"
    switches = True
    scales = True
    rule: Annotated[str, _hold_rule]
    of: Annotated[Task | str | None, _hold_below] = None
    number: CountFromZero | None = None
    # what sides are called moves no number, so stored jobs keep their identity
    made: str = field(default="", metadata=NO_IDENTITY)
    otherwise: str = field(default="", metadata=NO_IDENTITY)

    def __post_init__(self) -> None:
        if self.of == Classification():
            set_fields(self, of=None)  # two ways to say the same have one identity
        named = _split_names(self.rule)
        word = self.made or named.made
        other_word = self.otherwise or named.otherwise
        expected = "what a side is called, such as 'declined'"
        for option, called in (("made", word), ("otherwise", other_word)):
            check(isinstance(called, str), option, expected, repr(called))
        has_word = bool(word) or not other_word
        check(has_word, "made", f"what the side is called that is not {other_word!r}", "nothing")
        differ = word != other_word or not word
        check(differ, "otherwise", f"another word than {word!r}", "the same")
        set_fields(self, rule=named.rule, made=word, otherwise=other_word)

    @cached_property
    def _parts(self) -> _Parts:
        return _parse(self.rule)

    @cached_property
    def _sides(self) -> Binary:
        """Sides of the probability that speaks for the decision."""
        # with this output, a probability that is equal to the cut-off has exactly its logit
        return Binary(self._parts.limit, "probability")

    @property
    def kept(self) -> str:  # type: ignore[override]
        """What it means that the answer is kept."""
        return f"the same side of {self.rule}"

    @property
    def words(self) -> TaskWords:  # type: ignore[override]
        """The words of two sides: what these are called, or else the rule, and that it does not hold."""
        name = self.made or self.rule
        return replace(
            Binary.words, answers=(self.otherwise or f"not {name}", name), rule=self.rule
        )

    @property
    def below(self) -> Task:
        """The task that reads the module."""
        assert self.of is None or isinstance(self.of, Task)
        if self.of is None:
            return Classification()
        return self.of

    @property
    def reads_logits(self) -> bool:
        """Whether outputs are logits as the module returns them."""
        return self.below.reads_logits

    def load_files(self, folder: Path) -> Decision:
        if self.of is None:
            return self
        return replace(self, of=self.below.load_files(folder))

    def name_classes(self, names: Sequence[str]) -> Decision:
        """The decision with the number of its class, where names of the classes are known.

        Raises:
            ArgumentError: there is no such class.
        """
        if not names or self.number is not None:
            return self
        own_name = self._parts.name
        # a name that is a number is a name first
        if own_name in names:
            return replace(self, number=list(names).index(own_name))
        # where all names are numbers, a number that is none of them is a mistake
        are_numbers = all(name.strip().isdigit() for name in names)
        by_number = own_name.isdigit() and int(own_name) < len(names) and not are_numbers
        got = f"{self.rule!r}{suggest_name(own_name, names)}"
        check(by_number, "decision", f"P of one of the classes {', '.join(map(repr, names))}", got)
        return replace(self, number=int(own_name))

    def read(self, output: Any, count: int) -> Tensor:
        return self.decide(self.below.read(output, count))

    def find_fault(self, outputs: Tensor) -> str:
        return ""  # the task below finds it

    def decide(self, outputs: Tensor) -> Tensor:
        """The logit `(N, 1)` of the probability that speaks for the decision, of the outputs of the task below."""
        is_one = isinstance(self.below, Binary)
        classes = 2 if is_one else outputs.shape[1]
        number = self._find_number(classes)
        if is_one:
            # class 0 has the opposite log-odds
            log_odds = outputs * (2 * number - 1)
        elif isinstance(self.below, MultiLabel):
            log_odds = outputs[:, number : number + 1]
        else:
            # log-odds against all others together: log(P / (1 - P)) of a softmax
            before = outputs[:, :number]
            behind = outputs[:, number + 1 :]
            others = torch.cat([before, behind], 1)
            log_odds = outputs[:, number : number + 1] - others.logsumexp(1, keepdim=True)
        if self._parts.is_above:
            return log_odds
        return -log_odds

    def _find_number(self, count: int) -> int:
        """The number of the class, one of `count`."""
        number = self.number
        own_name = self._parts.name
        if number is None and own_name.isdigit():
            number = int(own_name)
        expected = f"P of one of the classes or labels by its number, from 0 to {count - 1}"
        if number is None:
            raise ArgumentError(
                "decision", f"{expected}; the names are not known here", repr(self.rule)
            )
        # the number may be of another model
        check(number < count, "decision", expected, repr(self.rule))
        return number

    def answer(self, outputs: Tensor, targets: Tensor | None = None) -> Tensor:
        return self._sides.answer(outputs, targets)

    def score(self, outputs: Tensor, answer: Tensor, scale: Scale = "logit") -> Tensor:
        return self._sides.score(outputs, answer, scale)

    def rivals(self, outputs: Tensor, answer: Tensor, scale: Scale = "logit") -> Tensor:
        return self._sides.rivals(outputs, answer, scale)

    def point_at(self, answer: Tensor, width: int | None) -> tuple[Tensor, Tensor]:
        """The class or label that speaks for each side; of several, the one of the rule, with a sign."""
        is_one = isinstance(self.below, Binary)
        # of two classes the other one speaks for the other side
        has_two = is_one or (width == 2 and not isinstance(self.below, MultiLabel))
        classes = 2 if width is None else max(width, 2)
        number = self._find_number(classes)
        is_for_class = (answer == 1) == self._parts.is_above
        numbers = torch.full_like(answer, number)
        if has_two:
            return torch.where(is_for_class, numbers, 1 - numbers), torch.ones_like(answer)
        return numbers, torch.where(is_for_class, 1, -1)


def point_at(task: Task, answer: Tensor, width: int | None) -> tuple[Tensor, Tensor]:
    """What functions of the user's are asked for, who know what the module answers: a number of it, and a sign.

    Args:
        task: of the model.
        answer: at the clean inputs.
        width: how many classes or labels the module answers with; None where it is not known.

    Returns:
        The numbers `(N,)`, and 1, or -1 `(N,)` where what speaks for the number speaks against the answer.

    >>> point_at(Decision("P(2) > 0.35"), torch.tensor([1, 0]), 3)
    (tensor([2, 2]), tensor([ 1, -1]))
    """
    if isinstance(task, Decision):
        return task.point_at(answer, width)
    numbers = task.describe(answer)
    return numbers, torch.ones_like(numbers)
