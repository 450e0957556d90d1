"""The same bits for every batch, order and chunk: of every registered explainer, with cases drawn by hypothesis."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import captum.attr as ca
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from small_transformers import SmallViT
from torch import Tensor, nn

import standfast
from standfast import explainers as hx

COUNT = 19
#: options with which an explainer is quick
QUICK = {
    "context_cite": "samples=24",
    "extremal_perturbations": "steps=6",
    "gradient_shap": "samples=6",
    "integrated_gradients": "steps=5",
    "kernel_shap": "samples=24",
    "lime": "samples=24",
    "rise": "samples=24",
    "shapley_sampling": "permutations=3",
    "smoothgrad": "samples=4",
}
OF_IMAGES = ("gradcam", "guided_gradcam", "edges")


def images() -> nn.Module:
    layers = [
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 8, 3),
    ]
    return nn.Sequential(
        *layers, nn.Tanh(), nn.Flatten(), nn.Linear(128, 16), nn.ReLU(), nn.Linear(16, 3)
    )


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "images": (images, (1, 12, 12)),
    "series": (
        lambda: nn.Sequential(nn.Conv1d(3, 6, 5), nn.ReLU(), nn.Flatten(), nn.Linear(96, 3)),
        (3, 20),
    ),
    "table": (
        lambda: nn.Sequential(
            nn.Linear(7, 12), nn.ReLU(), nn.Linear(12, 9), nn.ReLU(), nn.Linear(9, 3)
        ),
        (7,),
    ),
    "tokens": (lambda: SmallViT(depth=2), (3, 12, 8)),
}


def draw(kind: str, count: int, seed: int = 0) -> Tensor:
    """Inputs of which some are equal, with flat regions, where rules use the gradient."""
    x = torch.rand(count, *NETWORKS[kind][1], generator=torch.Generator().manual_seed(seed))
    x[..., :3] = 0.0
    x[-1] = x[0]
    return x


def list_cases() -> dict[str, tuple[str, hx.Explainer]]:
    """By a title: the kind of network and the explainer."""
    found: dict[str, tuple[str, hx.Explainer]] = {}
    for name in hx.names():
        kinds = (
            ["tokens"]
            if name.startswith("attention_")
            else ["images", "table"][: 1 if name in OF_IMAGES else 2]
        )
        for kind in kinds:
            found[f"{name} on {kind}"] = (
                kind,
                hx.get(f"{name}:{QUICK[name]}" if name in QUICK else name),
            )
    for name in ("occlusion", "rise", "lime", "extremal_perturbations", "gradcam", "attn_lrp"):
        found[f"{name} on series"] = (
            "series",
            hx.get(f"{name}:{QUICK[name]}" if name in QUICK else name),
        )
    for count in (1, 3, 21, 53):
        found[f"deep_shap of {count}"] = "images", hx.DeepSHAP(draw("images", count, 8))
    found["gradient_shap of 16"] = "images", hx.GradientSHAP(draw("images", 16, 8), samples=6)
    found["kernel_shap of 3"] = "table", hx.KernelSHAP(background=draw("table", 3, 8), samples=24)
    # with other numbers of segments for each input, and with sums that are long enough to depend on their order
    for text in (
        "context_cite:samples=80",
        "lime:samples=150",
        "kernel_shap:samples=150",
        "shapley_sampling:permutations=3",
    ):
        found[f"{text} of superpixels"] = "images", hx.get(text, segments="quickshift")
    found["captum"] = "images", hx.from_captum(ca.Saliency)
    found["captum, drawn"] = (
        "images",
        hx.from_captum(ca.GradientShap, n_samples=3, baselines=torch.zeros(2, 1, 12, 12)),
    )
    return found


CASES = list_cases()


def explain(case: str, rows: list[int], batch_size: int) -> Tensor:
    kind, explainer = CASES[case]
    torch.manual_seed(3)
    model = standfast.Model(NETWORKS[kind][0](), (0.0, 1.0), device="cpu", batch_size=batch_size)
    return explainer(model, draw(kind, COUNT)[rows], torch.tensor(rows) % 3)


@cache
def explain_all(case: str) -> Tensor:
    return explain(case, list(range(COUNT)), 512)


@pytest.mark.filterwarnings("ignore::standfast.explainers.completeness.CompletenessWarning")
@pytest.mark.parametrize("case", CASES)
@settings(derandomize=True, max_examples=4, deadline=None, database=None)
@given(st.lists(st.integers(0, COUNT - 1), min_size=1, max_size=COUNT + 5), st.integers(8, 300))
@example([0, 5, 3], 88)  # 16 rows of six points each: 88, and a rest of 8
def test_a_map_depends_on_its_input_alone(case: str, rows: list[int], batch_size: int) -> None:
    assert torch.equal(explain(case, rows, batch_size), explain_all(case)[rows])
