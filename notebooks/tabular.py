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
# # Tables: may this reason be given?
#
# A network reads a row of measurements and says "benign". Somebody asks why, and the answer is a list of the five
# measurements that counted most. This notebook finds out which explainer's list may be given.
#
# The table is scikit-learn's breast cancer set: 569 tumours, 30 measurements of the cells in each.
# Without scikit-learn, a table is made in its place.

# %%
import os

import torch
from torch import nn

import standfast

SMALL = os.environ.get("STANDFAST_SMALL") == "1"  # as the tests run it
EPOCHS, SAMPLES, BUDGET, MASKS = (5, 3, 30, 100) if SMALL else (60, 24, 300, 200)

# %% [markdown]
# ## 1. Data
#
# Every column is standardised, so that "a change of 0.1" means a tenth of a standard deviation in each of them.
# `features` names the columns; tables and figures show the names.


# %%
def load_table() -> tuple[torch.Tensor, torch.Tensor, tuple[str, ...], tuple[str, ...]]:
    """Rows, labels, the names of the columns and those of the classes."""
    try:
        from sklearn.datasets import load_breast_cancer
    except ImportError:
        generator = torch.Generator().manual_seed(0)
        rows = torch.randn(569, 30, generator=generator)
        labels = (rows[:, 0] + rows[:, 1] * rows[:, 2] > 0).long()
        return rows, labels, tuple(f"measurement {n}" for n in range(30)), ("benign", "malignant")
    found = load_breast_cancer()
    rows = torch.tensor(found.data, dtype=torch.float32)
    return rows, torch.tensor(found.target), tuple(found.feature_names), tuple(found.target_names)


rows, labels, names, classes = load_table()
order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
train, test = order[:400], order[400:]
rows = (rows - rows[train].mean(0)) / rows[train].std(0)
bounds = (float(rows.min().floor()), float(rows.max().ceil()))
patients = standfast.data.Dataset(
    "tumours", rows[test], labels[test], classes, bounds, features=names
)
patients

# %% [markdown]
# ## 2. Train

# %%
torch.manual_seed(0)
network = nn.Sequential(
    nn.Linear(30, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 2)
)
optimiser = torch.optim.AdamW(network.parameters(), lr=3e-3, weight_decay=0.05)
for _ in range(EPOCHS):
    for batch in train[torch.randperm(len(train))].split(64):
        optimiser.zero_grad()
        nn.functional.cross_entropy(network(rows[batch]), labels[batch]).backward()
        optimiser.step()

model = standfast.Model(network, bounds=bounds)
right = model.predict(patients.inputs) == patients.labels
print(f"test accuracy: {right.double().mean():.1%} of {len(patients)} tumours")
chosen = patients.take(right.nonzero()[:SAMPLES, 0])

# %% [markdown]
# ## 3. Explain
#
# A row of a table has no neighbouring columns, so explainers that remove groups of features get every column as a group
# of its own (`segments="pixels"`). Zero is the mean of each column: the baseline is the average tumour.

# %%
explainers = {
    "saliency": "saliency",
    "integrated gradients": standfast.explainers.get("integrated_gradients", steps=32),
    "KernelSHAP": standfast.explainers.get("kernel_shap", samples=200, segments="pixels"),
    "LIME": standfast.explainers.get("lime", samples=200, segments="pixels", output="logit"),
    "random": "random",
}
maps = {
    name: standfast.explainers.get(explainers[name])(model, chosen.inputs[:1])
    for name in ("integrated gradients", "LIME")
}
axes = standfast.show(chosen[:1], maps)

# %% [markdown]
# ## 4. Evaluate
#
# - **Does the list hold?** A search looks for a row with the same prediction, and almost the same measurements, whose
#   five most important columns are others. The number is the share of the five that remain. "Almost the same" has two
#   meanings here: within 0.02 standard deviations, an error of measurement; and within 0.1.
# - **Does the prediction rest on it?** The corruption curve sets the most relevant columns to their mean, more and more
#   of them. The number is how much of the prediction is lost on the way; higher is better.
# - **Do both react to the same columns?** Data SenC compares how sensitive prediction and explanation are to each
#   column. Its number is a correlation.

# %%
RADII = 0.02, 0.1
metrics = {
    f"top five within {radius}": standfast.metrics.WorstCase(
        standfast.LinfBall(radius),
        event="changed_explanation",
        similarity="topk_intersection:k=5",
        budget=BUDGET,
    )
    for radius in RADII
}
metrics |= {
    "corruption curve": standfast.metrics.CorruptionCurve(replacement="constant", unit="entry"),
    "data SenC": standfast.metrics.DataSensitivityConsistency(masks=MASKS),
}
found = standfast.evaluate(model, explainers, chosen, metrics, progress=False)
assert not found.failures
found

# %%
axes = found.plot()

# %% [markdown]
# ## 5. Decide
#
# A list may be given if it passes the sanity checks (it depends on the measurements and on the network, and names what
# matters) and is good by every metric that judges it, here at both radii.

# %%
print(found.verdict())

# %% [markdown]
# Give the list of an explainer that passed, and say at which radius it was tested. For a tumour on which fewer than
# four of the five columns remain, give none:

# %%
cases = found.frame(f"top five within {RADII[-1]}")
weak = cases.filter((cases["explainer"] == "integrated gradients") & (cases["similarity"] < 0.7))
print(f"integrated gradients: no list for the tumours {weak['sample'].to_list()}")
