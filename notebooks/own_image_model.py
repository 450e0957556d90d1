# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Images: may this map be shown?
#
# You have trained a network on images, and want to show its users a heat map: "the network looked here".
# This notebook finds out which map may be shown. It ends in a decision with its numbers.
#
# The network here is small and learns from the 300 bundled digits in seconds. Yours takes its place in one line.

# %%
import os

import torch
from torch import nn

import standfast

SMALL = os.environ.get("STANDFAST_SMALL") == "1"  # as the tests run it
EPOCHS, SAMPLES, BUDGET = (4, 3, 20) if SMALL else (30, 24, 200)

# %% [markdown]
# ## 1. Train
#
# standfast takes any module that maps inputs `(N, C, H, W)` to logits `(N, classes)`.

# %%
digits = standfast.data.bundled("digits")
order = torch.randperm(len(digits), generator=torch.Generator().manual_seed(0))
train, test = digits.take(order[:240]), digits.take(order[240:])

torch.manual_seed(0)
network = nn.Sequential(
    nn.Conv2d(1, 8, 5, stride=2),
    nn.ReLU(),
    nn.Conv2d(8, 16, 5, stride=2),
    nn.ReLU(),
    nn.Flatten(),
    nn.Linear(16 * 4 * 4, 10),
)


def normalise(x: torch.Tensor) -> torch.Tensor:
    return (x - 0.13) / 0.31


optimiser = torch.optim.Adam(network.parameters(), lr=3e-3)
for _ in range(EPOCHS):
    for rows in torch.arange(len(train)).split(32):
        loss = nn.functional.cross_entropy(
            network(normalise(train.inputs[rows])), train.labels[rows]
        )
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()

# %% [markdown]
# ## 2. Wrap
#
# `bounds` is the range of valid inputs; perturbed inputs never leave it.
# The normalisation goes into `preprocess`, so that radii are in the units of the images.

# %%
model = standfast.Model(network, bounds=(0.0, 1.0), preprocess=normalise)
right = model.predict(test.inputs) == test.labels
print(f"test accuracy: {right.double().mean():.0%} of {len(test)} digits")

# %% [markdown]
# Only digits that the network gets right are evaluated. For the others it is not clear what a map should explain.

# %%
chosen = test.take(right.nonzero()[:SAMPLES, 0])

# %% [markdown]
# ## 3. Explain
#
# Three explainers by name, one of your own, and two that know nothing of the network: `random`, and `centre`, which
# always points at the middle. An explainer that does not beat these two is of no use.


# %%
def gradient_on_ink(module: nn.Module, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The gradient, but only where there is ink."""
    x = x.clone().requires_grad_()
    scores = module(x).gather(1, targets[:, None]).sum()
    (gradient,) = torch.autograd.grad(scores, x)
    return gradient * (x > 0.5)


explainers = {
    "saliency": "saliency",
    "integrated gradients": standfast.explainers.get("integrated_gradients", steps=16),
    "Grad-CAM": "gradcam",
    "gradient on ink": standfast.explainers.from_callable(gradient_on_ink, name="gradient on ink"),
    "random": "random",
    "centre": "centre",
}
maps = {
    name: standfast.explainers.get(each)(model, chosen.inputs[:2])
    for name, each in explainers.items()
}
axes = standfast.show(chosen[:2], maps)

# %% [markdown]
# ## 4. Evaluate
#
# Two questions, because a map can fail in two ways.
#
# - **Does it hold?** A search looks for an input within 0.1 of the digit, with the same predicted class, whose map is
#   as different as possible. The number is the correlation of the two maps: 1 is the same map.
# - **Does the prediction rest on what it names?** AOPC replaces the regions that the map ranks highest, one after the
#   other. The number says how fast the prediction falls; higher is better.

# %%
metrics = {
    "worst case": standfast.metrics.WorstCase(
        standfast.LinfBall(0.1), event="changed_explanation", budget=BUDGET
    ),
    "AOPC": standfast.metrics.AOPC(region=4, steps=20, replacement="constant", baseline=0.0),
}
found = standfast.evaluate(model, explainers, chosen, metrics, progress=False)
assert not found.failures
found

# %%
axes = found.plot()

# %% [markdown]
# ## 5. Decide
#
# A map may be shown if it passes the sanity checks (it depends on the input and on the network, and marks what matters)
# and is good by every metric that judges it. What is stable without saying anything is not good.
# One call says which maps may be shown, which not and why, and how many more digits would decide the rest.

# %%
print(found.verdict())

# %% [markdown]
# A search finds a bad input or it does not: a larger budget can only make the worst case worse.
# So "does not hold" is certain, and "holds" means that this search found nothing.
#
# Look at `centre`: it holds perfectly, because it does not look at the network at all. A map that never changes is not
# a good map. `centre` is a control, which no verdict names; an explainer of yours that does the same fails the checks.
#
# If no map may be shown, there are three ways on: ask for less (a smaller radius), smooth the map (`smoothgrad`), or
# train a network whose maps hold: [training schemes compared](training_schemes.md).

# %%
page = found.to_html("own_image_model.html")
print(f"{page.name}: {page.stat().st_size / 1e6:.1f} MB, one file, with every digit")
