"""Evidence packs: all that somebody needs who has to check a study, in one folder that shows whether it was changed.

`pack` makes and verifies a pack, `model_card`, `crosswalk` and `software` write its parts, and `repetition` evaluates
some of its jobs again.
"""

from standfast.evidence.pack import PackVerification, make_pack, verify_pack
from standfast.evidence.repetition import Replay, repeat_jobs, replay

__all__ = ["PackVerification", "Replay", "make_pack", "repeat_jobs", "replay", "verify_pack"]
