"""Metrics of Quantus and Captum in our evaluations: their own values, our habits."""

from __future__ import annotations

import dataclasses
import json
import pickle
import random
import re
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import captum.metrics
import numpy as np
import pytest
import torch
from ruamel.yaml import YAML
from torch import Tensor, nn

import standfast
from conftest import small_net
from standfast.integrations.peers import PeerMetric, peer_class, peer_names
from standfast.integrations.peers import quantus as peers_quantus
from standfast.integrations.peers.publications import CITATIONS, bibtex
from standfast.study.file.document import StudyError
from standfast.study.file.spec import load_study, study_from
from standfast.study.identity import Description
from standfast.tensors import content_keys

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    quantus = pytest.importorskip("quantus")

#: small settings, where a metric has such an option
SMALL = {
    "nr_samples": 3,
    "nr_runs": 4,
    "subset_size": 8,
    "patch_size": 4,
    "nr_steps": 4,
    "n_perturb_samples": 3,
}
NAMES = peer_names("captum") + peer_names("quantus")


def small(name: str, **more: Any) -> PeerMetric:
    known = {field.name for field in dataclasses.fields(peer_class(name))}
    metric = standfast.metrics.get(
        name, **{key: value for key, value in SMALL.items() if key in known}, **more
    )
    assert isinstance(metric, PeerMetric)
    return metric


def rand(shape: tuple[int, ...] = (1, 8, 8), count: int = 3) -> Tensor:
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(1))


def model(shape: tuple[int, ...] = (1, 8, 8), batch_size: int = 64) -> standfast.Model:
    return standfast.Model(small_net(shape), (0.0, 1.0), device="cpu", batch_size=batch_size)


def alone(x: Tensor, run: Callable[[], Any], seed: int = 0) -> Any:
    """Their own call, with the generators that a sample gets from us."""
    key = int(content_keys(x, seed)[0])
    with torch.random.fork_rng():
        torch.manual_seed(key)
        np.random.seed(key & 0xFFFFFFFF)  # noqa: NPY002
        random.seed(key)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return run()


def gradient(model: nn.Module, inputs: Any, targets: Any, **_: Any) -> np.ndarray[Any, Any]:
    """Input times gradient, in a batch of 16 at least as ours are: relative stability makes much of the last bits."""
    x, classes = torch.as_tensor(np.asarray(inputs)), torch.as_tensor(np.asarray(targets)).long()
    count = max(1, -(-16 // len(x)))
    x, classes = x.repeat(count, *[1] * (x.ndim - 1)).requires_grad_(True), classes.repeat(count)
    (found,) = torch.autograd.grad(model(x).gather(1, classes[:, None]).sum(), x)
    return (found * x).detach()[: len(inputs)].numpy()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("MaxSensitivity", {"nr_samples": 5, "lower_bound": 0.1}),
        ("AvgSensitivity", {"nr_samples": 5}),
        ("LocalLipschitzEstimate", {"nr_samples": 5, "normalise": False}),
        ("RelativeInputStability", {"nr_samples": 5}),
        ("FaithfulnessCorrelation", {"nr_runs": 6, "subset_size": 10}),
        ("Sparseness", {}),
        ("RandomLogit", {"num_classes": 4}),
        ("MPRT", {"return_average_correlation": True}),  # explains copies with other weights
        ("Infidelity", {"n_perturb_samples": 3}),
    ],
)
def test_quantus_has_its_own_values(name: str, options: dict[str, Any]) -> None:
    network, x = model(), rand()
    found = standfast.metrics.get(f"quantus:{name}", **options)(network, "input_x_gradient", x)
    assert found.status == ("ok",) * 3
    module = network.module.eval()
    for row in range(3):
        one = x[row : row + 1]
        target = module(one).argmax(1).numpy()
        metric = getattr(quantus, name)(**options, disable_warnings=True)

        def run(one: Tensor = one, target: Any = target, metric: Any = metric) -> Any:
            maps = gradient(module, one.numpy(), target)
            given = {"x_batch": one.numpy(), "y_batch": target, "a_batch": maps}
            return metric(model=module, **given, explain_func=gradient, channel_first=True)

        assert found.value[row].item() == pytest.approx(float(alone(one, run)[0]), rel=1e-4), row


