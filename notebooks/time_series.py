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
# # Time series: may this map be shown?
#
# For most series nobody knows where the class lies. Here it is known: each series has four channels of slow sines, and
# two of them carry a short block of a fast sine. The class says whether the two fast frequencies add up to more than a
# threshold. So a map has to point at the two blocks, and one can count whether it does.

# %%
import os

import matplotlib.pyplot as plt
import torch

import standfast
from standfast.training.classifier import accuracy, train_classifier
from standfast.zoo.networks.series_cnn import SeriesCNN

SMALL = os.environ.get("STANDFAST_SMALL") == "1"  # as the tests run it
COUNT, EPOCHS, SAMPLES, BUDGET = (200, 1, 4, 20) if SMALL else (1200, 6, 24, 100)

# %% [markdown]
# ## 1. Data
#
# `extras["blocks"]` says where the blocks are; the shaded parts of the figure.

# %%
train = standfast.data.synthetic_waves(COUNT, steps=200, block=50, seed=0)
test = standfast.data.synthetic_waves(200, steps=200, block=50, seed=1)

figure, axes = plt.subplots(4, 1, figsize=(8, 4), sharex=True)
for channel, axis in enumerate(axes):
    axis.plot(test.inputs[0, channel], linewidth=0.8)
    axis.fill_between(range(200), -4, 4, where=test.extras["blocks"][0, channel], alpha=0.2)
    axis.set_ylim(-4, 4)
    axis.set_ylabel(f"channel {channel}")

# %% [markdown]
# ## 2. Train
#
# A small convolutional network, in seconds. Standardised series have no bounds, so there are none.

# %%
generator = torch.Generator().manual_seed(0)
network = train_classifier(
    SeriesCNN(width=16, hidden=16, stride=2, dropout=0.0),
    train.inputs,
    train.labels,
    epochs=EPOCHS,
    generator=generator,
    learning_rate=1e-2,
)
print(f"test accuracy: {accuracy(network, test.inputs, test.labels):.0%}")

model = standfast.Model(network, bounds=(-torch.inf, torch.inf))
right = model.predict(test.inputs) == test.labels
chosen = test.take(right.nonzero()[:SAMPLES, 0])

# %% [markdown]
# ## 3. Explain

# %%
explainers = {
    "saliency": "saliency",
    "gradient x input": "input_x_gradient",
    "integrated gradients": standfast.explainers.get("integrated_gradients", steps=16),
    "random": "random",
}
maps = {
    name: standfast.explainers.get(each)(model, chosen.inputs[:1])
    for name, each in explainers.items()
    if name != "random"
}
axes = standfast.show(chosen[:1], maps)

# %% [markdown]
# ## 4. Evaluate
#
# - **Does it point at the blocks?** The share of the positive relevance that lies within them. They take up an eighth
#   of a series, so an eighth is what chance gives.
# - **Does the prediction rest on what it names?** Usually there are no blocks to look at. A corruption curve needs
#   none: it replaces the most relevant positions by noise. The number is how much of the prediction is lost on the way;
#   higher is better. Noise alone takes the prediction down, too: `random` says by how much.
# - **Does it hold?** A search looks within 0.05 of the series for one with the same prediction and another map. The
#   number is the correlation of the two maps.

# %%
metrics = {
    "within the blocks": standfast.metrics.RelevanceLocalisation(regions="blocks"),
    "corruption curve": standfast.metrics.CorruptionCurve(samples=2),
    "worst case": standfast.metrics.WorstCase(
        standfast.LinfBall(0.05), event="changed_explanation", budget=BUDGET
    ),
}
found = standfast.evaluate(model, explainers, chosen, metrics, progress=False)
assert not found.failures
found

# %%
axes = found.plot()

# %% [markdown]
# The median hides how differently single series behave. Each line is a series: how much is lost as more and more of the
# most relevant positions are replaced.

# %%
curve = standfast.metrics.CorruptionCurve(samples=2)(
    model, explainers["integrated gradients"], chosen.inputs
)
figure, axis = plt.subplots(figsize=(6, 3))
axis.plot(curve.fractions, curve.score_drop["top"].T, color="tab:blue", alpha=0.3)
axis.plot(curve.fractions, curve.score_drop["top"].nanmean(0), color="black", label="mean")
axis.set_xlabel("share of the positive positions replaced, most relevant first")
axis.set_ylabel("drop of the score")
axis.legend()

half = int((torch.tensor(curve.fractions) >= 0.5).nonzero()[0])
lost = float(curve.summary(tau=0.5, resamples=0).share_above[half])
print(f"with half of them replaced, {lost:.0%} of the series lose half of the score or more")

# %% [markdown]
# ## 5. Decide
#
# A map may be shown if it passes the sanity checks (it depends on the series and on the network, and marks what
# matters) and is good by every metric that judges it. Without known blocks, the other two metrics would decide.

# %%
print(found.verdict())
