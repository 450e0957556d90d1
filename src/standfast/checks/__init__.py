"""Requirements on stored results: pass, fail or undecided, each with its interval; for pipelines and audits.

`base` decides requirements, `case` one of them for one explainer, `decision` says what came out. `sequence` evaluates
more samples until they are decided, and `looks` are what was decided so far. `baseline` freezes results as a reference,
`obstacles` says what can never pass against it, `sanity` holds decisions to the sanity checks, `formats` writes the
decisions for people and for other programs.
"""

from standfast.checks.base import decide_requirements
from standfast.checks.baseline import freeze_baseline
from standfast.checks.decision import Decisions, RequirementDecision
from standfast.checks.sequence import check

__all__ = ["Decisions", "RequirementDecision", "check", "decide_requirements", "freeze_baseline"]
