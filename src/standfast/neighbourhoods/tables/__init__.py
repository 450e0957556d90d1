"""Changes of the rows of a table: ranges in the data's units, steps, categories, and rules that every row keeps.

A row x has F columns. Some of them change, each by its own parameter; the others stay as they are.

- **A number** changes by an amount d within a range: `x + d`, or, for a range in percent, `x + |x| p / 100`. With a
  step, d is a multiple of it, and all possible multiples have the same probability. So a step of 1 keeps integers.
- **A category**, one column of codes or several columns of a one-hot code, is drawn by one uniform number u. The clean
  row's own category comes first, so u = 0 keeps it; the lengths of the intervals are the probabilities.
- **Rules**, such as `debt <= 3 * income`, hold for every perturbed row. A rule with `==` computes its column from the
  others: column t moves along with the changed ones x', `x_t + sum_j a_j (x'_j - x_j)`.

Two priors say how the changes are distributed:

- `independent`: each parameter by itself, uniform on its range (or truncated normal around the clean row).
- `copula`: a move in the space of a Gaussian copula that is fitted to training data; `../copula.py` has the formula.
  Each parameter is added to the uniform number that leaves the row as it is, so 0 means no change. Categories are
  independent.

With a copula, a row whose changes leave their ranges is not possible, as if it broke a rule.

Parameters that break a rule or leave a range are not drawn (`satisfies_rules`), so probabilities are over rows that
keep them. A search may try such parameters. Then the row is moved back towards the clean one: nearly the
largest share of its changes that keeps the rules, cut to steps, with the new categories if they are possible, else with
the clean ones. The clean row keeps the rules; else it is refused.

How far something may go has three words in the code:

- **bounds** are of the model's inputs, in their units: `lower` and `upper`.
- **ranges** are of changes, in the data's units: `low` and `high`. `Ends` and `Feature.limits` are what a user says.
- **limits** are of parameters, each in its own unit.

A configuration becomes changed rows in this order: `features.py` is how one column may change, `options.py` what a user
says of a table, `layout.py` which columns these are, `categories.py` which categories they have, `plan.py` what all of
it means for the columns, `row_changes.py` what becomes of rows, `repair.py` how they keep the rules, `candidates.py`
what a search can try, and `changes.py` is the neighbourhood.
"""

from standfast.neighbourhoods.tables.changes import TableChanges
from standfast.neighbourhoods.tables.features import Feature

__all__ = ["Feature", "TableChanges"]
