"""Words explained where they first appear: a note that opens at a touch or under the pointer, and is printed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

#: words that the report itself uses; those of a metric come from its presentation
WORDS: Mapping[str, str] = {
    "explainer": "a method that computes a map",
    "map": "an explanation: for each feature of an input, how much it counts for the model's answer",
    "median": "half of the samples lie below it, half above",
    "correlation": "how alike two maps are: 1 the same, 0 unrelated, −1 reversed",
    "similarity": "how alike two maps are; for most measures 1 is the same map and 0 is unrelated",
    "95% interval": "where the median of many more samples of this kind lies, with 95% confidence",
    "mean rank": "the place among the explainers, 1 is best, averaged over samples",
    "censored": "only a bound is known: the run ended before it reached the value",
    "bounds": "the run ended early or is unresolved: the true value is at the number or beyond it",
    "quartiles": "a quarter of the samples lie below the lower one, a quarter above the upper one",
}


class Glossary:
    """Marks the first appearance of each word in a section, and the names of explainers.

    Args:
        names: names that are set in bold where it is asked for; single letters are not, they may be words.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.names = sorted((name for name in names if len(name) > 1), key=lambda name: (-len(name), name))
        self.left: dict[str, str] = {}
        self.begin()

    def begin(self, terms: Mapping[str, str] | None = None) -> str:
        """Start a section in which every word is explained again; returns nothing, for use in a template."""
        self.left = {**WORDS, **(terms or {})}
        return ""

    def explain(self, text: str, bold: bool = False) -> str:
        """Text as HTML: escaped, names in bold if asked, and words that were not explained yet with their meaning.

        >>> str(Glossary(["a<b"]).explain("of a<b", bold=True))
        'of <b>a&lt;b</b>'
        """
        import markupsafe

        words = sorted(self.left, key=len, reverse=True)
        parts = [*(re.escape(name) for name in self.names), *(re.escape(word) for word in words)]
        if not parts:
            return markupsafe.escape(text)
        known = set(self.names)
        lower = {word.lower(): word for word in words}

        def mark(found: re.Match[str]) -> str:
            shown = markupsafe.escape(found[0])
            if found[0] in known:
                return markupsafe.Markup("<b>{}</b>").format(found[0]) if bold else shown
            word = lower.get(found[0].lower()) or lower.get(found[0].lower().removesuffix("s"))
            meaning = self.left.pop(word, None) if word is not None else None
            if meaning is None:
                return shown
            tip = '<span class="term" tabindex="0">{}<span class="tip" role="note">{}</span></span>'
            return markupsafe.Markup(tip).format(found[0], meaning)

        pattern = re.compile(rf"(?<!\w)(?:{'|'.join(parts)})s?(?!\w)", re.IGNORECASE)
        pieces, end = [], 0
        for found in pattern.finditer(text):
            pieces += [markupsafe.escape(text[end : found.start()]), mark(found)]
            end = found.end()
        return markupsafe.Markup("").join([*pieces, markupsafe.escape(text[end:])])
