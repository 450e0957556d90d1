"""Answers of a language model: passes and CPU time against a bare loop, memory, and what a shared prefix brings.

    python benchmarks/answers/passes.py --folder FOLDER [--ablations 16]

FOLDER is where `examples/answers.py` keeps SmolLM2-135M-Instruct. Without it, a Llama of random weights and the same
sizes is used, which costs the same. CPU seconds of the process, on two threads; nothing depends on other programs.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import standfast
from standfast.neighbourhoods.text import GONE

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
import answers as example

LONG = 2000  # tokens


def measure(function: Callable[[], Any]) -> tuple[Any, float]:
    """What a function returns, and its CPU seconds."""
    began = time.process_time()
    found = function()
    return found, time.process_time() - began


def list_ids(
    model: standfast.AnswerModel, prompt: standfast.Prompt, rows: Tensor
) -> tuple[list[list[int]], int, int]:
    """The tokens of each context with the answer; how many tokens all have at their beginning; and of the answer."""
    written = model.write(prompt)
    box = model._box.bind_prompt(written)
    readings = box.reader.read(rows.numpy())
    shared = min(reading.first for reading in readings)
    return [reading.ids.tolist() for reading in readings], shared, len(written.answer)


def score_bare(network: Any, ids: list[list[int]], answer: int) -> list[float]:
    """The log-probability of each answer, row by row, without padding: the bare loop."""
    scores = []
    for own in ids:
        with torch.no_grad():
            logits = network(torch.tensor([own]), logits_to_keep=answer + 1).logits[0, :-1]
        scores.append(float(logits.log_softmax(1)[range(answer), own[-answer:]].sum()))
    return scores


def score_with_prefix(network: Any, ids: list[list[int]], shared: int, answer: int) -> list[float]:
    """The same behind a prefix that is run once."""
    scores = []
    with torch.no_grad():
        cache = network(
            torch.tensor([ids[0][:shared]]), use_cache=True, logits_to_keep=1
        ).past_key_values
        for own in ids:
            rest = torch.tensor([own[shared:]])
            logits = network(rest, past_key_values=cache, logits_to_keep=answer + 1).logits[0, :-1]
            cache.crop(shared - len(own))  # so many tokens are removed at its end
            scores.append(float(logits.log_softmax(1)[range(answer), own[-answer:]].sum()))
    return scores


def main() -> None:
    """Print all numbers."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--ablations", type=int, default=16)
    options = parser.parse_args()
    model = example.load(options.folder)
    prompt = standfast.Prompt(
        example.QUESTION,
        example.DOCUMENTS,
        answer="The bridge was designed by Marta Lindqvist and opened in 1931.",
    )
    bound, row = model.bind(prompt)
    generator = torch.Generator().manual_seed(0)
    kept = torch.rand(options.ablations, row.shape[1], generator=generator) < 0.5
    rows = torch.where(kept, row, float(GONE))
    ids, shared, answer = list_ids(model, prompt, rows)
    total = sum(map(len, ids))
    print(
        f"{options.ablations} ablations of {row.shape[1]} sentences: {total / len(ids):.0f} tokens each"
    )
    print(f"  of these {shared} are shared, {answer} are of the answer")
    outputs, ours = measure(lambda: bound.logits(rows)[:, 0])
    bare, seconds = measure(lambda: score_bare(model.model, ids, answer))
    difference = float((outputs - torch.tensor(bare)).abs().max())
    print(
        f"ours {ours:.1f} s, the bare loop {seconds:.1f} s ({total / seconds:.0f} tokens a s): {seconds / ours:.2f}"
    )
    print(f"largest difference {difference:.1e} nats")
    again, memory = measure(lambda: bound.logits(rows)[:, 0])
    print(f"the same contexts again: {memory:.2f} s, the same bits: {torch.equal(again, outputs)}")
    cached, with_prefix = measure(lambda: score_with_prefix(model.model, ids, shared, answer))
    difference = float((torch.tensor(cached) - torch.tensor(bare)).abs().max())
    print(
        f"with a shared prefix {with_prefix:.1f} s: {seconds / with_prefix:.2f} times as fast, {difference:.1e} nats"
    )
    long = standfast.Prompt(
        example.QUESTION, list(example.DOCUMENTS) * (LONG // 122), answer=prompt.answer
    )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    bound, row = model.bind(long)
    ids, _, _ = list_ids(model, long, row)
    _, seconds = measure(
        lambda: bound.logits(torch.where(torch.rand(2, row.shape[1]) < 0.9, row, float(GONE)))
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    more, whole = (peak - before) / 2**20, peak / 2**20
    print(f"a prompt of {len(ids[0])} tokens: {more:.2f} GB more at most ({whole:.2f} GB in all)")
    print(f"  {seconds / 2:.1f} s a context")


if __name__ == "__main__":
    main()
