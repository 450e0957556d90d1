"""Statistics of values over samples: intervals, paired tests, comparisons, rankings."""
