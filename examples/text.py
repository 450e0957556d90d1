"""Text, end to end: the bundled classifier of film reviews, explanations of words, other words and typing errors.

    python examples/text.py

`transformer-sentences` says whether a sentence of a film review is positive or negative; it is right for 77% of the
sentences of the test set. The 200 bundled sentences are from there. A sentence is perturbed in two ways: a ball moves
the vectors of all words a little, and `TokenSwaps` writes words wrongly, so that every perturbed input is a text.
"""

from __future__ import annotations

from pathlib import Path

import holdfast
from holdfast.zoo import token_relevance

WORDS = holdfast.data.word_vectors()


def load() -> tuple[holdfast.Classifier, holdfast.data.Dataset]:
    """The classifier, and the sentences that it classifies correctly."""
    sentences = holdfast.data.load("sentences")
    classifier = holdfast.Classifier(holdfast.zoo.load("transformer-sentences"), bounds=sentences.bounds)
    right = classifier.predict(sentences.inputs).cpu() == sentences.labels
    print(f"right for {right.double().mean():.1%} of {len(sentences)} sentences")
    return classifier, sentences.take(right.nonzero()[:, 0])


def make_typos(sentences: holdfast.data.Dataset, rate: float = 0.2) -> holdfast.neighbourhoods.TokenSwaps:
    """Each word of the sentences is written wrongly with probability `rate`.

    A word of four letters or more becomes a word that is one slip apart, if there is one, or a word that the network
    does not know. Short words stay.
    """
    slips = holdfast.neighbourhoods.typo_table(WORDS.words)
    texts = {word for words in sentences.tokens for word in words}
    numbers = [number for number, word in enumerate(WORDS.words) if word in texts and len(word) > 3]
    table = {number: (*slips.get(number, ()), 1) for number in numbers}
    return holdfast.neighbourhoods.TokenSwaps(WORDS.vectors, table, rate=rate, padding=0)


def evaluate(
    classifier: holdfast.Classifier, sentences: holdfast.data.Dataset, budget: int = 60
) -> holdfast.Evaluation:
    """Four explainers by four metrics."""
    nothing = (0.0,) * sentences.inputs.shape[1]  # the vector of the padding: the word is left out
    explainers = {
        "saliency": holdfast.explainers.get("saliency"),
        "gradient x input": holdfast.explainers.get("input_x_gradient"),
        "integrated gradients": holdfast.explainers.get("integrated_gradients", steps=8),
        "KernelSHAP": holdfast.explainers.get("kernel_shap", samples=64, segments="pixels", baseline=nothing),
    }
    ball = holdfast.LinfBall(radius=0.02)
    changed = {"event": "changed_explanation", "similarity": "spearman"}
    metrics = {
        "worst case, vectors": holdfast.metrics.WorstCase(ball, **changed, budget=budget),
        "worst case, typing errors": holdfast.metrics.WorstCase(
            make_typos(sentences), **changed, search="random", budget=budget
        ),
        "max-sensitivity": holdfast.metrics.MaxSensitivity(ball, samples=10, normalise=True),
        "words left out": holdfast.metrics.CorruptionCurve(replacement="constant", baseline=nothing, unit="pixel"),
    }
    return holdfast.evaluate(classifier, explainers, sentences, metrics)


def main(folder: Path = Path("results/text"), samples: int = 8) -> None:
    """Three sentences with the relevance of their words, and the report."""
    classifier, sentences = load()
    explainer = holdfast.explainers.get("integrated_gradients", steps=64)
    relevance = token_relevance(explainer(classifier, sentences.inputs[:3]))
    for words, values in zip(sentences.tokens, relevance.tolist(), strict=False):
        print("  ".join(f"{word} {value:+.1f}" for word, value in zip(words, values, strict=False)))
    evaluation = evaluate(classifier, sentences[:samples])
    folder.mkdir(parents=True, exist_ok=True)
    evaluation.to_html(folder / "index.html")
    print(evaluation)
    print(f"report: {folder / 'index.html'}")


if __name__ == "__main__":
    main()
