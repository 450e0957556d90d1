"""Probabilities of rare events: subset simulation and plain Monte Carlo."""
