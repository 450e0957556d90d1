"""A pack of an explainer without options, which a manifest stores as a text, can be evaluated again."""

from __future__ import annotations

from typing import Any

import pytest

from standfast.evidence.repetition import _find_changes


@pytest.mark.parametrize("stored", ["own:Explain", None, {"explainer": "saliency"}])
def test_what_is_stored_of_an_explainer_may_be_anything(stored: Any) -> None:
    manifest = {"explainers": {"own": stored}}
    assert _find_changes(manifest, manifest) == ()
    assert _find_changes(manifest, {"explainers": {"own": "own:Other"}}) == (
        "explainers 'own': other options",
    )
