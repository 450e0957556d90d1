"""Lower bounds on minimal distortions by linear relaxation."""
