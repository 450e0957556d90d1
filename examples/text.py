"""A text classifier, end to end: made-up reviews, a small attention network, explanations of its tokens, a report.

    python examples/text.py

A review is good or bad by one word, which "not" before it turns round; all other words say nothing. So it is known
which tokens matter.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch
from torch import Tensor, nn

import holdfast
from holdfast.zoo import EmbeddedText, padded_batch, text_classifier, token_relevance

GOOD = ["good", "great", "lovely", "superb", "moving", "witty"]
BAD = ["bad", "dull", "awful", "clumsy", "boring", "flat"]
OTHER = ["the", "film", "was", "its", "story", "with", "a", "cast", "that", "we", "saw", "in", "spring", "who", "said"]
WORDS = ["<pad>", "not", *GOOD, *BAD, *OTHER]
IDS = {word: number for number, word in enumerate(WORDS)}


def reviews(count: int, seed: int, length: tuple[int, int] = (5, 8)) -> tuple[list[list[str]], Tensor]:
    """Reviews as words, and whether each is good, int64 `(count,)`."""
    generator = torch.Generator().manual_seed(seed)

    def pick(most: int) -> int:
        return int(torch.randint(most, (1,), generator=generator))

    texts, labels = [], []
    for _ in range(count):
        size = length[0] + pick(length[1] - length[0] + 1)
        text = [OTHER[pick(len(OTHER))] for _ in range(size)]
        good, turned = pick(2), pick(2)
        kinds = GOOD if good else BAD
        place = 1 + pick(size - 1)
        text[place] = kinds[pick(len(kinds))]
        if turned:
            text[place - 1] = "not"
        texts.append(text)
        labels.append(good ^ turned)
    return texts, torch.tensor(labels)


def tokens(texts: list[list[str]]) -> Tensor:
    """Token ids `(N, T)`, filled up with padding."""
    return padded_batch([[IDS[word] for word in text] for text in texts], padding=0)


class Reader(nn.Module):
    """Each token looks at itself, its neighbours and all others; the mean over tokens decides."""

    def __init__(self, dim: int = 24) -> None:
        super().__init__()
        self.words = nn.Embedding(len(WORDS), dim, padding_idx=0)
        self.near = nn.Conv1d(dim, dim, kernel_size=3, padding=1)
        self.query, self.key, self.value = (nn.Linear(dim, dim) for _ in range(3))
        self.head = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, 2))

    def read(self, embedded: Tensor, present: Tensor) -> Tensor:
        """Logits of embeddings `(N, T, dim)`, of which `present` `(N, T)` are there."""
        there = present[..., None].to(embedded)
        x = embedded * there
        x = torch.relu(x + self.near(x.transpose(1, 2)).transpose(1, 2)) * there
        scores = self.query(x) @ self.key(x).transpose(1, 2) / x.shape[2] ** 0.5
        looks = scores.masked_fill(~present[:, None], -1e4).softmax(2)
        x = (x + looks @ self.value(x)) * there
        logits: Tensor = self.head(x.sum(1) / there.sum(1).clamp(min=1))
        return logits

    def forward(self, ids: Tensor) -> Tensor:
        """Logits of token ids `(N, T)`."""
        return self.read(self.words(ids), ids != 0)


@cache
def train_reader(steps: int = 250) -> Reader:
    """A reader of a thousand reviews, trained in a few seconds; the same on every call.

    Words that say nothing are left out at random in training: what explains by leaving words out asks about such texts.
    """
    texts, labels = reviews(1000, seed=0)
    ids = tokens(texts)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Reader()
        optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
        for _ in range(steps):
            rows = torch.randint(len(ids), (64,))
            kept = (ids[rows] <= IDS[BAD[-1]]) | (torch.rand(64, ids.shape[1]) > torch.rand(64, 1))
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(ids[rows] * kept), labels[rows]).backward()
            optimiser.step()
    return model.eval()


def build_embedded_text(radius: float = 0.0) -> EmbeddedText:
    """The reader from its embeddings on; what is within `radius` of the padding's is padding."""
    model = train_reader()
    return EmbeddedText(model, model.words, Reader.read, padding=0, radius=radius)


def evaluate(samples: int = 12, budget: int = 500) -> holdfast.Evaluation:
    """Four explainers by three metrics on new reviews."""
    text = build_embedded_text(radius=0.1)
    classifier = text_classifier(text)
    inputs = text.embed(tokens(reviews(samples, seed=1)[0]))
    nothing = text.baseline()
    explainers = {
        "gradient x input": holdfast.explainers.get("input_x_gradient"),
        "integrated gradients": holdfast.explainers.get("integrated_gradients", steps=32, baseline=nothing),
        "KernelSHAP": holdfast.explainers.get("kernel_shap", samples=200, segments="pixels", baseline=nothing),
        "LIME": holdfast.explainers.get("lime", samples=200, segments="pixels", baseline=nothing),
    }
    ball = holdfast.LinfBall(radius=0.1)
    metrics = [
        holdfast.metrics.WorstCase(ball, event="changed_explanation", similarity="pearson", budget=budget),
        holdfast.metrics.MaxSensitivity(ball, samples=20, normalise=True),
        holdfast.metrics.CorruptionCurve(replacement="constant", baseline=nothing, unit="pixel"),
    ]
    return holdfast.evaluate(classifier, explainers, inputs, metrics)


def main(folder: Path = Path("results/text")) -> None:
    """Three reviews with the relevance of their tokens, and the report."""
    text = build_embedded_text()
    classifier = text_classifier(text)
    texts, labels = reviews(300, seed=1)
    inputs = text.embed(tokens(texts))
    print(f"accuracy on new reviews: {(classifier.predict(inputs) == labels).float().mean():.3f}")
    explainer = holdfast.explainers.get("kernel_shap", samples=200, segments="pixels", baseline=text.baseline())
    relevance = token_relevance(explainer(classifier, inputs[:3])) / inputs.shape[1]
    for words, values in zip(texts[:3], relevance.tolist(), strict=True):
        print("  ".join(f"{word} {value:+.1f}" for word, value in zip(words, values, strict=False)))
    folder.mkdir(parents=True, exist_ok=True)
    evaluate().to_html(folder / "index.html")
    print(f"report: {folder / 'index.html'}")


if __name__ == "__main__":
    main()
