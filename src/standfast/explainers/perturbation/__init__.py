"""Explainers that look at scores of perturbed inputs: LIME, SHAP, occlusion, RISE."""
