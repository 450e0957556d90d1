"""`python -m papers.natural_changes NAME`: a table or a figure of this paper, with our numbers beside its own."""

from papers.command import main

main("natural_changes")