def test_captum_has_its_own_values() -> None:
    network, x = model(), rand()
    module = network.module.eval()
    sensitivity = standfast.metrics.get(
        "captum:sensitivity_max", perturb_radius=0.1, n_perturb_samples=7
    )
    infidelity = standfast.metrics.get(
        "captum:infidelity", noise=0.2, n_perturb_samples=7, normalize=True
    )
    found = [metric(network, "input_x_gradient", x).value for metric in (sensitivity, infidelity)]

    def explain(inputs: Any) -> tuple[Tensor]:
        rows = inputs[0] if isinstance(inputs, tuple) else inputs
        with torch.enable_grad():
            return (torch.as_tensor(gradient(module, rows, target.expand(len(rows)))),)

    def perturb(inputs: Tensor) -> tuple[Tensor, Tensor]:
        noise = 0.2 * torch.randn(inputs.shape)
        return noise, inputs - noise

    for row in range(3):
        one = x[row : row + 1]
        target = module(one).argmax(1)
        settings: dict[str, Any] = {"perturb_radius": 0.1, "n_perturb_samples": 7}
        largest = alone(one, partial(captum.metrics.sensitivity_max, explain, one, **settings))
        assert found[0][row].item() == pytest.approx(float(largest), rel=1e-5)
        maps = torch.as_tensor(gradient(module, one, target))
        settings = {"target": target, "n_perturb_samples": 7, "normalize": True}
        lost = alone(
            one, partial(captum.metrics.infidelity, module, perturb, one, maps, **settings)
        )
        assert found[1][row].item() == pytest.approx(float(lost), rel=1e-5)


def test_ours_and_captum_s_max_sensitivity_are_the_same_number() -> None:
    """Away from the bounds both draw from the whole ball, and a sample's stream begins with the same numbers."""
    network, x = model(), rand() * 0.6 + 0.2
    theirs = standfast.metrics.get(
        "captum:sensitivity_max", perturb_radius=0.1, n_perturb_samples=10
    )(network, "saliency", x)
    ours = standfast.metrics.MaxSensitivity(standfast.LinfBall(0.1), samples=10, normalise=True)(
        network, "saliency", x
    )
    assert torch.allclose(theirs.value, ours.value.double(), rtol=1e-5)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "quantus:IROF"])
def test_every_metric_meets_the_contract(name: str) -> None:
    """Batch size, order and the other samples do not matter; generators, inputs and the module stay unchanged."""
    metric, x, network = small(name), rand(), model()
    before = x.clone()
    numpy_state = np.random.get_state()[1].copy()  # noqa: NPY002
    states = (torch.random.get_rng_state(), numpy_state, random.getstate())
    whole = metric(network, "input_x_gradient", x)
    assert torch.equal(metric(model(batch_size=16), "input_x_gradient", x).value, whole.value)
    assert torch.equal(metric(network, "input_x_gradient", x.flip(0)).value.flip(0), whole.value)
    assert torch.equal(metric(network, "input_x_gradient", x[1:2]).value, whole.value[1:2])
    assert whole.failure == (None,) * 3
    assert torch.isfinite(whole.value).all()
    assert (whole.model_evaluations >= 1).all()
    assert torch.equal(x, before)
    assert torch.equal(states[0], torch.random.get_rng_state())
    assert np.array_equal(states[1], np.random.get_state()[1])  # noqa: NPY002
    assert states[2] == random.getstate()
    assert network.module.training
    assert all(p.requires_grad for p in network.module.parameters())
    assert not any(m._forward_hooks or m._backward_hooks for m in network.module.modules())
    assert pickle.loads(pickle.dumps(metric)) == metric
    json.dumps(metric.options())
    assert metric.options()["package"].startswith(name.partition(":")[0] + " ")
    assert metric.direction in ("higher", "lower")
    assert metric.name in CITATIONS
    assert metric.bibtex.count("@") == 2
    assert metric.citation in metric.bibtex


