"""Sanity checks: does a map depend on the input, on the model and on the class, and does it mark what matters?

Every measure of stability rewards an explainer that says nothing: a map that is the same for every input never changes.
So each explainer is asked four questions first. For sample i let g be its map, f the model, t its class, and r
Pearson's correlation:

- input: the excess r(g(x_i), g(x_i')) - r(g(x_i), g(x_j)) of the similarity at a nearby input x_i' over that at other
  samples x_j: once of other classes, and once of the same class, where a map that reads the class alone is the same.
  x_i' lies a twentieth of the way to another sample. The excess is 0 for a map that is the same everywhere, and for one
  that is different everywhere.
- model: |r(g(x_i), g~(x_i))| with the map of the same class for scrambled weights (Adebayo et al., "Sanity checks for
  saliency maps", NeurIPS 2018), or, for a function of arrays, for the function of permuted columns. It is 1 for a map
  that ignores the model.
- removal: how often removing what the map marks most, with its sign, lowers the margin of the class more than removing
  as much at random. It is 1/2 for maps that mark anything. Removed features get the values of other samples, so that
  the model sees only values of the data.
- learned: the same against what the maps of scrambled models mark. Removing the object of an image lowers the margin
  whatever the model has learned; maps of an untrained network mark it, too, and so do copies of the input. Each sample
  is compared with three scrambled models, and each group of samples with three of its own. So the mean depends little
  on one scrambling that marks much, or little, by luck; and it shows how much scramblings differ.
- class: r with the map of the runner-up class. It is 1 for a map that ignores the class.

Pairs of samples share maps. So `excess` has for each sample its jackknife pseudo-value of the mean excess, a
U-statistic (Arvesen, Ann. Math. Stat. 40, 1969): their mean is the statistic, and their spread gives its error.

What it costs says `SanityChecks.cost`.
"""

from __future__ import annotations

from standfast.metrics.sanity.checks import RULES, SanityChecks, SanityResult, make_checks

__all__ = ["RULES", "SanityChecks", "SanityResult", "make_checks"]
