"""`Metric`: one published evaluation. Options in the constructor, data in the call."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal, TypeVar, get_args

import torch
from torch import Tensor, nn

from standfast.display import Count
from standfast.errors import ArgumentError, check, suggest_name
from standfast.explainers import Explainer, InputCopy
from standfast.explainers import get as get_explainer
from standfast.explainers.base import collect_choices
from standfast.metrics.probe import Call
from standfast.metrics.publications import read_publications
from standfast.metrics.result import Result
from standfast.model import Model, module_name
from standfast.needs import Needs, check_declarations
from standfast.neighbourhoods import Neighbourhood, NormBall, check_neighbourhood
from standfast.records import ConfigurationType, SampleOption, set_fields, split_tag
from standfast.registry import Registry
from standfast.segments import check_one_for_all
from standfast.similarity import Similarity
from standfast.tasks import CLASS_WORDS, TaskWords
from standfast.value_spec import Asks, Direction, ValueSpec, check_direction

T = TypeVar("T")

#: the role of an option that leaves the value as it is
NO_EFFECT: Final = "no effect"


@dataclass(frozen=True)
class PartOf:
    """The role of an option that has an effect only with some values of another option, and so belongs to it.

    Attributes:
        option: the other option.
        only: the names with which this one has an effect; or all, except
        unless: the names with which it has none.
    """

    option: str
    only: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cost:
    """About how many model evaluations a metric makes for one sample.

    Attributes:
        predictions: of inputs that are only predicted.
        explanations: of inputs that are explained, which predicts them as well.
    """

    predictions: int
    explanations: int

    @property
    def evaluations(self) -> int:
        """Predictions and explanations together."""
        return self.predictions + self.explanations


#: what the numbers of a metric may be to an auditor; empty for numbers that speak to no clause of an evidence pack
EVIDENCE = ("", "searched", "drawn", "probability", "faithful", "plausible")
#: what an option means where configurations of a metric are compared
Role = PartOf | Literal["no effect"]

#: a set of options by name: for an answer in seconds, the defaults, and what the metric's publication used
Preset = Literal["quick", "standard", "paper"]
PRESETS: tuple[Preset, ...] = get_args(Preset)
#: the options of each preset of a metric, where they differ from the defaults
Presets = Mapping[Preset, Mapping[str, Any]]
#: options that make a metric cheaper than its defaults do, the cheapest first
Ladder = tuple[Mapping[str, Any], ...]


def check_preset(preset: object, argument: str = "preset") -> None:
    """Raise `ArgumentError` unless `preset` is the name of one."""
    near = ""
    if isinstance(preset, str):
        near = suggest_name(preset, PRESETS)
    check(preset in PRESETS, argument, f"one of {', '.join(PRESETS)}", f"{preset!r}{near}")


def preset_options(kind: type[Metric], preset: Preset) -> dict[str, Any]:
    """The options that a preset sets, without those that a class has taken out of its constructor."""
    fixed = {f.name for f in dataclasses.fields(kind) if not f.init}
    return {
        option: value
        for option, value in kind.presets.get(preset, {}).items()
        if option not in fixed
    }


class _PresetsApplied(ConfigurationType):
    """The class of metric classes: when a metric is made, its preset fills in the options that are not given.

    Only the call knows which options were given, so this cannot be done in `__post_init__`.
    """

    def __call__(cls: type[T], *values: Any, **options: Any) -> T:
        preset = options.get("preset", "standard")
        check_preset(preset)
        kind: Any = cls  # a class of metrics
        # a class of metrics is a dataclass, which type checkers do not know of T
        positional = []
        for f in dataclasses.fields(kind):
            if f.init and not f.kw_only:
                positional.append(f.name)
        given_options = {*positional[: len(values)], *options}
        preset_values = {
            option: value
            for option, value in preset_options(kind, preset).items()
            if option not in given_options
        }
        try:
            metric: T = ConfigurationType.__call__(cls, *values, **options, **preset_values)
        except ArgumentError as error:
            if not preset_values:
                raise
            # raises if the preset is not the cause
            ConfigurationType.__call__(cls, *values, **options)
            wrong = preset_values
            if error.argument in preset_values:
                wrong = {error.argument: preset_values[error.argument]}
            sets = ", ".join(f"{option}={value!r}" for option, value in wrong.items())
            got = f"{error.got} (preset {preset!r} sets {sets})"
            raise ArgumentError(error.argument, error.expected, got) from error
        _check_neighbourhoods(metric)
        return metric


def _check_neighbourhoods(metric: Any) -> None:
    """Raise `ArgumentError` if a metric lacks a neighbourhood, or has one of which its class says nothing.

    Nothing would fit it to a data frame, or check it against the inputs.
    """
    kind = type(metric)
    options = {option.name: getattr(metric, option.name) for option in dataclasses.fields(metric)}
    declared = kind.neighbourhood_option
    if declared:
        is_needed = has_neighbourhood(kind, required=True)
        if is_needed or options[declared] is not None:
            check_neighbourhood(options[declared], declared)
        return
    for name, value in options.items():
        expected = f"{name!r}, as this option holds a neighbourhood"
        argument = f"{kind.__qualname__}.neighbourhood_option"
        check(not isinstance(value, Neighbourhood), argument, expected, "no declaration")


@dataclass(frozen=True)
class Metric(metaclass=_PresetsApplied):
    """The base of every metric: `metric(model, explainer, inputs, targets=None, *, generator=None) -> Result`.

    A metric is a frozen dataclass. Its fields are its options, and `evaluate` is its method; the page "Extending
    standfast" of the documentation builds two. `standfast.testing.check_metric` checks what is promised here.

    The result for a sample is a function of the sample, its target, the model, the explainer, the options and the
    generator's seed. It does not depend on the batch size, on the order of the samples or on the other samples of the
    batch. For that, every sample draws from a random stream of its own, whose seed is made of the generator's seed and
    the sample's values (`standfast.tensors.Streams`). So two equal samples get equal results. Without a generator the
    seed is always the same.

    Args:
        preset: a set of values for the options that are not given: `"quick"` answers in seconds for a small network,
            with fewer draws or a smaller budget; `"standard"` stands for the defaults; `"paper"` is what the metric's
            publication used. Do not compare values of different presets: a search with a smaller budget finds less. The
            other options show the result; `preset` only says where they come from, so `dataclasses.replace` does not
            apply another one: make a new metric instead.

    Attributes:
        name: under which the metric is registered, such as `"worst_case"`.
        version: a part of what its results depend on, to be raised when the same options give other values.
        direction: whether an explainer with a `"higher"` or a `"lower"` value is better; None for a metric that does
            not rank explainers. It is left out where `values` or `value_spec` says it.
        values: how its numbers are read: what they are called, which samples count, what is only a bound. A metric in
            which that depends on the options overrides `value_spec` instead; one that does neither is read by its name
            and direction. What the numbers ask (`ValueSpec.asks`) follows from `compare_unrelated` and `evidence` where
            it does not say so.
        evidence: what its numbers are to an auditor (`EVIDENCE`). How much maps change in a neighbourhood is
            `"searched"` where the worst case is looked for, also where it is exact because everything was tried;
            `"drawn"` where it is the worst of random draws; `"probability"` where it is how often they change. How maps
            go with the model is `"faithful"`, and with what is known about the data `"plausible"`. Empty, for all
            else: also for an exact number of stability without a neighbourhood, such as the agreement of two fixed
            maps or of seeds. Evidence packs then say that it speaks to no clause.
        needs: what the model, the explainer or the data must have (`Needs`); options without a default are known
            anyway. A model without the gradients or parameters that it needs is refused before any work.
        removal_options: the options that say what stands in the place of removed features, such as `"baseline"`.
        neighbourhood_option: the option that holds the neighbourhood in which inputs are perturbed; empty if there is
            none. What a study or `evaluate` says of neighbourhoods goes to this option.
        budget_option: the option that limits the model evaluations of a sample, where None is no limit; empty if there
            is none.
        controls: whether control explainers (`Explainer.control`) are shown beside the others by default, and tests
            say which explainers do better than all of them. For metrics that claim to say something about the model.
        citation, bibtex: the key of the publication and its BibTeX entry, for the report; both may be empty. The
            entries of `publications.bib` need only the key.
        roles: the options that do not always have an effect on the value: `NO_EFFECT`, or `PartOf` another one. A
            report compares configurations by all other options: numbers on an axis, and anything else as a category.
        mask_option: the option that may name a data set's masks, one for each sample; empty if there is none.
        presets: the options of a preset, where they differ from the defaults: `{"quick": {"samples": 10}}`.
        ladder: cheaper settings than the defaults, the cheapest first: `({"samples": 3}, {"samples": 10})`. Where the
            time is limited, one of them is chosen for a metric whose options are not given. By default the preset
            `"quick"` alone.
        has_random_cost: whether only a trial shows what it costs, as how rare an event is decides; `cost` is then a
            guess.
        takes_turns: whether most evaluations of a sample wait for earlier ones, as the steps of a search do. A sample
            alone then leaves most of each batch empty, so a job has enough samples to fill it.

    Raises:
        ArgumentError: when a metric is made with an unknown preset, or with a neighbourhood in an option although its
            class declares no `neighbourhood_option`.
        ArgumentError: when a class is created whose `name` is no text, whose `direction` is missing or is none of the
            above, whose `evidence` is none of `EVIDENCE`, or whose `values` are no `ValueSpec`.

    >>> import standfast
    >>> digits = standfast.data.bundled("digits")[:2]
    >>> model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    >>> metric = standfast.metrics.get("max_sensitivity", neighbourhood=standfast.LinfBall(0.02), samples=5)
    >>> result = metric(model, "saliency", digits.inputs)
    >>> result.status, result.value.shape, result.model_evaluations.tolist()
    (('ok', 'ok'), torch.Size([2]), [6, 6])
    """

    name: ClassVar[str]
    version: ClassVar[int] = 1
    evidence: ClassVar[str] = ""
    needs: ClassVar[Needs] = Needs()
    removal_options: ClassVar[tuple[str, ...]] = ()
    neighbourhood_option: ClassVar[str] = ""
    budget_option: ClassVar[str] = ""
    #: whether it takes texts of different lengths at once
    takes_widths: ClassVar[bool] = False
    controls: ClassVar[bool] = False
    citation: ClassVar[str] = ""
    bibtex: ClassVar[str] = ""
    roles: ClassVar[Mapping[str, Role]] = {}
    mask_option: ClassVar[str] = ""
    presets: ClassVar[Presets] = {}
    ladder: ClassVar[Ladder] = ()
    has_random_cost: ClassVar[bool] = False
    takes_turns: ClassVar[bool] = False
    values: ClassVar[ValueSpec | None] = None

    # equal options make equal metrics, whichever preset they come from
    preset: Preset = field(default="standard", kw_only=True, repr=False, compare=False)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        check_declarations(cls, Metric)
        if "name" not in vars(cls):
            return  # a base of other metrics: those that can be used have a name of their own
        title = cls.__qualname__
        has_name = isinstance(cls.name, str) and cls.name != ""
        check(has_name, f"{title}.name", "a text", repr(cls.name))
        if isinstance(cls.evidence, str):  # or a property, which decides when it is asked
            choices = ", ".join(map(repr, EVIDENCE))
            check(
                cls.evidence in EVIDENCE,
                f"{title}.evidence",
                f"one of {choices}",
                repr(cls.evidence),
            )
        cls.bibtex = cls.bibtex or read_publications().get(cls.citation, "")
        arguments = list(inspect.signature(cls.evaluate).parameters)
        expected = "the arguments (self, call)"
        check(len(arguments) == 2, f"{title}.evaluate", expected, ", ".join(arguments))
        arguments = list(inspect.signature(cls.value_spec).parameters)
        expected = "the arguments (cls, options); {own}, {logit} and {probability} in its texts are words of the task"
        got = ", ".join(["cls", *arguments])
        check(len(arguments) == 1, f"{title}.value_spec", expected, got)
        cls._check_direction(title)

    @classmethod
    def _check_direction(cls, title: str) -> None:
        """Which value is better stands in one place: in `values`, as `direction`, or in a method."""
        argument = f"{title}.direction"
        if cls.values is not None:
            is_spec = isinstance(cls.values, ValueSpec)
            check(is_spec, f"{title}.values", "a ValueSpec", repr(cls.values))
            stands_twice = "direction" in vars(cls)
            expected = "nothing, as values says which value is better"
            check(not stands_twice, argument, expected, "both")
            cls.direction = cls.values.direction  # type: ignore[assignment]  # a property of the base
        elif cls.direction is Metric.direction:
            methods = (cls.value_spec, cls.direction_of)
            methods_of_base = (Metric.value_spec, Metric.direction_of)
            depends = any(
                method.__func__ is not of_base.__func__  # type: ignore[attr-defined]
                for method, of_base in zip(methods, methods_of_base, strict=True)
            )
            expected = "'higher' or 'lower' (which value is better) or None"
            check(depends, argument, expected, "nothing")
            return
        check_direction(argument, cls.direction)

    @property
    def direction(self) -> Direction:
        """Which value is better, a `"higher"` or a `"lower"` one; None for a metric that does not rank explainers."""
        return self.direction_of(self.options())

    @classmethod
    def direction_of(cls, options: Mapping[str, Any]) -> Direction:
        """`direction`, given the options as `options()` has them; what `value_spec` says if the class says nothing."""
        if cls.direction is Metric.direction:
            spec = cls.value_spec(options)
            check(
                isinstance(spec, ValueSpec),
                f"{cls.__qualname__}.value_spec",
                "a ValueSpec",
                repr(spec),
            )
            return spec.direction
        return cls.direction  # type: ignore[return-value]  # the class's own attribute, not the property

    @classmethod
    def value_spec(cls, options: Mapping[str, Any]) -> ValueSpec:
        """How the frame of its results is read; by default as `values` says, or by name and direction.

        Its texts may have `{own}`, `{logit}` and `{probability}` in them, for what the model's task calls these
        (`TaskWords`).

        Args:
            options: as `options()` has them. Those of stored results may be fewer than the metric has today.
        """
        if cls.values is not None:
            return cls.values
        declares_nothing = cls.direction is Metric.direction
        inherits = cls.direction_of.__func__ is Metric.direction_of.__func__  # type: ignore[attr-defined]
        expected = "'higher' or 'lower' (which value is better) or None"
        check(
            not (declares_nothing and inherits),
            f"{cls.__qualname__}.direction",
            expected,
            "nothing",
        )
        return ValueSpec.named(cls.name, cls.direction_of(options))

    def describe_values(self, task: TaskWords = CLASS_WORDS) -> dict[str, Any]:
        """What a manifest says of the numbers, so that they are read where the metric is not installed.

        Raises:
            ArgumentError: `value_spec` gives none, or one that contradicts `direction`.
        """
        spec = read_values(type(self), self.options(), task)
        argument = f"{type(self).__qualname__}.value_spec"
        check(isinstance(spec, ValueSpec), argument, "a ValueSpec", repr(spec))
        agrees = spec.direction in (None, self.direction)
        check(
            agrees,
            argument,
            f"the direction {self.direction!r} of the metric, or None",
            repr(spec.direction),
        )
        return spec.stored()

    @abstractmethod
    def evaluate(self, call: Call) -> Result:
        """The method itself. `__call__` has checked the arguments and runs it inside `model.session()`.

        Args:
            call: the model, in evaluation mode and without gradients of its parameters; the explainer; the inputs,
                within the bounds and on the model's device, into which nothing may be written; targets and seed.
        """

    def __call__(
        self,
        model: Model,
        explainer: Explainer | str | Callable[..., Tensor],
        inputs: Tensor,
        targets: Tensor | int | None = None,
        *,
        generator: torch.Generator | None = None,
        progress: bool = True,
    ) -> Result:
        """Evaluate `explainer` on `inputs` `(N, ...)`.

        Args:
            model: the model, its bounds and device.
            explainer: an explainer, the name of one, or a function `(module, inputs, targets) -> attributions`.
            inputs: clean inputs within the bounds: `(N, C, H, W)`, `(N, C, T)` or `(N, F)`.
            targets: classes `(N,)` to explain, one class for all, or None for the model's own predictions. A sample
                that the model does not put into its target class is skipped, with status `"misclassified"`.
            generator: the seed of all random numbers is drawn from it.
            progress: from ten seconds on, show on standard error how many evaluations were made, of about how many: in
                a bar on a terminal, else in a line every ten seconds. Within a study, the study shows it.

        Raises:
            ArgumentError: for arguments that do not fit the model.
            ModelError: the module returns no logits.
        """
        hint = ": evaluate takes it; a metric takes its make_model(rows), rows = encode(texts)"
        got = type(model).__name__
        if hasattr(model, "encode"):
            got += hint
        check(isinstance(model, Model), "model", "a standfast Model", got)
        is_generator = generator is None or isinstance(generator, torch.Generator)
        check(is_generator, "generator", "a torch.Generator or None", repr(generator))
        explainer = get_explainer(explainer)
        if self.needs.module and not model.differentiable:
            got = f"{module_name(model.module)}, a function without gradients and parameters"
            raise ArgumentError("model", f"a module, since {self.name} needs {self.needs}", got)
        explainer.check_classifier(model)
        # in a caller's inference mode nothing could be differentiated
        with torch.inference_mode(False):
            inputs = model.check_inputs(inputs)
            if not self.takes_widths:
                _check_widths(model, inputs)
            check_one_for_all(explainer, inputs)
            checked = None
            if targets is not None:
                checked = model.check_targets(targets, inputs)
            warn_of_radius(self, model, inputs)
            count = Count(
                self.name,
                "evaluations",
                lambda: self.bind(inputs=inputs).cost(model.classes).evaluations * len(inputs),
            )
            shown = model.showing(count, progress)
            with model.naming(inputs), model.session(), shown, collect_choices() as choices:
                result = self.evaluate(Call(model, explainer, inputs, checked, generator))
        set_fields(result, choices=choices)
        return result

    @classmethod
    def list_declared_options(cls) -> dict[str, list[str]]:
        """See `ConfigurationType`."""
        owners = [role.option for role in cls.roles.values() if isinstance(role, PartOf)]
        of_presets = [option for options in cls.presets.values() for option in options]
        of_ladder = [option for options in cls.ladder for option in options]
        return {
            "removal_options": list(cls.removal_options),
            "roles": [*cls.roles, *owners],
            "presets": of_presets,
            "ladder": of_ladder,
            "mask_option": [cls.mask_option] if cls.mask_option else [],
            "neighbourhood_option": [cls.neighbourhood_option] if cls.neighbourhood_option else [],
            "budget_option": [cls.budget_option] if cls.budget_option else [],
        }

    @classmethod
    def example(cls) -> Metric:
        """A configuration that takes seconds, for trying the metric out and for the tests that all metrics pass.

        By default the metric with its default options. A metric that has an option without a default, or whose
        defaults take long, overrides it.
        """
        return cls()

    def bind(
        self,
        *,
        extras: Mapping[str, Tensor] | None = None,
        inputs: Tensor | None = None,
        rows: slice | None = None,
        module: nn.Module | None = None,
        explainer: Explainer | None = None,
    ) -> Metric:
        """The metric with the values of what a study knows, and its file does not say.

        By default it looks up the option `mask_option` among the extras, and cuts every option that holds something
        for each sample (masks, segments) to the rows of a job. A metric that needs more overrides it.

        Args:
            extras: what a data set has beside its inputs (`Dataset.extras`), `(N, ...)` each.
            inputs, rows: all inputs of the data set `(N, ...)`, and those of them that are evaluated together.
            module: of the model, for an estimate of what the metric costs.
            explainer: that is evaluated. A metric that works otherwise for some explainers than its options say returns
                another configuration for these, which is then a part of the identity of their jobs.

        Raises:
            ArgumentError: there is no extra of that name, or the option cannot hold it; an option holds something for
                another number of samples.
        """
        options: dict[str, Any] = {}
        name = getattr(self, self.mask_option, None)
        if extras is not None and isinstance(name, str):
            words = f"the name of an extra of the data set ({', '.join(sorted(extras)) or 'which has none'})"
            check(name in extras, self.mask_option, words, repr(name))
            options[self.mask_option] = extras[name]
        bound = dataclasses.replace(self, **options) if options else self
        if inputs is None or rows is None:
            return bound
        cut_options: dict[str, Any] = {}
        for option in dataclasses.fields(bound):
            value = getattr(bound, option.name)
            if isinstance(value, SampleOption):
                cut_value = value.of_samples(inputs, rows)
                if cut_value is not value:
                    cut_options[option.name] = cut_value
        if cut_options:
            return dataclasses.replace(bound, **cut_options)
        return bound

    @property
    def neighbourhood_in_use(self) -> Neighbourhood | None:
        """The neighbourhood in which this configuration perturbs inputs; None if there is none."""
        if not self.neighbourhood_option:
            return None
        value = getattr(self, self.neighbourhood_option)
        return value if isinstance(value, Neighbourhood) else None

    @property
    def most_evaluations(self) -> int | None:
        """How many model evaluations a sample takes at most; None for no limit."""
        if not self.budget_option:
            return None
        limit: int | None = getattr(self, self.budget_option)
        return limit

    def compare_unrelated(self, maps: Tensor, others: Tensor) -> Tensor | None:
        """The value that the metric would have if a map became that of another input, `(M,)`; None, as by default,
        for a metric that does not compare maps.

        It is the natural zero of a measure of stability: an explanation that changes so much has nothing left of the
        input. For a probability it is 1 where a pair of maps counts as the event, else 0.

        Args:
            maps, others: signed maps `(M, ...)` of different inputs.
        """
        return None

    @property
    def compares_in_order(self) -> bool:
        """Whether `compare_unrelated` gives another value where the two maps are exchanged."""
        return False

    def describe_misuse(self, unrelated: float) -> str:
        """Why the metric says little with these options, given the mean of `compare_unrelated`; else empty."""
        return ""

    def describe_misfit(self, explainer: Explainer) -> str:
        """Why this configuration cannot evaluate an explainer on any input, in words; by default empty, for "it can".

        A study makes no jobs of the two, and says so.
        """
        return ""

    @property
    def compares_maps(self) -> bool:
        """Whether it is a measure of stability, which has a value for unrelated maps (`compare_unrelated`)."""
        return type(self).compare_unrelated is not Metric.compare_unrelated

    def takes_control(self, control: Explainer) -> bool:
        """Whether a control is shown beside the others by default: all of them, with `controls`.

        A measure of stability shows how stable a copy of the input is; other controls are of no use to it.
        """
        return self.controls or (self.compares_maps and isinstance(control, InputCopy))

    @property
    def samples_together(self) -> int | None:
        """How many of the first samples are evaluated, and all in one job, by a metric that compares them.

        None, as by default, for a metric that evaluates any number of samples, each on its own.
        """
        return None

    @property
    def own_label(self) -> str:
        """What the metric is called where the user gives it no label: its name."""
        return self.name

    @property
    def revision(self) -> int:
        """What counts in a job's identity: `version`, or more where only some configurations gave other values."""
        return self.version

    def cost(self, classes: int | None = None) -> Cost:
        """About what a sample costs, for progress bars and estimates of the time; by default one explanation.

        Args:
            classes: of the model; None: not known.
        """
        return Cost(predictions=0, explanations=1)

    def pilot(self) -> Metric:
        """A cheaper configuration that shows before a run what this one costs; by default the preset `"quick"`.

        It runs for a second or so. Its `cost` should be as far from the truth as that of this one.
        """
        return dataclasses.replace(self, **preset_options(type(self), "quick"))

    def options(self) -> dict[str, Any]:
        """The configuration as plain values, for reports and files."""
        return {f.name: plain(getattr(self, f.name)) for f in dataclasses.fields(self)}

    @classmethod
    def has_effect(cls, option: str, options: Mapping[str, Any]) -> bool:
        """Whether the value depends on an option, given all of them as `options()` has them."""
        if option == "preset":
            return False
        role = cls.roles.get(option)
        if not isinstance(role, PartOf):
            return role != NO_EFFECT
        owner = options.get(role.option)
        # a stored configuration has a tag; a name may have options behind a colon
        name = split_tag(owner)[1] or str(owner).partition(":")[0]
        if role.only:
            return name in role.only
        return name not in role.unless


