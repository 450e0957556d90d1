"""`python -m papers.c_eval NAME`: a table or a figure of this paper, with our numbers beside its own."""

from papers.command import main

main("c_eval")