def test_evaluations_are_counted() -> None:
    network, x = model(), rand(count=2)
    counts = {
        "captum:sensitivity_max": 1 + 1 + 3,  # ours of the sample, theirs of it, and of its copies
        "captum:infidelity": 1 + 1 + 3,  # predictions of the sample and of its copies
        "quantus:MaxSensitivity": 1 + 3,
        "quantus:PixelFlipping": 1 + 64,
    }
    for name, wanted in counts.items():
        assert small(name)(network, "saliency", x).model_evaluations.tolist() == [wanted] * 2, name
    # not the rows of a batch that was padded, nor an explainer's steps
    steps = small("quantus:MaxSensitivity")(
        network, standfast.explainers.get("integrated_gradients", steps=4), x
    )
    assert steps.model_evaluations.tolist() == [4, 4]


def test_seeds_matter_and_nothing_else() -> None:
    network, x, metric = model(), rand(), small("quantus:MaxSensitivity")
    first = metric(network, "saliency", x, generator=torch.Generator().manual_seed(1)).value
    np.random.seed(5)  # noqa: NPY002
    assert torch.equal(
        metric(network, "saliency", x, generator=torch.Generator().manual_seed(1)).value, first
    )
    assert not torch.equal(
        metric(network, "saliency", x, generator=torch.Generator().manual_seed(2)).value, first
    )


def test_a_sample_without_a_value_is_flagged_and_the_rest_goes_on() -> None:
    class Blank(nn.Module):
        """Its logits are the same for all dark inputs, so their maps are all zero."""

        def __init__(self) -> None:
            super().__init__()
            self.net = small_net((1, 8, 8))

        def forward(self, x: Tensor) -> Tensor:
            dark = (x.flatten(1).mean(1) < 0.1)[:, None]
            return torch.where(dark, torch.arange(4.0).flip(0).expand(len(x), 4), self.net(x))

    model, x = standfast.Model(Blank(), (0.0, 1.0), device="cpu"), rand(count=4)
    x[1] = 0.01
    y = model.predict(x)
    y[2] = (y[2] + 1) % 4
    result = standfast.metrics.get("quantus:Sparseness")(
        model, "saliency", x, y
    )  # which asserts that a map is not zero
    assert result.status == ("ok", "nonfinite", "misclassified", "ok")
    assert result.failed.tolist() == [False, True, False, False]
    assert result.value.isnan().tolist() == [False, True, True, False]
    assert result.frame()["failure"].to_list()[0] is None
    assert "all equal to zero" in result.frame()["failure"].to_list()[1]
    nan = standfast.metrics.get(
        "quantus:MaxSensitivity", nr_samples=2, norm_denominator=lambda a: np.full(len(a), np.nan)
    )
    assert nan(model, "saliency", x[:1]).failure == ("quantus:MaxSensitivity gave nan",)

    def refuse(**_: Any) -> float:
        raise ValueError("not this one")

    metric = standfast.metrics.get(
        "quantus:MaxSensitivity",
        nr_samples=2,
        similarity_func=lambda a, b: a - b,
        norm_denominator=refuse,
    )
    assert metric(model, "saliency", x[2:], y[2:]).failure == (None, "ValueError: not this one")


