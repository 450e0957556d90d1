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
# # Text: may these words be underlined?
#
# A network reads a review and says "bad". The words that it read most closely are to be underlined.
# This notebook finds out which explainer may do it.
#
# The reviews are made up, so that the truth is known: a review is good or bad by one word, which "not" before it turns
# round. All other words say nothing.

# %%
import os

import torch
from torch import nn

import standfast
from standfast.zoo import EmbeddedText, padded_batch

SMALL = os.environ.get("STANDFAST_SMALL") == "1"  # as the tests run it
STEPS, SAMPLES, BUDGET = (20, 3, 20) if SMALL else (250, 24, 200)

# %% [markdown]
# ## 1. Data

# %%
GOOD = ["good", "great", "lovely", "superb", "moving", "witty"]
BAD = ["bad", "dull", "awful", "clumsy", "boring", "flat"]
OTHER = [
    "the",
    "film",
    "was",
    "its",
    "story",
    "with",
    "a",
    "cast",
    "that",
    "we",
    "saw",
    "in",
    "spring",
    "who",
    "said",
]
WORDS = ["<pad>", "not", *GOOD, *BAD, *OTHER]
LENGTH = 8


def make_reviews(count: int, seed: int) -> tuple[list[list[str]], torch.Tensor]:
    """Reviews of 5 to 8 words, and whether each is good."""
    generator = torch.Generator().manual_seed(seed)

    def pick(most: int) -> int:
        return int(torch.randint(most, (1,), generator=generator))

    texts, labels = [], []
    for _ in range(count):
        text = [OTHER[pick(len(OTHER))] for _ in range(5 + pick(LENGTH - 4))]
        good, turned, place = pick(2), pick(2), 1 + pick(len(text) - 1)
        text[place] = (GOOD if good else BAD)[pick(6)]
        if turned:
            text[place - 1] = "not"
        texts.append(text)
        labels.append(good ^ turned)
    return texts, torch.tensor(labels)


def number(texts: list[list[str]]) -> torch.Tensor:
    """Token ids `(N, 8)`, filled up with padding."""
    filled = padded_batch([[WORDS.index(word) for word in text] for text in texts], padding=0)
    return nn.functional.pad(filled, (0, LENGTH - filled.shape[1]))


texts, labels = make_reviews(1000, seed=0)
print(" ".join(texts[0]), "->", ["bad", "good"][labels[0]])

# %% [markdown]
# ## 2. Train
#
# Each word looks at its neighbours, and the mean over the words decides.
# Words that say nothing are left out at random in training, because explainers that leave words out ask the network
# about such texts.


# %%
class Reader(nn.Module):
    def __init__(self, dim: int = 24) -> None:
        super().__init__()
        self.words = nn.Embedding(len(WORDS), dim, padding_idx=0)
        self.near = nn.Conv1d(dim, dim, kernel_size=3, padding=1)
        self.head = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, 2))

    def read(self, embedded: torch.Tensor, present: torch.Tensor) -> torch.Tensor:
        """Logits of embeddings `(N, T, dim)`, of which `present` `(N, T)` are there."""
        there = present[..., None].to(embedded)
        x = embedded * there
        x = torch.relu(x + self.near(x.transpose(1, 2)).transpose(1, 2)) * there
        return self.head(x.sum(1) / there.sum(1).clamp(min=1))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.read(self.words(ids), ids != 0)


torch.manual_seed(0)
reader, ids = Reader(), number(texts)
optimiser = torch.optim.AdamW(reader.parameters(), lr=3e-3, weight_decay=0.01)
for _ in range(STEPS):
    rows = torch.randint(len(ids), (64,))
    kept = (ids[rows] <= WORDS.index(BAD[-1])) | (torch.rand(64, LENGTH) > torch.rand(64, 1))
    optimiser.zero_grad()
    nn.functional.cross_entropy(reader(ids[rows] * kept), labels[rows]).backward()
    optimiser.step()
_ = reader.eval()

# %% [markdown]
# ## 3. Wrap
#
# Words are discrete, so perturbations and gradients act on the embeddings, `(N, dim, words)`.
# `tokens` are the words, for tables and figures; `extras` say which words decide.

# %%
text = EmbeddedText(reader, reader.words, Reader.read, padding=0, radius=0.1)
model = standfast.Model(text, text.bounds())


def make_dataset(count: int, seed: int) -> standfast.data.Dataset:
    """Reviews as embeddings, with their words and the places that decide."""
    texts, labels = make_reviews(count, seed)
    decide = torch.tensor(
        [[word in {"not", *GOOD, *BAD} for word in [*words, *[""] * 8][:LENGTH]] for words in texts]
    )
    return standfast.data.Dataset(
        "reviews",
        text.embed(number(texts)).detach(),
        labels,
        ("bad", "good"),
        (-torch.inf, torch.inf),
        extras={"decide": decide[:, None]},
        tokens=tuple(map(tuple, texts)),
    )


test = make_dataset(200, seed=1)
right = model.predict(test.inputs) == test.labels
print(f"accuracy on new reviews: {right.double().mean():.0%}")
chosen = test.take(right.nonzero()[:SAMPLES, 0])

# %% [markdown]
# ## 4. Explain
#
# The baseline, what a word is replaced by, is the padding: the word is left out.

# %%
nothing = text.baseline()
explainers = {
    "gradient x input": "input_x_gradient",
    "integrated gradients": standfast.explainers.get(
        "integrated_gradients", steps=32, baseline=nothing
    ),
    "KernelSHAP": standfast.explainers.get(
        "kernel_shap", samples=100, segments="pixels", baseline=nothing
    ),
    "LIME": standfast.explainers.get("lime", samples=100, segments="pixels", baseline=nothing),
    "random": "random",
}
maps = {
    name: standfast.explainers.get(explainers[name])(model, chosen.inputs[:3])
    for name in ("gradient x input", "KernelSHAP")
}
axes = standfast.show(chosen[:3], maps)

# %% [markdown]
# ## 5. Evaluate
#
# - **Does it underline the words that decide?** The share of the positive relevance on "not" and on the deciding word.
# - **Does the prediction rest on what it names?** The corruption curve leaves words out, the most relevant first. The
#   number is how much of the prediction is lost on the way; higher is better. It needs no truth.
# - **Does it hold?** A search moves every embedding by at most 0.1, with the same prediction, so that the map changes
#   as much as possible. The number is the correlation of the two maps.

# %%
metrics = {
    "on the deciding words": standfast.metrics.RelevanceLocalisation(
        regions="decide", unit="pixel"
    ),
    "corruption curve": standfast.metrics.CorruptionCurve(
        replacement="constant", baseline=nothing, unit="pixel"
    ),
    "worst case": standfast.metrics.WorstCase(
        standfast.LinfBall(0.1), event="changed_explanation", budget=BUDGET
    ),
}
found = standfast.evaluate(model, explainers, chosen, metrics, progress=False)
assert not found.failures
found

# %%
axes = found.plot()

# %% [markdown]
# ## 6. Decide
#
# An explainer may underline words if it passes the sanity checks (it depends on the review and on the network, and
# marks what matters) and is good by every metric that judges it.

# %%
print(found.verdict())
