"""Random masks, sensitivities from them, and their null distribution."""
