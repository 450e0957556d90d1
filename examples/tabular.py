"""A table, end to end: scikit-learn's breast cancer set, a small network, four explainers, a report.

    python examples/tabular.py
    python examples/tabular.py trees

The second command explains gradient-boosted trees, which have no gradients, and prints a table. It needs shap.
`tabular.yaml` beside it is the same as a study, which takes `load` and `build` from here. `tabular_rules.yaml` is a
study of the same rows in their own units, changed by percents such that rules hold. scikit-learn is needed.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import torch
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

import standfast
from standfast.question.grid import Samples

NAMES = tuple(load_breast_cancer().feature_names)


@cache
def split() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training and test inputs `(N, 30)`, standardised by the training set, with their labels."""
    table, labels = load_breast_cancer(return_X_y=True)
    parts = train_test_split(table, labels, test_size=0.3, random_state=0, stratify=labels)
    train, test = (torch.tensor(part, dtype=torch.float32) for part in parts[:2])
    mean, std = train.mean(0), train.std(0)
    train_labels, test_labels = (torch.tensor(part) for part in parts[2:])
    return (train - mean) / std, (test - mean) / std, train_labels, test_labels


def bounds() -> tuple[Tensor, Tensor]:
    """The least and the largest value of each feature that occurs, `(30,)` each: perturbed inputs stay within."""
    everything = torch.cat(split()[:2])
    return everything.amin(0), everything.amax(0)


def load() -> Samples:
    """The test set with its labels as what to explain."""
    _, test, _, labels = split()
    return Samples(test, labels, bounds(), {"features": list(NAMES)})


def references(count: int = 50) -> Tensor:
    """Rows of the training set, `(count, 30)`: what explainers and metrics put in place of a value."""
    return split()[0][:count]


def build(epochs: int = 60) -> nn.Module:
    """A network of two hidden layers, trained in a second or two; the same on every call with as many threads."""
    train, _, labels, _ = split()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = nn.Sequential(
            nn.Linear(30, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 2)
        )
        optimiser = torch.optim.AdamW(module.parameters(), lr=3e-3, weight_decay=0.05)
        for _ in range(epochs):
            for rows in torch.randperm(len(train)).split(64):
                optimiser.zero_grad()
                nn.functional.cross_entropy(module(train[rows]), labels[rows]).backward()
                optimiser.step()
    return module.eval()


def load_in_units() -> Samples:
    """The same rows in the units of the table."""
    mean, std = units()
    lower, upper = (bound * std + mean for bound in bounds())
    _, test, _, labels = split()
    rows = torch.minimum(torch.maximum(test * std + mean, lower), upper)
    return Samples(rows, labels, (lower, upper), {"features": list(NAMES)})