def read_values(
    kind: type[Metric], options: Mapping[str, Any], task: TaskWords = CLASS_WORDS
) -> ValueSpec:
    """`Metric.value_spec` in the words of a task.

    Where it does not say what the numbers ask of an explainer (`ValueSpec.asks`), the class decides: what compares maps
    with each other asks for stability; what is `evidence` of it, for faithfulness.
    """
    spec = kind.value_spec(options)
    if not isinstance(spec, ValueSpec):
        return spec
    spec = spec.name_scores(own=task.own, logit=task.logit, probability=task.probability)
    if spec.asks is not None:
        return spec
    asks: Asks = "faithfulness" if kind.evidence == "faithful" else "other"
    if kind.compare_unrelated is not Metric.compare_unrelated:
        asks = "stability"
    return dataclasses.replace(spec, asks=asks)


def _check_widths(model: Model, inputs: Tensor) -> None:
    """Raise `ArgumentError` for texts `(N, W)` of different lengths, unless all are too short to be evaluated."""
    widths = None
    if model.black_box is not None:
        widths = model.black_box.find_widths(inputs)
    if model.black_box is None or widths is None:
        return
    short = model.black_box.find_short(inputs)
    fits = short is not None and bool(short.all())
    got = f"{int(widths.min())} to {int(widths.max())} words"
    check(fits, "inputs", "texts of the same length, for a metric alone (evaluate takes any)", got)


