"""Text, end to end: the bundled classifier of film reviews, explanations of words, other words and typing errors.

    python examples/text.py

`transformer-sentences` says whether a sentence of a film review is positive or negative; it is right for 77% of the
sentences of the test set. The 200 bundled sentences are from there. A sentence is perturbed in two ways: a ball moves
the vectors of all words a little, and `TokenSwaps` writes words wrongly, so that every perturbed input is a text.
"""

from __future__ import annotations

from pathlib import Path

import standfast
from standfast.zoo import token_relevance

WORDS = standfast.data.word_vectors()


def load() -> tuple[standfast.Model, standfast.data.Dataset]:
    """The model, and the sentences that it classifies correctly."""
    sentences = standfast.data.load("sentences")
    model = standfast.Model(standfast.zoo.load("transformer-sentences"), bounds=sentences.bounds)
    right = model.predict(sentences.inputs).cpu() == sentences.labels
    print(f"right for {right.double().mean():.1%} of {len(sentences)} sentences")
    return model, sentences.take(right.nonzero()[:, 0])


def make_typos(sentences: standfast.data.Dataset, rate: float = 0.2) -> standfast.neighbourhoods.TokenSwaps:
    """Each word of the sentences is written wrongly with probability `rate`.

    A word of four letters or more becomes a word that is one slip apart, if there is one, or a word that the network
    does not know. Short words stay.
    """
    slips = standfast.neighbourhoods.typo_table(WORDS.words)
    texts = {word for words in sentences.tokens for word in words}
    numbers = [number for number, word in enumerate(WORDS.words) if word in texts and len(word) > 3]
    table = {number: (*slips.get(number, ()), 1) for number in numbers}
    return standfast.neighbourhoods.TokenSwaps(WORDS.vectors, table, rate=rate, padding=0, words=WORDS.words)


def evaluate(model: standfast.Model, sentences: standfast.data.Dataset, budget: int = 60) -> standfast.Results:
    """Four explainers by four metrics."""
    nothing = (0.0,) * sentences.inputs.shape[1]  # the vector of the padding: the word is left out
    explainers = {
        "saliency": standfast.explainers.get("saliency"),
        "gradient x input": standfast.explainers.get("input_x_gradient"),
        "integrated gradients": standfast.explainers.get("integrated_gradients", steps=8),
        "KernelSHAP": standfast.explainers.get("kernel_shap", samples=64, segments="pixels", baseline=nothing),
    }
    ball = standfast.LinfBall(radius=0.02)
    changed = {"event": "changed_explanation", "similarity": "spearman"}
    metrics = {
        "worst case, vectors": standfast.metrics.WorstCase(ball, **changed, budget=budget),
        "worst case, typing errors": standfast.metrics.WorstCase(
            make_typos(sentences), **changed, search="random", budget=budget
        ),
        "max-sensitivity": standfast.metrics.MaxSensitivity(ball, samples=10, normalise=True),
        "words left out": standfast.metrics.CorruptionCurve(replacement="constant", baseline=nothing, unit="pixel"),
    }
    return standfast.evaluate(model, explainers, sentences, metrics)


def main(folder: Path = Path("results/text"), samples: int = 8) -> None:
    """Three sentences with the relevance of their words, the report, and the table with its verdict."""
    model, sentences = load()
    explainer = standfast.explainers.get("integrated_gradients", steps=64)
    relevance = token_relevance(explainer(model, sentences.inputs[:3]))
    for words, values in zip(sentences.tokens, relevance.tolist(), strict=False):
        print("  ".join(f"{word} {value:+.1f}" for word, value in zip(words, values, strict=False)))
    found = evaluate(model, sentences[:samples])
    folder.mkdir(parents=True, exist_ok=True)
    found.to_html(folder / "index.html")
    print(f"report: {folder / 'index.html'}")
    print(found)


if __name__ == "__main__":
    main()
