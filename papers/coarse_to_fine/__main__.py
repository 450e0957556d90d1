"""`python -m papers.coarse_to_fine NAME`: a table or a figure of this paper, with our numbers beside its own."""

from papers.command import main

main("coarse_to_fine")
