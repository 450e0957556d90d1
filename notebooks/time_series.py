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
# # Time series
#
# For most series nobody knows where the class lies. Here it is known: each series has four channels of slow sines,
# and two of them carry a short block of a fast sine. The class says whether the two fast frequencies add up to more
# than a threshold. So an explanation has to point at the two blocks, and one can count whether it does.

# %%
import os

import matplotlib.pyplot as plt
import polars as pl
import torch

import holdfast
from holdfast.zoo.networks.series_cnn import SeriesCNN
from holdfast.zoo.training.classifier import accuracy, train_classifier

SMALL = os.environ.get("HOLDFAST_SMALL") == "1"  # as the tests run it
COUNT, EPOCHS, SAMPLES = (200, 1, 6) if SMALL else (1200, 6, 40)

# %%
train = holdfast.data.synthetic_waves(COUNT, steps=200, block=50, seed=0)
test = holdfast.data.synthetic_waves(200, steps=200, block=50, seed=1)
print(test.inputs.shape, test.classes, test.extras["blocks"].shape)

# %%
figure, axes = plt.subplots(4, 1, figsize=(8, 4), sharex=True)
for channel, axis in enumerate(axes):
    axis.plot(test.inputs[0, channel], linewidth=0.8)
    axis.fill_between(range(200), -3, 3, where=test.extras["blocks"][0, channel], alpha=0.2)
    axis.set_ylim(-3, 3)
    axis.set_ylabel(f"channel {channel}")
plt.close(figure)
figure

# %% [markdown]
# ## Train
#
# A small convolutional network, in seconds.

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

# %% [markdown]
# Standardised series have no bounds, so there are none.

# %%
classifier = holdfast.Classifier(network, bounds=(-torch.inf, torch.inf))
right = (classifier.predict(test.inputs) == test.labels).nonzero()[:, 0][:SAMPLES]
inputs, labels, blocks = test.inputs[right], test.labels[right], test.extras["blocks"][right]

explainers = {
    "saliency": "saliency",
    "gradient x input": "input_x_gradient",
    "integrated gradients": holdfast.explainers.get("integrated_gradients", steps=16),
    "random": "random",
}

# %% [markdown]
# ## Where do the maps point?
#
# The share of the positive attribution that lies within the two blocks. They take up an eighth of a series, so that
# is what chance gives.

# %%
inside = holdfast.metrics.RelevanceLocalisation(regions=blocks)
found = {name: inside(classifier, explainer, inputs, labels) for name, explainer in explainers.items()}
pl.DataFrame(
    {
        "explainer": list(found),
        "within the blocks": [round(each.mass_accuracy.mean().item(), 2) for each in found.values()],
        "chance": [round(each.chance.mean().item(), 2) for each in found.values()],
        "largest value within": [round(each.pointing_hit.double().mean().item(), 2) for each in found.values()],
    }
)

# %% [markdown]
# ## Does the prediction rest on what they name?
#
# Usually there are no blocks to look at. A corruption curve needs none: it replaces the most relevant positions by
# noise and looks at how much of the prediction is lost, then the least relevant.

# %%
curve = holdfast.metrics.CorruptionCurve(samples=2)
results = {name: curve(classifier, explainer, inputs, labels) for name, explainer in explainers.items()}
pl.DataFrame(
    {
        "explainer": list(results),
        "area, most relevant first": [round(result.auc_top, 3) for result in results.values()],
        "area, least relevant first": [round(result.auc_bottom, 3) for result in results.values()],
        "F1": [round(result.f1, 3) for result in results.values()],
    }
)

# %%
figure, axis = plt.subplots(figsize=(6, 3))
for name, result in results.items():
    axis.plot(result.fractions, result.score_drop["top"].nanmean(0), marker="o", markersize=3, label=name)
axis.set_xlabel("share of the positive positions replaced, most relevant first")
axis.set_ylabel("mean drop")
axis.legend(fontsize=8)
plt.close(figure)
figure

# %% [markdown]
# ## Read
#
# - Areas most relevant first: higher is better; least relevant first: lower. F1 joins the two.
# - What an explainer owes to its map is the difference to `random`: noise alone takes the prediction down, too.
# - Compare the order by F1 with the order by the blocks above: here they disagree. Gradient times input and integrated
#   gradients point at the blocks, and lose most with the first positions; saliency, spread over the series, loses more
#   later, and comes out ahead by area and F1. What moves the prediction and where the class lies are two questions.
#
# The mean hides how differently single series behave. The distribution of the drops at each share says it:

# %%
result = results["integrated gradients"]
pl.DataFrame(
    {
        "share replaced": [round(k, 2) for k in result.fractions],
        "drop of at least a half": [round(float(v), 2) for v in result.share_above(0.5)],
        "skewness": [round(float(v), 2) for v in result.skewness],
    }
)

# %% [markdown]
# ## And does the map hold?

# %%
held = holdfast.metrics.MaxSensitivity(holdfast.LinfBall(0.05), samples=10, normalise=True)
moved = {
    name: held(classifier, explainer, inputs, labels).sensitivity.median() for name, explainer in explainers.items()
}
pl.DataFrame({"explainer": list(moved), "max-sensitivity": [round(value.item(), 3) for value in moved.values()]})