def test_errors_of_the_user_s_explainer_and_of_a_peer_that_does_not_run_are_errors() -> None:
    network, x, calls = model(), rand(), [0]

    def breaks(module: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        calls[0] += 1
        if calls[0] > 1:
            raise ZeroDivisionError("of the user's")
        return inputs

    with pytest.raises(ZeroDivisionError, match="of the user's"):
        small("quantus:MaxSensitivity")(network, standfast.explainers.from_callable(breaks), x)

    def typo(a: Any, b: Any) -> Any:
        return a.shap  # type: ignore[attr-defined]

    metric = standfast.metrics.get("quantus:MaxSensitivity", similarity_func=typo)
    with pytest.raises(
        standfast.StandfastError, match="quantus:MaxSensitivity of quantus .* does not run"
    ):
        metric(network, "saliency", x)
    with pytest.raises(standfast.ModelError, match="float32"):
        double = standfast.Model(small_net((1, 8, 8)).double(), (0.0, 1.0), device="cpu")
        small("quantus:MaxSensitivity")(double, "saliency", x.double())


def test_several_numbers_for_a_sample() -> None:
    network, x = model(), rand(count=1)
    module, target = network.module.eval(), network.predict(x).numpy()
    curve = quantus.RegionPerturbation(patch_size=4, disable_warnings=True)(
        module,
        x.numpy(),
        target,
        gradient(module, x.numpy(), target),
        explain_func=gradient,
        channel_first=True,
    )[0]
    wanted = {"mean": float(np.mean(curve)), "last": float(curve[-1]), "max": float(np.max(curve))}
    for how, value in wanted.items():
        metric = standfast.metrics.get("quantus:RegionPerturbation", patch_size=4, reduce=how)
        assert metric(network, "input_x_gradient", x).value.item() == pytest.approx(value, rel=1e-4)
    with pytest.raises(
        standfast.ArgumentError,
        match="reduce: expected mean, last or max, because .* has 4 numbers",
    ):
        standfast.metrics.get("quantus:RegionPerturbation", patch_size=4, reduce=None)(
            network, "saliency", x
        )
    # drops, most relevant first
    assert standfast.metrics.get("quantus:RegionPerturbation").direction == "higher"
    assert standfast.metrics.get("quantus:RegionPerturbation", order="lerf").direction == "lower"


def test_names_and_options_are_checked() -> None:
    assert standfast.metrics.metrics.is_from_package("quantus:x")
    assert not standfast.metrics.metrics.is_from_package("max_sensitivity")
    with pytest.raises(standfast.ArgumentError, match="did you mean 'MaxSensitivity'"):
        standfast.metrics.get("quantus:MaxSensitivit")
    with pytest.raises(
        standfast.ArgumentError,
        match="option of quantus:MaxSensitivity: .*did you mean 'nr_samples'",
    ):
        standfast.metrics.get("quantus:MaxSensitivity", nr_sample=3)
    with pytest.raises(
        standfast.ArgumentError, match="package: expected one of captum, quantus, got 'quantos'"
    ):
        peer_class("quantos:MaxSensitivity")
    with pytest.raises(
        standfast.ArgumentError, match="nr_samples: expected a whole number of at least 1, got 0"
    ):
        standfast.metrics.get("quantus:MaxSensitivity", nr_samples=0)
    with pytest.raises(
        standfast.ArgumentError, match="n_perturb_samples: expected a whole number of at least 1"
    ):
        standfast.metrics.get("captum:infidelity", n_perturb_samples=0)
    with pytest.raises(
        standfast.ArgumentError,
        match="similarity_func: expected one of .*, got 'corelation_spearman'",
    ):
        standfast.metrics.get(
            "quantus:FaithfulnessCorrelation", similarity_func="corelation_spearman"
        )
    by_name = standfast.metrics.get(
        "quantus:FaithfulnessCorrelation", similarity_func="correlation_spearman"
    )
    assert by_name.options()["similarity_func"] == "correlation_spearman"
    for name, why in (("Consistency", "compares samples"), ("PointingGame", "needs a mask")):
        with pytest.raises(standfast.ArgumentError, match=f"{name}, which {why}"):
            standfast.metrics.get(f"quantus:{name}")
        assert f"quantus:{name}" not in NAMES
    assert bibtex("captum:sensitivity_max").startswith("@inproceedings{yeh2019infidelity,")


def test_without_quantus_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(peers_quantus, "import_module", missing)
    peers_quantus.metrics.cache_clear()
    with pytest.raises(standfast.MissingExtraError, match=r"pip install 'standfast\[peers\]'"):
        standfast.metrics.get("quantus:Monotonicity_")
    study = {"data": {"d": "digits"}, "models": {"m": "lenet5-mnist"}, "explainers": ["lrp"]}
    with pytest.raises(StudyError, match=r"(?s)metrics\[0\].*pip install\s+'standfast\[peers\]'"):
        study_from({**study, "metrics": ["quantus:Monotonicity_"]})
    peers_quantus.metrics.cache_clear()


STUDY = """\
samples: 2
samples_per_job: {per_job}
data: {{digits: digits}}
models: {{lenet: lenet5-mnist}}
explainers: [saliency, input_x_gradient]
neighbourhood: {{linf: 0.02}}
metrics: [{{quantus:MaxSensitivity: {{nr_samples: 4}}}}, {{quantus:LocalLipschitzEstimate: {{nr_samples: 5}}}},
  captum:sensitivity_max, {{captum:infidelity: {{noise: 0.05}}}}, max_sensitivity]
controls: false
"""


def write(folder: Path, per_job: int = 2) -> Path:
    file = folder / "study.yaml"
    file.write_text(
        STUDY.format(per_job=per_job).replace(
            "quantus:MaxSensitivity,", "{quantus:MaxSensitivity: {nr_samples: 4}},"
        )
    )
    return file


def test_a_study_with_their_metrics_and_ours(tmp_path: Path) -> None:
    file = write(tmp_path)
    study = load_study(file)
    names = [
        "quantus:MaxSensitivity",
        "quantus:LocalLipschitzEstimate",
        "captum:sensitivity_max",
        "captum:infidelity",
    ]
    assert list(study.metrics) == [*names, "max_sensitivity"]
    assert (
        study.plain()["metrics"]["quantus:LocalLipschitzEstimate"][
            "quantus:LocalLipschitzEstimate"
        ]["nr_samples"]
        == 5
    )
    assert study_from(study.plain()).plain() == study.plain()
    found = standfast.run_study(file, out=tmp_path / "results", progress=False)
    assert found.failures == []
    frame = found.samples
    assert frame.height == 2 * 2 * 5
    theirs = frame.filter(frame["label"].is_in(names))
    assert theirs["value"].is_finite().all()
    again = standfast.run_study(
        write(tmp_path, per_job=1), out=tmp_path / "others", progress=False
    ).samples
    order = ["label", "explainer", "sample"]
    assert (
        theirs.sort(order)["value"].to_list()
        == again.filter(again["label"].is_in(names)).sort(order)["value"].to_list()
    )


def test_the_version_of_the_package_is_part_of_the_identity(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    metric = standfast.metrics.get("captum:infidelity")
    before = Description(metric).digest
    assert Description(standfast.metrics.get("captum:infidelity", noise=0.2)).digest != before
    assert Description(pickle.loads(pickle.dumps(metric))).digest == before
    monkeypatch.setattr(type(metric), "package", "captum 0.0.1")
    assert Description(standfast.metrics.get("captum:infidelity")).digest != before


def test_the_page_about_both_runs() -> None:
    text = (Path(__file__).parents[3] / "docs/how-to/quantus-and-captum.md").read_text()
    code = re.findall(r"^```(yaml|python)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert [kind for kind, _ in code] == ["yaml", "python", "python", "python"]
    assert len(study_from(YAML(typ="safe").load(code[0][1])).metrics) == 5
    namespace: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning, module=r"(captum|quantus)(\.|$)")
        for _, block in code[1:]:
            exec(block, namespace)
    assert all(
        len(values) == 2 for values in namespace["found"].samples.partition_by("label", "explainer")
    )
    assert namespace["together"]["worst case"].result.status == ("ok", "ok")
    assert len(namespace["scores"]["Input x Gradient"]["worst case"]) == 2
