"""The publication of each metric of Quantus and Captum.

These are facts only; no code of the packages is copied.
"""

from __future__ import annotations

from standfast.metrics.publications import read_publications

#: the key of each package's own publication
PACKAGES = {"captum": "kokhlikyan2020captum", "quantus": "hedstroem2023quantus"}

#: the key of each metric's publication, by the metric's name with the package before it
CITATIONS = {
    "captum:infidelity": "yeh2019infidelity",
    "captum:sensitivity_max": "yeh2019infidelity",
    "quantus:AvgSensitivity": "yeh2019infidelity",
    "quantus:Complexity": "bhatt2020evaluating",
    "quantus:Completeness": "sundararajan2017axiomatic",
    "quantus:Continuity": "montavon2018methods",
    "quantus:EffectiveComplexity": "nguyen2020quantitative",
    "quantus:EfficientMPRT": "hedstroem2023sanity",
    "quantus:FaithfulnessCorrelation": "bhatt2020evaluating",
    "quantus:FaithfulnessEstimate": "alvarezmelis2018towards",
    "quantus:IROF": "rieger2020irof",
    "quantus:Infidelity": "yeh2019infidelity",
    "quantus:InputInvariance": "kindermans2019reliability",
    "quantus:LocalLipschitzEstimate": "alvarezmelis2018robustness",
    "quantus:MPRT": "adebayo2018sanity",
    "quantus:MaxSensitivity": "yeh2019infidelity",
    "quantus:Monotonicity": "arya2019one",
    "quantus:MonotonicityCorrelation": "nguyen2020quantitative",
    "quantus:NonSensitivity": "nguyen2020quantitative",
    "quantus:PixelFlipping": "bach2015pixel",
    "quantus:ROAD": "rong2022consistent",
    "quantus:RandomLogit": "sixt2020explanations",
    "quantus:RegionPerturbation": "samek2017evaluating",
    "quantus:RelativeInputStability": "agarwal2022rethinking",
    "quantus:RelativeOutputStability": "agarwal2022rethinking",
    "quantus:RelativeRepresentationStability": "agarwal2022rethinking",
    "quantus:Selectivity": "montavon2018methods",
    "quantus:SmoothMPRT": "hedstroem2023sanity",
    "quantus:Sparseness": "chalasani2020concise",
}


def bibtex(name: str) -> str:
    """The BibTeX entries of a metric's publication, if it is known, and of its package.

    >>> bibtex("quantus:MaxSensitivity").count("@")
    2
    """
    keys = (CITATIONS.get(name), PACKAGES[name.partition(":")[0]])
    return "\n".join(read_publications()[key] for key in keys if key is not None)