def units() -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each feature, `(30,)` each: those by which the rows are standardised."""
    table, labels = load_breast_cancer(return_X_y=True)
    parts = train_test_split(table, labels, test_size=0.3, random_state=0, stratify=labels)
    train = torch.tensor(parts[0], dtype=torch.float32)
    return train.mean(0), train.std(0)


class Standardise(nn.Module):
    """Rows in the units of the table, standardised."""

    def __init__(self) -> None:
        super().__init__()
        mean, std = units()
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)

    def forward(self, rows: Tensor) -> Tensor:
        return (rows - self.mean) / self.std


def build_in_units() -> nn.Module:
    """The network for rows in the units of the table."""
    return nn.Sequential(Standardise(), *build()).eval()


def natural_changes(prior: str = "copula") -> standfast.neighbourhoods.TableChanges:
    """Other values that a nucleus might have, for standardised rows: what is "worst" is at least its mean."""
    kinds = [name.removeprefix("mean ") for name in NAMES[:10]]
    rules = tuple(f"`mean {kind}` <= `worst {kind}`" for kind in kinds)
    mean, std = (tuple(values.tolist()) for values in units())
    return standfast.neighbourhoods.TableChanges(
        "any", columns=NAMES, rules=rules, units=(mean, std), data=split()[0], prior=prior
    )


def evaluate(samples: int = 20, budget: int = 500) -> standfast.Results:
    """Four explainers by four metrics on the first samples of the test set."""
    model = standfast.Model(build(), bounds())
    explainers = {
        "integrated gradients": standfast.explainers.get("integrated_gradients", steps=32),
        "DeepSHAP": standfast.explainers.get("deep_shap", background=references()),
        "KernelSHAP": standfast.explainers.get("kernel_shap", samples=300, segments="pixels"),
        "LIME": standfast.explainers.get("lime", samples=300, segments="pixels", output="logit"),
    }
    ball = standfast.LinfBall(radius=0.1)  # a tenth of a standard deviation, in every feature
    metrics = [
        standfast.metrics.WorstCase(
            ball, event="changed_explanation", similarity="spearman", budget=budget
        ),
        standfast.metrics.MaxSensitivity(ball, samples=20, normalise=True),
        standfast.metrics.CorruptionCurve(replacement="sample", background=references(), samples=3),
        standfast.metrics.DataSensitivityConsistency(masks=200),
    ]
    return standfast.evaluate(model, explainers, split()[1][:samples], metrics)


def fit_trees() -> HistGradientBoostingClassifier:
    """Gradient-boosted trees of the same rows; the same on every call."""
    train, _, labels, _ = split()
    return HistGradientBoostingClassifier(random_state=0).fit(train.numpy(), labels.numpy())


def explain_trees() -> dict[str, standfast.explainers.Explainer]:
    """What needs predictions, or the trees themselves."""
    own = {"segments": "pixels", "samples": 300, "output": "logit"}
    return {
        "TreeSHAP": standfast.explainers.get("shap:TreeExplainer", background=references()),
        "TreeSHAP, path-dependent": standfast.explainers.get("shap:TreeExplainer"),
        "KernelSHAP": standfast.explainers.get("kernel_shap", **own),
        "permutations": standfast.explainers.get(
            "shapley_sampling", segments="pixels", permutations=10
        ),
        "LIME": standfast.explainers.get("lime", **own),
        "occlusion": standfast.explainers.get("occlusion"),
    }


def evaluate_trees(samples: int = 20, budget: int = 500) -> standfast.Results:
    """Six explainers of the trees, by metrics that need no gradients, on the first samples of the test set."""
    model = standfast.Model.from_callable(fit_trees().predict_proba, bounds())
    ball = standfast.LinfBall(radius=0.1)
    options = {"event": "changed_explanation", "similarity": "spearman", "budget": budget}
    metrics = {
        "worst case, ball": standfast.metrics.WorstCase(ball, **options),
        "worst case, natural": standfast.metrics.WorstCase(natural_changes(), **options),
        "max sensitivity": standfast.metrics.MaxSensitivity(ball, samples=20, normalise=True),
        "corruption curve": standfast.metrics.CorruptionCurve(
            replacement="sample", background=references(), samples=3
        ),
    }
    return standfast.evaluate(
        model, explain_trees(), split()[1][:samples], metrics, samples_per_job=samples
    )


def main_trees() -> None:
    """The accuracy of the trees on the test set, the table and the verdict."""
    _, test, _, labels = split()
    print(f"accuracy on the test set: {fit_trees().score(test.numpy(), labels.numpy()):.3f}")
    print(evaluate_trees())


def main(folder: Path = Path("results/tabular")) -> None:
    """Which features matter most for the first sample, the report, and the verdict."""
    model = standfast.Model(build(), bounds())
    _, test, _, labels = split()
    print(f"accuracy on the test set: {(model.predict(test) == labels).float().mean():.3f}")
    maps = standfast.explainers.get("integrated_gradients", steps=32)(model, test[:1])
    for feature in maps[0].abs().argsort(descending=True)[:5].tolist():
        print(f"{NAMES[feature]:25} {maps[0, feature]:+.3f}")
    folder.mkdir(parents=True, exist_ok=True)
    found = evaluate()
    found.to_html(folder / "index.html")
    print(f"report: {folder / 'index.html'}")
    print(found.verdict())


if __name__ == "__main__":
    main_trees() if sys.argv[1:] == ["trees"] else main()
