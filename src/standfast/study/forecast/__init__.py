"""What a study costs, what fits into a limited time, and a run that ends in time."""
