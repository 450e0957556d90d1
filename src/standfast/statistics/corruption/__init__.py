"""Coarse to fine (Wei, Turbe and Mengaldo): the numbers of a data set from the drops of its samples, and their gate."""
