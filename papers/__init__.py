"""Published tables and figures as studies, a folder for each paper: `python -m papers.safari table3 --scale small`."""
