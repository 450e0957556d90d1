"""Stored studies made by hand, for the tests of the report."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import polars as pl
import torch

from standfast.report import Results, build_html, load_results
from standfast.study.store import Store, pack, pack_failure

BALL = {"norm": "LinfBall", "radius": 0.1, "distribution": "uniform", "sigma": None}
COMMON = {
    "neighbourhood": BALL,
    "similarity": "pearson",
    "threshold": None,
    "explain": "predicted",
    "margin": "logit",
}
WORST, WORST_CLASS = "worst_case: changed_explanation", "worst_case: changed_class"
PROB, PROB_CLASS = "probability: changed_explanation", "probability: changed_class"
#: values of a dozen samples
GOOD, BAD = [0.9 + 0.001 * n for n in range(12)], [0.2 + 0.001 * n for n in range(12)]


class Builder:
    """A store that is filled job by job; names are remembered in the order of their first use."""

    def __init__(self, folder: Path) -> None:
        self.store = Store(folder)
        self.jobs: list[str] = []
        self.names: dict[str, dict[str, Any]] = {
            key: {} for key in ("data", "models", "explainers", "metrics")
        }
        self.repeats = 1
        self.extra: dict[str, Any] = {}

    def job(
        self,
        explainer: str,
        metric: str,
        label: str,
        options: dict[str, Any],
        frame: dict[str, Any] | None,
        tensors: dict[str, torch.Tensor] | None = None,
        *,
        data: str = "digits",
        model: str = "lenet",
        repeat: int = 0,
        start: int = 0,
        stop: int = 0,
        error: tuple[str, str] = ("ValueError: no", "Traceback"),
        stored: dict[str, Any] | None = None,
    ) -> None:
        bounds = [[0.0, 0.0], [1.0, 1.0]]
        self.names["data"].setdefault(
            data, {"samples": 4, "input_shape": [1, 6, 6], "bounds": bounds}
        )
        self.names["models"].setdefault(model, {"module": "LeNet5", "parameters": 61706})
        self.names["explainers"].setdefault(explainer, {"name": explainer, "steps": 7})
        entry = {"metric": metric, "direction": "higher", "citation": "huang2023safari"}
        self.names["metrics"].setdefault(label, {**entry, "options": options, **(stored or {})})
        self.repeats = max(self.repeats, repeat + 1)
        self.jobs.append(f"j{len(self.jobs):04d}")
        where = {
            "data": data,
            "model": model,
            "explainer": explainer,
            "label": label,
            "metric": metric,
            "repeat": repeat,
        }
        record = {"job": self.jobs[-1], **where, "start": start, "stop": stop, "seconds": 1.5}
        if frame is None:
            self.store.put(pack_failure(record, *error))
            return
        rows = pl.DataFrame(frame).select(*(pl.lit(v).alias(k) for k, v in where.items()), pl.all())
        record["stop"] = start + len(rows)
        self.store.put(pack(record, rows, tensors or {}))

    def worst(
        self,
        explainer: str,
        similarity: list[float],
        *,
        event: str = "changed_explanation",
        margin: list[float] | None = None,
        status: list[str] | None = None,
        shape: tuple[int, ...] = (1, 6, 6),
        steps: int = 4,
        label: str | None = None,
        gradients: bool | None = None,
        more: dict[str, list[Any]] | None = None,
        arrays: dict[str, torch.Tensor] | None = None,
        **where: Any,
    ) -> None:
        n, generator = len(similarity), torch.Generator().manual_seed(len(self.jobs))
        status, margin = status or ["ok"] * n, margin or [-1.0] * n
        held = [(m < 0) == (event == "changed_explanation") for m in margin]
        ok = [s == "ok" for s in status]
        bad = [s < 0.4 if event == "changed_explanation" else s > 0.6 for s in similarity]
        frame = {
            **base(status, where.get("start", 0)),
            "value": margin if event == "misclassification" else similarity,
            "similarity": similarity,
            "margin": margin,
            "found": [h and o for h, o in zip(held, ok, strict=True)],
            "misinterpreted": [h and o and b for h, o, b in zip(held, ok, bad, strict=True)],
            "sens_max": [float("nan")] * n,
            "predicted": [5 if m >= 0 else 3 for m in margin],
            **(more or {}),
        }
        tensors = {
            k: torch.rand(n, *shape, generator=generator)
            for k in ("origins", "inputs", "origin_maps", "maps")
        }
        line = torch.linspace(1, 0, steps, dtype=torch.float64).expand(n, steps).clone()
        line[~torch.tensor(ok)] = torch.nan
        tensors |= arrays or {}
        tensors |= {
            "trace_evaluations": (10 * torch.arange(1, steps + 1)).expand(n, steps),
            "trace_similarity": line,
            "trace_margin": torch.tensor(margin)[:, None].expand(n, steps).double(),
        }
        options = {"absolute": True, **COMMON, "event": event}
        if gradients is not None:
            options["search"] = "auto"
            frame["followed_gradients"] = [gradients and o for o in ok]
        self.job(
            explainer,
            "worst_case",
            label or f"worst_case: {event}",
            options,
            frame,
            tensors,
            **where,
        )

    def probability(
        self,
        explainer: str,
        values: list[float],
        *,
        event: str = "changed_explanation",
        censored: list[bool] | None = None,
        status: list[str] | None = None,
        width: float = 0.5,
        stalled: bool = False,
        radius: float = 0.1,
        more: dict[str, list[float]] | None = None,
        **where: Any,
    ) -> None:
        n = len(values)
        status, censored = status or ["ok"] * n, censored or [False] * n
        frame = {
            **base(status, where.get("start", 0)),
            "value": values,
            "log_probability": values,
            "std_error": [float("nan") if c else width / 1.96 for c in censored],
            "low": [
                float("-inf") if c else v - width for v, c in zip(values, censored, strict=True)
            ],
            "high": [v if c else v + width for v, c in zip(values, censored, strict=True)],
            "censored": censored,
            "bound": censored,
            "stalled": [stalled] * n,
            **(more or {}),
        }
        stage = (
            [[1.0, 1.0, 2.0, float("nan")]] * n
            if event != "misclassification"
            else [[0.0, 0.0, 1.0, 0.0]] * n
        )
        tensors = {
            "level_stage": torch.tensor(stage, dtype=torch.float64),
            "level_threshold": torch.tensor(
                [[0.0, -0.2, 0.0, float("nan")]] * n, dtype=torch.float64
            ),
            "level_log_probability": torch.tensor(
                [[-1.0, -3.0, -5.0, float("nan")]] * n, dtype=torch.float64
            ),
            "level_low": torch.tensor([[-1.2, -3.4, -5.6, float("nan")]] * n, dtype=torch.float64),
            "level_high": torch.tensor([[-0.8, -2.6, -4.4, float("nan")]] * n, dtype=torch.float64),
        }
        options = {
            "absolute": True,
            **COMMON,
            "event": event,
            "neighbourhood": {**BALL, "radius": radius},
        }
        label = f"probability: {event}"
        self.job(
            explainer, "misinterpretation_probability", label, options, frame, tensors, **where
        )

    def other(self, explainer: str, values: list[float | None], **where: Any) -> None:
        frame = {**base(["ok"] * len(values)), "value": values}
        self.job(explainer, "new_metric", "new metric", {"samples": 3}, frame, **where)

    def checks(
        self,
        explainer: str,
        *,
        excess: float = 0.5,
        removal: Sequence[float] = (0.9, 1.0),
        unrelated: float = 0.1,
        label: str = WORST,
        samples: int = 12,
        **where: Any,
    ) -> None:
        """The sanity checks of an explainer, which pass by default, and its references by a metric of similarity."""
        frame = {
            **base(["ok"] * samples),
            "value": [excess] * samples,
            "within": [excess] * samples,
            "scrambled": [0.1] * samples,
            "removal": [removal[n % len(removal)] for n in range(samples)],
            "learned": [0.9] * samples,
            "other_class": [0.2] * samples,
            "negative": [False] * samples,
            "linear": [False] * samples,
            "classes": [10] * samples,
            f"identical {label}": [1.0] * samples,
            f"unrelated {label}": [unrelated] * samples,
        }
        self.job(explainer, "sanity", "sanity", {}, frame, **where)
        del self.names["metrics"]["sanity"]
        self.extra["sanity"] = {"samples": samples, "rules": 1}

    def failure(self, explainer: str, traceback: str, **where: Any) -> None:
        options = {"absolute": True, **COMMON, "event": "changed_explanation"}
        self.job(
            explainer,
            "worst_case",
            WORST,
            options,
            None,
            stop=2,
            error=("ValueError: no", traceback),
            **where,
        )

    def results(self, **about: str) -> Results:
        self.store.write_manifest(
            {
                "seed": 7,
                "repeats": self.repeats,
                **self.names,
                "about": about,
                "environment": {
                    "standfast": "0",
                    "torch": "2",
                    "python": "3",
                    "packages": {"numpy": "2"},
                },
                "jobs": self.jobs,
                **self.extra,
            }
        )
        return load_results(self.store)

    def found(self, samples: int = 12) -> Results:
        """The results, in which each data set has so many samples."""
        self.names["data"] = {
            name: {**about, "samples": samples} for name, about in self.names["data"].items()
        }
        return self.results()

    def two(self) -> Results:
        """One explainer that is better on every sample, and one that failed."""
        self.worst("steady", GOOD)
        self.worst("shaky", BAD)
        self.failure("broken", "Traceback")
        return self.found()

    def page(self, **about: str) -> str:
        return build_html(self.results(**about))


def base(status: list[str], start: int = 0) -> dict[str, Any]:
    n = len(status)
    return {
        "sample": range(start, start + n),
        "status": status,
        "targets": [3] * n,
        "model_evaluations": [100] * n,
        "degenerate": [0] * n,
        "nonfinite": [0] * n,
    }


#: two data sets and two models
PAIRS = (("digits", "lenet"), ("digits", "wide net"), ("series", "lenet"))


def study(
    folder: Path,
    samples: int = 8,
    explainers: int = 3,
    pairs: Sequence[tuple[str, str]] = PAIRS,
) -> Builder:
    """Pairs of data and model, several explainers, four labels: values that are told apart, some censored."""
    builder, rng = Builder(folder), np.random.default_rng(0)
    names = [
        "saliency",
        "integrated gradients",
        "Grad-CAM",
        "DeepLift",
        "guided backprop",
        "random",
    ][:explainers]
    for data, model in pairs:
        shape = (2, 12) if data == "series" else (1, 6, 6)
        for place, name in enumerate(names):
            where = {"data": data, "model": model}
            noise = rng.normal(0, 0.08, samples)
            builder.worst(name, (0.2 + 0.25 * place + noise).tolist(), shape=shape, **where)
            flipped = (rng.random(samples) < 0.8).tolist()
            margin = [0.4 if f else -0.3 for f in flipped]
            builder.worst(
                name,
                (0.7 + noise).tolist(),
                event="changed_class",
                margin=margin,
                shape=shape,
                **where,
            )
            values = np.maximum(-20.0, -4.0 - 6 * place + 20 * noise)
            builder.probability(name, values.tolist(), censored=(values <= -20.0).tolist(), **where)
            builder.other(name, (place + noise).tolist(), **where)
    builder.failure("integrated gradients", "Traceback: it broke", data="series", model="lenet")
    return builder


class Checker(HTMLParser):
    """Tags that do not fit, ids, targets, headings, and what would be loaded."""

    VOID: ClassVar[set[str]] = {"meta", "link", "img", "br", "wbr", "hr", "input"}

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.problems: list[str] = []
        self.ids: list[str] = []
        self.targets: list[str] = []
        self.heads: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if values.get("id"):
            self.ids.append(str(values["id"]))
        link = values.get("href") or ""
        if tag in ("a", "use") and link.startswith("#"):
            self.targets.append(link[1:])
        sources = [
            values.get(name) or ""
            for name in ("src", "srcset", "poster", "data", "action", "xlink:href")
        ]
        if tag not in ("a",):
            sources.append(link)
        self.loads += [
            source for source in sources if source and not source.startswith(("data:", "#"))
        ]
        if re.fullmatch("h[1-6]", tag):
            self.heads.append(tag)
        if tag == "img" and not values.get("alt"):
            self.problems.append("an image without words")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.problems.append(f"</{tag}> closes nothing")


def without_bundle(page: str) -> str:
    return re.sub(r'<script type="module">.*?</script>', "", page, flags=re.DOTALL)


def assert_whole(page: str) -> None:
    checker = Checker()
    checker.feed(page)
    checker.close()
    assert checker.problems == []
    assert checker.open == []
    assert len(set(checker.ids)) == len(checker.ids)
    assert set(checker.targets) <= set(checker.ids)
    assert checker.heads.count("h1") == 1
    assert checker.loads == []
    head = page.split("</head>")[0]
    assert '<meta name="standfast-report" content="complete">' in head
    assert "default-src 'none'" in head
    assert page.splitlines()[-1] == "<!-- standfast report: complete -->"
    assert "@import" not in without_bundle(page)
    assert "url(" not in head
    for content in re.findall(
        r'<script type="application/json"[^>]*>(.*?)</script>', page, flags=re.DOTALL
    ):
        json.loads(content)
