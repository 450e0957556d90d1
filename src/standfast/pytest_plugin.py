"""A pytest plugin: the fixture `standfast_check`, which runs a study and fails unless all of its requirements pass.

    def test_explanations(standfast_check):
        standfast_check("policy.yaml")

pytest finds the plugin where standfast is installed. It imports nothing of standfast until the fixture is called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

if TYPE_CHECKING:
    from standfast.checks import Decisions


@pytest.fixture
def standfast_check(request: pytest.FixtureRequest) -> Callable[..., Decisions]:
    """A function that checks a study as `standfast.checks.check` does; a path is relative to the test's file.

    It takes the arguments of `check`, and `undecided`: what becomes of the test if no requirement fails and some are
    undecided, `"fail"` (the default) or `"skip"`.
    """
    folder = request.path.parent

    def run(
        study: Mapping[str, Any] | str | Path,
        out: str | Path | None = None,
        *,
        undecided: Literal["fail", "skip"] = "fail",
        **options: Any,
    ) -> Decisions:
        # here, because pytest loads plug-ins before it knows whether a test needs them
        from standfast.checks import check
        from standfast.errors import check as check_argument

        check_argument(
            undecided in ("fail", "skip"), "undecided", "'fail' or 'skip'", repr(undecided)
        )
        if isinstance(study, str | Path):
            study = folder / study
        decisions = check(study, out, progress=False, **options)
        # 3: nothing fails, and something is undecided
        if decisions.exit_code == 3 and undecided == "skip":
            pytest.skip(str(decisions))
        if decisions.exit_code:
            # the decisions say all that is to be known; a traceback of the fixture would hide them
            pytest.fail(f"the requirements are not met\n{decisions}", pytrace=False)
        return decisions

    return run
