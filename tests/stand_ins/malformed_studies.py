"""Study files with something wrong: `MALFORMED` by name, each with what the error must say.

`prepare` writes the files beside them that they name.
"""

from __future__ import annotations

import io
import pickle
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn

MODULE = """\
import torch
from torch import nn


def load(n=4):
    return torch.rand(n, 1, 28, 28), torch.arange(n) % 10


def build(width=4):
    return nn.Sequential(nn.Flatten(), nn.Linear(784, width), nn.ReLU(), nn.Linear(width, 10))


def small():
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 3))


def broken(**options):
    raise RuntimeError("the disk\\nis on fire")


def text():
    return "no model"


def angry():
    return Angry()


class Angry(nn.Module):
    def forward(self, x):
        raise KeyError("not today")


def explain(module, inputs, targets):
    return inputs


LIMIT = 3
"""


def study(**sections: str) -> str:
    """A study that is fine but for the sections given; an empty one is left out. Sections begin at lines 1, 2, ..."""
    content = {
        "data": "{digits: digits}",
        "models": "{lenet: lenet5-mnist}",
        "samples": "2",
        "neighbourhood": "{linf: 0.1}",
        "explainers": "[saliency]",
        "metrics": "[max_sensitivity]",
        **sections,
    }
    return "".join(f"{key}: {value}\n" for key, value in content.items() if value)


