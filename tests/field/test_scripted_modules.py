"""TorchScript, frozen or not, whose parts have their mode elsewhere than other modules, or none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import standfast
from standfast.study.guard import Guard


class Line(nn.Module):
    """Logits of rows of four numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        nn.init.constant_(self.layer.weight, 0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).tanh() * x[:, :3]


def script(frozen: bool) -> torch.jit.ScriptModule:
    scripted = torch.jit.script(Line().eval())
    return torch.jit.freeze(scripted) if frozen else scripted


pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")


@pytest.mark.parametrize("frozen", [False, True])
def test_a_study_of_a_scripted_module_runs_to_its_end(frozen: bool, tmp_path: Path) -> None:
    script(frozen).save(str(tmp_path / "line.pt"))
    np.savez(
        tmp_path / "rows.npz", inputs=np.random.default_rng(0).random((3, 4)).astype(np.float32)
    )
    study = {
        "data": {
            "rows": {"path": str(tmp_path / "rows.npz"), "targets": "predicted", "bounds": [0, 1]}
        },
        "models": {"line": {"path": str(tmp_path / "line.pt")}},
        "explainers": ["saliency", "occlusion"],
        "metrics": [{"max_sensitivity": {"samples": 2, "neighbourhood": {"linf": 0.1}}}],
        "sanity": False,
        "controls": False,
    }
    found = standfast.run_study(study, tmp_path / "out", progress=False)
    assert found.failures == []
    assert found.samples["status"].to_list() == ["ok"] * 6


@pytest.mark.parametrize("frozen", [False, True])
def test_the_mode_of_a_scripted_module_is_put_back(frozen: bool) -> None:
    module = script(frozen)
    guard = Guard(standfast.Model(module, bounds=(0.0, 1.0)), torch.rand(1, 4))
    assert guard.find_changes() == []
    if not frozen:  # which has no mode
        module.train()
        assert guard.find_changes() == ["mode"]
        assert guard.restore()
        assert not module.training
    assert guard.find_changes() == []
