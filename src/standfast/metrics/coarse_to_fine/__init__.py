"""Coarse to fine: what replacing the most relevant positions costs the prediction."""