class Evil:
    """Writes a file when it is unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = str(target)

    def __reduce__(self) -> tuple[object, ...]:
        return (open, (self.target, "w"))


def prepare(folder: Path) -> None:
    """Write the files that the studies name into `folder`."""
    (folder / "malformed_module.py").write_text(MODULE)
    (folder / "malformed_syntax.py").write_text("def load(:\n")
    (folder / "malformed_import.py").write_text("import there_is_no_such_module\n")
    x = np.full((4, 1, 28, 28), 0.5, dtype=np.float32)
    np.savez(folder / "good.npz", inputs=x, labels=np.arange(4))
    np.savez(folder / "names.npz", pictures=x)
    np.savez(folder / "wild.npz", inputs=3 * x)
    np.savez(folder / "uneven.npz", inputs=x, labels=np.arange(3))
    np.savez(folder / "high.npz", inputs=x, labels=np.full(4, 99))
    np.save(folder / "nan.npy", np.full_like(x, np.nan))
    np.save(folder / "objects.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    np.save(folder / "whole.npy", np.ones((4, 5), dtype=np.int64))
    (folder / "broken.npz").write_bytes(b"PK\x03\x04 and no more")
    (folder / "broken.safetensors").write_bytes(b"\x08\x00\x00\x00\x00\x00\x00\x00{nonsens")
    (folder / "notes.txt").write_text("nothing to see")
    for name, sizes in (("uneven", (8, 9)), ("empty", ()), ("corrupt", (8,))):
        (folder / f"{name}_images").mkdir()
        for size in sizes:
            Image.new("L", (size, size)).save(folder / f"{name}_images" / f"{size}.png")
    (folder / "corrupt_images" / "bad.png").write_bytes(b"\x89PNG and no more")
    net = nn.Sequential(nn.Flatten(), nn.Linear(784, 9), nn.ReLU(), nn.Linear(9, 10))
    save_file(net.state_dict(), folder / "wide.safetensors")
    torch.save(net.state_dict(), folder / "weights.pt")
    torch.save(Evil(folder / "executed"), folder / "evil.pt")
    (folder / "evil_old.pt").write_bytes(pickle.dumps(Evil(folder / "executed")))
    program = torch.export.export(net, (torch.rand(2, 1, 28, 28),))
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    (folder / "static.pt2").write_bytes(buffer.getvalue())


def _data(entry: str) -> str:
    return study(data=f"{{digits: digits, mine: {entry}}}")


def _model(entry: str) -> str:
    return study(models=f"\n  lenet: lenet5-mnist\n  mine: {entry}")


def _metric(options: str) -> str:
    return study(metrics=f"\n  - max_sensitivity\n  - worst_case: {options}")


_M = "malformed_module"

#: name -> (the file, what the error must say)
MALFORMED: dict[str, tuple[str, str]] = {
    # YAML
    "empty": ("", "expected a study: data, models, explainers and metrics, got an empty file"),
    "too large": ("# " + "x" * 500_000 + "\n", "it has 500,003 bytes, and may have 500,000"),
    "comment only": ("# nothing yet\n", "got an empty file"),
    "no mapping": ("- digits\n- lenet5-mnist\n", "the file: expected a mapping, got ['digits', "),
    "open bracket": (study(explainers="[saliency"), "(line 6): expected YAML"),
    "tab": (study(explainers="\n\t- saliency"), "(line 6): expected YAML, got found character"),
    "colon in a value": (study(title="robust: or not"), "(line 7): expected YAML, got mapping values are not allowed"),
    "key twice": (study() + "samples: 3\n", '(line 7): expected YAML, got found duplicate key "samples"'),
    "label twice": (study(data="{a: digits, a: digits}"), 'found duplicate key "a"'),
    "tag": (study(title="!!python/object:os.system x"), "could not determine a constructor"),
    "alias to itself": (study(explainers="&a [*a]"), "alias"),
    "two documents": (study() + "---\n" + study(), "another document"),
    "unknown alias": (study(explainers="*mine"), "undefined alias 'mine'"),
    # top level
    "nothing required": ("title: an idea\n", "metrics: expected a value, got nothing"),
    "unknown key": (study(sede="1"), "sede (line 7): expected a known key (title, seed, "),
    "unknown key, near": (study(sample_per_job="1"), "(did you mean 'samples_per_job'?)"),
    "key that is no text": (study() + "3: 4\n", "the file: expected keys as text, got 3"),
    "seed": (study(seed="first"), "seed (line 7): expected a whole number, got 'first'"),
    "negative seed": (study(seed="-1"), "seed (line 7): expected a number of at least 0, got -1"),
    "repeats": (study(repeats="0"), "repeats (line 7): expected a number of at least 1, got 0"),
    "samples": (study(samples="2.5"), "samples (line 3): expected a whole number, got 2.5"),
    "samples as truth": (study(samples="true"), "expected a whole number, got true"),
    "too many samples": (study(samples="1000"), "data.digits (line 1): expected at most the 300 samples"),
    "device": (study(device="gpu"), "device (line 7): expected auto, cpu, cuda"),
    "title": (study(title="[a]"), "title (line 7): expected a text, got ['a']"),
    # data
    "no data": (study(data="{}"), "data (line 1): expected at least one data set, got an empty mapping"),
    "data as text": (study(data="digits"), "data (line 1): expected a list of data, or a mapping from labels to data"),
    "unknown data": (study(data="{d: digit}"), "data.d (line 1): expected a data set (cifar10:test, "),
    "unknown data, near": (study(data="{d: minst:test}"), "(did you mean 'mnist:test'?)"),
    "file as name": (study(data="{d: good.npz}"), "files stand under path:"),
    "two sources": (_data("{path: good.npz, function: 'a:b'}"), "data.mine (line 1): expected a data set with exactly"),
    "unknown key of data": (_data("{path: good.npz, boundz: [0, 1]}"), "boundz (line 1): expected a known key"),
    "size of arrays": (_data("{function: 'a:b', size: [2, 2]}"), "data.mine.size (line 1): expected a known key"),
    "bounds": (_data("{path: good.npz, bounds: [1, 0]}"), "data.mine.bounds (line 1): expected a lower and a higher"),
    "targets": (_data("{path: good.npz, targets: label}"), "expected predicted or labels, got 'label' (did you mean"),
    "no file": (_data("{path: bad.npz}"), "data.mine.path (line 1): expected a file or a folder that exists"),
    "kind of file": (_data("{path: notes.txt}"), "expected a .npz, .npy, .safetensors, .csv, .ts or .tsv file"),
    "names of arrays": (_data("{path: names.npz}"), "expected an array called inputs or x, got names.npz"),
    "outside the bounds": (_data("{path: wild.npz}"), "data.mine.bounds (line 1): expected the range of the values"),
    "uneven labels": (_data("{path: uneven.npz, targets: labels}"), "expected as many labels as inputs (4), got 3"),
    "no labels": (_data("{path: whole.npy, targets: labels}"), "expected inputs as floats or uint8, got values"),
    "not finite": (_data("{path: nan.npy}"), "expected finite values (impute missing ones"),
    "pickled array": (_data("{path: objects.npy}"), "Python objects, which are refused because they could run code"),
    "broken archive": (_data("{path: broken.npz}"), "expected a .npz file of numbers, got broken.npz"),
    "broken safetensors": (_data("{path: broken.safetensors}"), "expected a .safetensors file of numbers"),
    "images of two sizes": (_data("{path: uneven_images}"), "got 8 x 8 (8.png) and 9 x 9 (9.png)"),
    "no images": (_data("{path: empty_images}"), "got none in empty_images"),
    "no image": (_data("{path: corrupt_images}"), "expected images that Pillow can read, got bad.png"),
    "size of images": (_data("{path: uneven_images, size: 8}"), "data.mine.size (line 1): expected [height, width]"),
    "form of function": (_data("{function: malformed_module.load}"), "expected a function, as module:function, got"),
    "no module": (_data("{function: 'malformed_modul:load'}"), "(did you mean 'malformed_module'?)"),
    "no function": (_data(f"{{function: '{_M}:laod'}}"), "got 'laod' (did you mean 'load'?)"),
    "syntax error": (_data("{function: 'malformed_syntax:load'}"), "(malformed_syntax.py, line 1)"),
    "failing import": (_data("{function: 'malformed_import:load'}"), "No module named 'there_is_no_such_module'"),
    "failing function": (_data(f"{{function: '{_M}:broken'}}"), "RuntimeError: the disk is on fire"),
    "options of function": (_data(f"{{function: '{_M}:load', options: {{m: 3}}}}"), "unexpected keyword argument 'm'"),
    "result of function": (_data(f"{{function: '{_M}:text'}}"), "expected inputs as a tensor or an array, got str"),
    "data nobody meets": (
        study(data="{digits: digits, other: digits}", models="{lenet: {lenet5-mnist: {data: [digits]}}}"),
        "data.other (line 1): expected data that a model meets, got none that does",
    ),
    # models
    "no models": (study(models=""), "models: expected a value, got nothing"),
    "null models": (study(models="null"), "models (line 2): expected at least one model, got nothing"),
    "unknown model": (study(models="{m: lenet5_mnist}"), "models.m (line 2): expected a model"),
    "unknown model, near": (study(models="{m: lenet-mnist}"), "(did you mean 'lenet5-mnist'?)"),
    "data of model": (
        _model("{lenet5-mnist: {data: [digit]}}"),
        "models.mine.lenet5-mnist.data[0] (line 4): expected the name",
    ),
    "misspelt source": (_model(f"{{functoin: '{_M}:build'}}"), "(did you mean 'function'?)"),
    "weights of the zoo": (_model("{lenet5-mnist: {weights: a.pt}}"), "weights (line 4): expected a known key"),
    "no weights": (_model(f"{{function: '{_M}:build', weights: none.pt}}"), "no such file or directory"),
    "weights that do not fit": (
        _model(f"{{function: '{_M}:build', weights: wide.safetensors}}"),
        "models.mine.weights (line 4): expected weights that fit the Sequential, got some with 1.weight [9, 784]",
    ),
    "other weights": (_model(f"{{function: '{_M}:small', weights: wide.safetensors}}"), "with unknown 3.bias"),
    "code for weights": (_model(f"{{function: '{_M}:build', weights: evil.pt}}"), "which is not loaded since that"),
    "code for weights, old": (_model(f"{{function: '{_M}:build', weights: evil_old.pt}}"), "models.mine.weights (line"),
    "text for weights": (_model(f"{{function: '{_M}:build', weights: notes.txt}}"), "expected a safetensors file, or"),
    "weights for a program": (_model("{path: weights.pt}"), "which looks like weights: those go with a function"),
    "text for a program": (_model("{path: notes.txt}"), "models.mine.path (line 4): expected a TorchScript or"),
    "fixed batch": (_model("{path: static.pt2, trust: true}"), "expected a program with a dynamic batch"),
    "export without trust": (_model("{path: static.pt2}"), "expected trust: true beside static.pt2, because opening"),
    "no module from function": (_model(f"{{function: '{_M}:text'}}"), "predict_proba, or a standfast.Model, got a str"),
    "number for function": (_model(f"{{function: '{_M}:LIMIT'}}"), "expected a function that returns a model"),
    "shapes": (_model(f"{{function: '{_M}:small'}}"), "models.mine (line 4): expected a model that takes samples"),
    "failing model": (_model(f"{{function: '{_M}:angry'}}"), "KeyError: 'not today' (malformed_module.py, line"),
    "labels beyond the classes": (study(data="{high: {path: high.npz, targets: labels}}"), "models.lenet (line 2)"),
    "preprocess": (
        _model("{lenet5-mnist: {preprocess: normalise}}"),
        "expected a mapping or a function, as module:function",
    ),
    "misspelt std": (_model("{lenet5-mnist: {preprocess: {mean: 0, sdt: 1}}}"), "(did you mean 'std'?)"),
    "std": (_model("{lenet5-mnist: {preprocess: {mean: 0, std: 0}}}"), "expected a number above 0"),
    "channels": (_model("{lenet5-mnist: {preprocess: {mean: [0, 0, 0], std: 1}}}"), "lenet5-mnist.preprocess.mean"),
    # explainers
    "no explainers": (study(explainers="[]"), "explainers (line 5): expected at least one explainer, got an empty"),
    "explainer as text": (study(explainers="saliency"), "expected a list of explainers"),
    "unknown explainer": (study(explainers="[lrp, salience]"), "explainers[1] (line 5): expected an explainer"),
    "unknown explainer, near": (study(explainers="[salience]"), "got 'salience' (did you mean 'saliency'?)"),
    "unknown option": (
        study(explainers="\n  - integrated_gradients: {step: 4}"),
        "explainers[0].integrated_gradients.step (line 6): expected a known key (steps, ",
    ),
    "option in text": (study(explainers="['integrated_gradients:step=4']"), "(did you mean 'steps'?)"),
    "type of option": (study(explainers="[smoothgrad: {samples: many}]"), "explainers[0].smoothgrad.samples (line 5)"),
    "range of option": (study(explainers="[smoothgrad: {noise: -1}]"), "expected a finite number of at least 0"),
    "choice of option": (study(explainers="[gradcam: {interpolation: liner}]"), "got 'liner' (did you mean 'linear'?)"),
    "explainer twice": (
        study(explainers="[lrp, saliency, lrp]"),
        "expected explainers that differ, or a label of its own for each, got 'lrp'",
    ),
    "options not beneath": (
        study(explainers="\n  - lrp:\n    epsilon: 1"),
        "expected an explainer: its name, or its options",
    ),
    "label without a name": (
        study(explainers="{mine: {epsilon: 1}}"),
        "explainers.mine.epsilon (line 5): expected an explainer",
    ),
    "function of explainer": (study(explainers=f"[function: '{_M}:explian']"), "(did you mean 'explain'?)"),
    # metrics
    "empty metrics": (study(metrics="{}"), "metrics (line 6): expected at least one metric, got an empty mapping"),
    "unknown metric": (study(metrics="[worst_cas]"), "metrics[0] (line 6): expected a metric"),
    "unknown metric, near": (study(metrics="{a: max_sensitivty}"), "(did you mean 'max_sensitivity'?)"),
    "range of metric's option": (
        _metric("{budget: -3}"),
        "metrics[1].worst_case.budget (line 8): expected a whole number of at least 3, got -3",
    ),
    "metric's option": (_metric("{buget: 3}"), "got 'buget' (did you mean 'budget'?)"),
    "event": (_metric("{event: change_class}"), "got 'change_class' (did you mean 'changed_class'?)"),
    "similarity": (_metric("{similarity: pearsn}"), "got 'pearsn' (did you mean 'pearson'?)"),
    "similarity's option": (_metric("{similarity: 'ssim:windw=3'}"), "(did you mean 'window'?)"),
    "search": (_metric("{search: blok}"), "metrics[1].worst_case.search (line 8): expected a search (auto, block, "),
    "search's option": (_metric("{search: {block: {startz: 1}}}"), "got 'startz' (did you mean 'start"),
    "range of search's option": (_metric("{search: {block: {starts: 0}}}"), "search.block.starts (line 8): expected a"),
    "neighbourhood": (_metric("{neighbourhood: {linv: 0.3}}"), "got 'linv' (did you mean 'linf'?)"),
    "radius": (_metric("{neighbourhood: {linf: big}}"), "neighbourhood.linf (line 8): expected a number, got 'big'"),
    "negative radius": (_metric("{neighbourhood: {linf: -1}}"), "expected a finite number of at least 0, got -1"),
    "distribution": (
        _metric("{neighbourhood: {l2: {radius: 1, distribution: unifrm}}}"),
        "did you mean 'uniform'?",
    ),
    "no neighbourhood": (study(neighbourhood=""), "metrics[0] (line 5): expected a neighbourhood for max_sensitivity"),
    "shared neighbourhood": (study(neighbourhood="0.3"), "neighbourhood (line 4): expected a neighbourhood"),
    "metric twice": (study(metrics="[max_sensitivity, max_sensitivity]"), "expected metrics that differ"),
    # executor
    "executor": (
        study(executor="slrm"),
        "executor (line 7): expected one of (local, ray, slurm), got 'slrm' (did you mean",
    ),
    "option of executor": (study(executor="{name: local, worker: 2}"), "(did you mean 'workers'?)"),
    "workers": (study(executor="{workers: 0}"), "executor.workers (line 7): expected auto or a number of at least 1"),
    "option of another executor": (study(executor="{name: local, gpus_per_worker: 1}"), "executor.gpus_per_worker"),
    "option of slurm": (study(executor="{name: slurm, slurm: {time_minute: 3}}"), "(did you mean 'time_minutes'?)"),
    "many at once": (
        study(seed="x", repeats="x", samples="x", device="x", samples_per_job="x", explainers="[a, b, c, d, e, f, g]"),
        "... and 2 more",
    ),
}
