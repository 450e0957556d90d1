"""Reasons: which of the first features of a map are named again when nothing that matters is different."""