def set_neighbourhood(metric: Metric, neighbourhood: Neighbourhood) -> Metric:
    """The same metric in another neighbourhood; of one that declares `neighbourhood_option`."""
    options: dict[str, Any] = {metric.neighbourhood_option: neighbourhood}
    return dataclasses.replace(metric, **options)


def remove_limit(metric: Metric) -> Metric:
    """The same metric with as many evaluations as it takes; of one that declares `budget_option`."""
    options: dict[str, Any] = {metric.budget_option: None}
    return dataclasses.replace(metric, **options)


def warn_of_radius(metric: Metric, model: Model, inputs: Tensor) -> None:
    """Warn, once for each model, if the neighbourhood of a metric reaches beyond the range of the inputs."""
    neighbourhood = metric.neighbourhood_in_use
    if neighbourhood is None:
        return
    excess = neighbourhood.describe_excess(inputs.shape[1:], model.bounds)
    if excess:
        model.warn_once(excess)


metrics: Registry[type[Metric]] = Registry(
    "metric",
    "standfast.metrics",
    lambda kind: isinstance(kind, type) and issubclass(kind, Metric),
    named=True,
)


def has_neighbourhood(metric: str | type[Metric], required: bool = False) -> bool:
    """Whether a metric, or the registered one of a name, has a neighbourhood; or needs one, if `required`.

    >>> import standfast
    >>> has_neighbourhood("worst_case:budget=100"), has_neighbourhood("aopc"), has_neighbourhood("worst_cas")
    (True, False, False)
    """
    option = find_neighbourhood_option(metric)
    if not option or not required:
        return bool(option)
    if isinstance(metric, str):
        kind = metrics[_find_name(metric)]
    else:
        kind = metric
    defaults = {field.name: field.default for field in dataclasses.fields(kind)}
    return defaults.get(option) is dataclasses.MISSING


