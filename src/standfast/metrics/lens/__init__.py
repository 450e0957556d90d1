"""LENS: attacks on attribution maps, judged by locality-aware similarities."""
