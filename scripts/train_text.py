"""Train the bundled classifier of sentences, `transformer-sentences`, and the word vectors that it reads.

    STANDFAST_DATA=<folder> python scripts/train_text.py

It writes the weights and their card in src/standfast/zoo/weights/, the vocabulary with its vectors, words.npz in
src/standfast/data/assets/, and beside it sentences.tsv, 200 sentences of the test set. The file sentences.txt there
says where they are from.

The data are the sentences of film reviews of Hutto and Gilbert (see `standfast.data.sentence_files`), from the archive
of vaderSentiment 2.5, which is downloaded into `movie_sentences/` under the data root if it is not there. Label 1 is a
mean rating above 0, label 0 one below. Sentences with a mean of 0 and repetitions are left out; every tenth is in the
test set.

Words that occur four times or more in the training set have a vector of their own. The vectors are learned together
with the network, and have length 1, so all words are equally far from the padding, which is zero. In training a tenth
of the words become unknown, as misspelt and rare words are. In half of the sentences a random share of the words is
left out, since explainers that leave words out ask the network about such texts. The same seed gives the same weights
on one machine with one version of torch and as many threads.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import tarfile
from collections import Counter
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from make_bundled_digits import ASSETS
from safetensors.torch import save
from torch import Tensor, nn
from torch.nn import functional as F
from train_bundled import WEIGHTS, write

from standfast.data.root import data_root, fetch
from standfast.data.sentence_files import PADDING, UNKNOWN, WordVectors, split_words
from standfast.texts.embedded import EmbeddedText
from standfast.training.classifier import Epoch, accuracy, initialize, train_classifier
from standfast.zoo.networks.text_transformer import PADDING_RADIUS, TextTransformer

NAME = "transformer-sentences"
LEAST = 4  # how often a word occurs that has a vector
DIM = 32
EPOCHS, BATCH, RATE, DECAY = 12, 64, 2e-3, 0.05
REQUIRED = 0.72
LONGEST, PER_CLASS = 24, 100  # of the bundled sentences
URL = (
    "https://files.pythonhosted.org/packages/85/08/442d5c6754221edb450fb05357c431217d7ae48fcdfcb03c6db0af8e7450/"
    "vaderSentiment-2.5.tar.gz"
)
SHA256 = "b960c954831f5ca58afee61780cc04ed48e551b91e783bfcbfb2c18bb8081a84"
INNER = "vaderSentiment-2.5/additional_resources/hutto_ICWSM_2014.tar.gz"  # in the archive; FILE is in this one
FILE = "hutto_ICWSM_2014/movieReviewSnippets_GroundTruth.txt"


def read_sentences(split: str) -> tuple[tuple[str, ...], Tensor]:
    """The texts of "train" or "test" and their mean ratings, float64 `(N,)` from -4 to 4, without 0."""
    archive = fetch(URL, f"sha256:{SHA256}", data_root() / "movie_sentences")
    with tarfile.open(archive) as outer, tarfile.open(fileobj=outer.extractfile(INNER)) as inner:
        lines = inner.extractfile(FILE).read().decode().splitlines()
    rated: dict[str, float] = {}
    for line in lines:
        _, rating, *_, text = line.split("\t")
        if float(rating) != 0 and split_words(text):
            rated.setdefault(text.strip(), float(rating))
    chosen = [place for place in range(len(rated)) if (place % 10 == 9) == (split == "test")]
    texts, ratings = tuple(rated), torch.tensor(list(rated.values()), dtype=torch.float64)
    return tuple(texts[place] for place in chosen), ratings[chosen]


class Learner(nn.Module):
    """From numbers of words, as floats `(N, T)`, to logits; word vectors have length 1."""

    def __init__(self, words: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, DIM)
        self.network = TextTransformer(in_channels=DIM)

    def forward(self, numbers: Tensor) -> Tensor:
        """Logits; number 0 is padding."""
        present = numbers > 0
        vectors = F.normalize(self.words(numbers.long()), dim=2) * present[..., None]
        logits: Tensor = self.network(vectors, present)
        return logits


def forget_words(numbers: Tensor, generator: torch.Generator) -> Tensor:
    """A tenth of the words become unknown; in half of the sentences a random share of the words is left out."""
    unknown = torch.rand(numbers.shape, generator=generator) < 0.1
    # below 0 for half of the sentences
    share = torch.rand(len(numbers), 1, generator=generator) - 0.5
    absent = torch.rand(numbers.shape, generator=generator) < 1.6 * share  # up to 80%
    return torch.where(unknown & (numbers > 0), 1.0, numbers) * ~absent


def train(epochs: int, seed: int, weights: Path, assets: Path) -> None:
    """Train, and write the weights, the card, the words and the bundled sentences."""
    (texts, ratings), (test_texts, test_ratings) = read_sentences("train"), read_sentences("test")
    counts = Counter(word for text in texts for word in split_words(text))
    words = (PADDING, UNKNOWN, *sorted(word for word, count in counts.items() if count >= LEAST))
    print(
        f"{len(texts)} sentences, {len(words)} words; {len(test_texts)} sentences to test",
        flush=True,
    )
    known = WordVectors(words, torch.zeros(len(words), DIM))
    generator = torch.Generator().manual_seed(seed)
    learner = initialize(Learner(len(words)), generator)

    def show(epoch: Epoch) -> None:
        test = accuracy(learner, known.find_numbers(test_texts).float(), (test_ratings > 0).long())
        print(
            f"epoch {epoch.number}: loss {epoch.loss:.4f}, accuracy {epoch.accuracy:.4f}; test {test:.4f}",
            flush=True,
        )

    train_classifier(
        learner,
        known.find_numbers(texts).float(),
        (ratings > 0).long(),
        epochs=epochs,
        generator=generator,
        augment=forget_words,
        batch_size=BATCH,
        learning_rate=RATE,
        weight_decay=DECAY,
        progress=show,
    )
    with torch.no_grad():
        vectors = F.normalize(learner.words.weight, dim=1).half().float()
        vectors[0] = 0
    known = WordVectors(words, vectors)
    network = learner.network.eval()
    embedding = nn.Embedding.from_pretrained(vectors)
    module = EmbeddedText(
        network, embedding, TextTransformer.__call__, padding=0, radius=PADDING_RADIUS
    )
    reached = accuracy(module, known.embed(test_texts), (test_ratings > 0).long())
    print(
        f"test accuracy {reached:.4f}; padding is {2 * module.separation:.3f} away from the nearest word",
        flush=True,
    )
    if reached < REQUIRED:
        raise SystemExit(f"nothing written: that is below {REQUIRED}")
    content = save({key: value.contiguous() for key, value in module.state_dict().items()})
    card = {
        "name": NAME,
        "architecture": "TextTransformer()",
        "data": f"movie_sentences, {len(texts):,} training and {len(test_texts):,} test sentences, {len(words):,}"
        " words",
        "scheme": "natural: cross-entropy, AdamW, linear warm-up and cosine, a tenth of the words unknown, in half of"
        " the sentences up to 80 % of the words left out",
        "epochs": epochs,
        "batch_size": BATCH,
        "learning_rate": RATE,
        "weight_decay": DECAY,
        "seed": seed,
        "test_accuracy": reached,
        "parameters": sum(parameter.numel() for parameter in module.parameters()),
        "weights_sha256": hashlib.sha256(content).hexdigest(),
        "versions": {"torch": version("torch"), "standfast": version("standfast")},
        "script": "scripts/train_text.py",
        "licence": "weights Apache-2.0; the sentences and ratings come with vaderSentiment 2.5, MIT licence",
    }
    write(weights / f"{NAME}.safetensors", content)
    write(weights / f"{NAME}.json", (json.dumps(card, indent=2) + "\n").encode())
    stored = io.BytesIO()
    text = np.frombuffer("\n".join(words).encode(), np.uint8)
    np.savez_compressed(stored, words=text, vectors=vectors.half().numpy())
    write(assets / "words.npz", stored.getvalue())
    write(assets / "sentences.tsv", choose_sentences(test_texts, test_ratings).encode())


def choose_sentences(texts: tuple[str, ...], ratings: Tensor) -> str:
    """A line for each bundled sentence, with its rating and a tab before it."""
    rated = [
        pair
        for pair in zip(texts, ratings.tolist(), strict=True)
        if len(split_words(pair[0])) <= LONGEST
    ]
    sides = [
        [pair for pair in rated if (pair[1] > 0) == positive][:PER_CLASS]
        for positive in (False, True)
    ]
    return "".join(
        f"{rating:.4f}\t{text}\n" for pairs in zip(*sides, strict=True) for text, rating in pairs
    )


def main() -> None:
    """Train the model of sentences."""
    parser = argparse.ArgumentParser(description="Train the bundled classifier of sentences.")
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1, help="how many threads torch uses")
    parser.add_argument(
        "--weights", type=Path, default=WEIGHTS, help="where the weights and the card go"
    )
    parser.add_argument(
        "--assets", type=Path, default=ASSETS, help="where the words and the bundled sentences go"
    )
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    train(options.epochs, options.seed, options.weights, options.assets)


if __name__ == "__main__":
    main()