def list_cheaper(metric: Metric, given: Collection[str]) -> Ladder:
    """Cheaper settings of the options that are not given, the cheapest first; empty if there are none.

    Args:
        metric: with its own options.
        given: the names of options that must stay as they are. With `"preset"` among them, all of them stay.

    >>> import standfast
    >>> list_cheaper(standfast.metrics.AOPC(), [])
    ({'steps': 30, 'samples': 1}, {'steps': 30, 'samples': 2}, {'samples': 1}, {'samples': 2})
    >>> list_cheaper(standfast.metrics.AOPC(samples=9), ["samples"])
    ({'steps': 30},)
    """
    if "preset" in given:
        return ()
    settings: list[Mapping[str, Any]] = []
    for rung in metric.ladder or (preset_options(type(metric), "quick"),):
        free = {option: value for option, value in rung.items() if option not in given}
        with contextlib.suppress(ArgumentError):  # of what is given, not everything goes with it
            is_other = dataclasses.replace(metric, **free) != metric
            if is_other and free not in settings:
                settings.append(free)
    return tuple(settings)


def find_neighbourhood_option(metric: str | type) -> str:
    """The option in which a class, or the registered metric of a name, declares a neighbourhood; empty for none.

    >>> find_neighbourhood_option(Metric)
    ''
    """
    if isinstance(metric, str):
        name = _find_name(metric)
        if name in metrics:
            return metrics[name].neighbourhood_option
        return ""
    if issubclass(metric, Metric):
        return metric.neighbourhood_option
    return ""


def _find_name(text: str) -> str:
    """The name in a text such as "worst_case:budget=100"."""
    return text.partition(":")[0].strip()


def _store(value: Any) -> dict[str, Any]:
    """A configured object as it is stored: its name under its tag (`records.TAGS`), beside its options."""
    title = type(value).__name__
    options = {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, NormBall):
        return {"norm": title, **options}
    if isinstance(value, Neighbourhood):
        return {"transformation": title, **options}
    return {"name": getattr(value, "name", title), **options}


def plain(value: object, write: Callable[[Any], Any] = _store) -> Any:
    """A value of the configuration as something that JSON can hold. A function becomes `"module:name"`.

    `write` is for configured objects, other than similarities, which are their names.
    """
    if isinstance(value, Similarity):
        return value.name
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return write(value)
    if isinstance(value, list | tuple):
        return [plain(item, write) for item in value]
    if isinstance(value, Mapping):
        return {str(key): plain(entry, write) for key, entry in value.items()}
    if callable(value):
        kind = value if hasattr(value, "__qualname__") else type(value)
        return f"{kind.__module__}:{kind.__qualname__}"
    if isinstance(value, int | float | str | bool | None):
        return value
    return repr(value)
