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
# # A data frame: may this customer be shown this explanation?
#
# A bank's model refuses a customer, and SHAP says why. Would it say the same with another seed? If the model had been
# trained again? If the income were 2% higher? This notebook ends in an answer for one customer: yes, no or undecided.
#
# The frame goes in as it is: texts, an order, dates and missing cells. The pipeline that was fitted goes in as it is.

# %%
import os

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, OrdinalEncoder

import standfast
from standfast.neighbourhoods import TableChanges

SMALL = os.environ.get("STANDFAST_SMALL") == "1"  # as the tests run it
ROWS, SAMPLES, BUDGET, SEEDS = (200, 4, 20, 3) if SMALL else (2000, 24, 200, 10)

# %% [markdown]
# ## 1. Data with a known truth
#
# Income, debt, education and the age of the account decide. The sign of the zodiac does not.

# %%
rng = np.random.default_rng(0)
TODAY, EDUCATION = pd.Timestamp("2025-01-01"), ["school", "training", "degree"]
frame = pd.DataFrame(
    {
        "income": np.round(rng.lognormal(8.0, 0.4, ROWS)),
        "debt": np.round(rng.lognormal(8.5, 0.8, ROWS)),
        "education": rng.choice(EDUCATION, ROWS),
        "since": TODAY - pd.to_timedelta(rng.integers(30, 5000, ROWS), unit="D"),
        "zodiac": rng.choice(["aries", "leo", "libra", "pisces"], ROWS),
    }
)
score = 1.5 * np.log(frame["income"] / 3000) - 0.8 * np.log(frame["debt"] / 5000)
score = (
    score
    + 0.6 * (frame["education"].map(EDUCATION.index) - 1)
    + 0.0003 * ((TODAY - frame["since"]).dt.days - 2500)
)
paid = np.where(rng.random(ROWS) < 1 / (1 + np.exp(-score)), "yes", "no")
frame.loc[rng.random(ROWS) < 0.1, "debt"] = np.nan
frame.head()

# %% [markdown]
# ## 2. A pipeline, fitted three times
#
# With another seed each time, which the bank could as well have used.


# %%
def count_days(dates):
    return dates.apply(lambda column: (TODAY - column).dt.days.astype(float))


def fit(seed):
    encoders = ColumnTransformer(
        [
            ("names", OneHotEncoder(sparse_output=False), ["zodiac"]),
            ("order", OrdinalEncoder(categories=[EDUCATION]), ["education"]),
            ("dates", FunctionTransformer(count_days), ["since"]),
        ],
        remainder="passthrough",
    )
    trees = HistGradientBoostingClassifier(max_iter=40, max_features=0.5, random_state=seed)
    return Pipeline([("encoders", encoders), ("trees", trees)]).fit(frame[SAMPLES:], paid[SAMPLES:])


models = {f"trees#{seed}": fit(seed) for seed in range(3)}
print(
    {name: round(model.score(frame[:SAMPLES], paid[:SAMPLES]), 2) for name, model in models.items()}
)

# %% [markdown]
# ## 3. The questions
#
# What may differ without that the customer is another one: 2% of income, 5% of debt, 30 days, any sign of the zodiac.

# %%
changes = TableChanges({"income": "2%", "debt": "5%", "since": 30, "zodiac": "category"})
metrics = {
    "worst case": standfast.metrics.WorstCase(changes, similarity="spearman", budget=BUDGET),
    "seeds": standfast.metrics.SeedAgreement(seeds=SEEDS),
}
explainers = {"Shapley sampling": standfast.explainers.get("shapley_sampling", permutations=4)}
explainers["KernelSHAP"] = standfast.explainers.get("kernel_shap", samples=60)
found = standfast.evaluate(
    models,
    explainers,
    frame[:SAMPLES],
    metrics,
    reference=frame[SAMPLES:],
    sanity=not SMALL,
    progress=False,
)
for model in models:
    print(found.verdict(model=model))
found

# %% [markdown]
# ## 4. Does the explanation agree with itself?
#
# `kendall` compares ranks: 1 is the same order of columns, and unrelated maps have `chance`. The two-way table says
# what changes a map more: another seed of the explainer, or a model that was trained again.

# %%
agreement = found.agreement()
print(agreement.variance)
agreement.frame().filter(measure="kendall").head(8)

# %%
figure, axes = plt.subplots(figsize=(5, 4))
axes.imshow(agreement.matrix(), vmin=0, vmax=1, cmap="Blues")
axes.set_xticks(
    range(len(agreement.sources)), [f"{e}, {m}" for m, e in agreement.sources], rotation=90
)
_ = axes.set_title("Kendall's tau, medians over customers")

# %%
_ = found.plot()

# %% [markdown]
# ## 5. One customer
#
# The first one. The explanation may be shown if it keeps its order of columns under other seeds, and in the worst case
# that was found, for each of the models: all above 0.6. It may not if one of them is surely below. Else nobody knows.

# %%
LIMIT, CUSTOMER = 0.6, 0
rows = found.samples.filter(sample=CUSTOMER, explainer="Shapley sampling", status="ok")
lows = [low if low is not None else value for low, value in rows.select("low", "value").rows()]
highs = [high if high is not None else value for high, value in rows.select("high", "value").rows()]
decision = "yes" if min(lows) >= LIMIT else "no" if min(highs) < LIMIT else "undecided"
print(rows.select("model", "label", "value", "low", "high"))
print(f"Show this explanation to the customer: {decision}")
