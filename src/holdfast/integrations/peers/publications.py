"""What the metrics of Quantus and Captum are: whose, and which way is better. Facts only; no code of theirs."""

from __future__ import annotations

from typing import Literal

Direction = Literal["higher", "lower"]

TOOLS = {
    "quantus": """@article{hedstroem2023quantus,
  title   = {Quantus: An Explainable AI Toolkit for Responsible Evaluation of Neural Network Explanations and Beyond},
  author  = {Hedstr{\\"o}m, Anna and Weber, Leander and Krakowczyk, Daniel and Bareeva, Dilyara and Motzkus, Franz and
             Samek, Wojciech and Lapuschkin, Sebastian and H{\\"o}hne, Marina M.-C.},
  journal = {Journal of Machine Learning Research},
  volume  = {24},
  number  = {34},
  pages   = {1--11},
  year    = {2023}
}""",
    "captum": """@article{kokhlikyan2020captum,
  title   = {Captum: A Unified and Generic Model Interpretability Library for {PyTorch}},
  author  = {Kokhlikyan, Narine and Miglani, Vivek and Martin, Miguel and Wang, Edward and Alsallakh, Bilal and
             Reynolds, Jonathan and Melnikov, Alexander and Kliushkina, Natalia and Araya, Carlos and Yan, Siqi and
             Reblitz-Richardson, Orion},
  journal = {arXiv:2009.07896},
  year    = {2020}
}""",
}

#: the key of the publication of each metric, by its name with the peer's before it
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

_PROCEEDINGS = {
    "adebayo2018sanity": (
        "Sanity Checks for Saliency Maps",
        "Adebayo, Julius and Gilmer, Justin and Muelly, Michael and Goodfellow, Ian and Hardt, Moritz and Kim, Been",
        "Advances in Neural Information Processing Systems",
        2018,
    ),
    "agarwal2022rethinking": (
        "Rethinking Stability for Attribution-based Explanations",
        "Agarwal, Chirag and Johnson, Nari and Pawelczyk, Martin and Krishna, Satyapriya and Saxena, Eshika and "
        "Zitnik, Marinka and Lakkaraju, Himabindu",
        "arXiv:2203.06877",
        2022,
    ),
    "alvarezmelis2018robustness": (
        "On the Robustness of Interpretability Methods",
        "Alvarez-Melis, David and Jaakkola, Tommi S.",
        "ICML Workshop on Human Interpretability in Machine Learning (WHI)",
        2018,
    ),
    "alvarezmelis2018towards": (
        "Towards Robust Interpretability with Self-Explaining Neural Networks",
        "Alvarez-Melis, David and Jaakkola, Tommi S.",
        "Advances in Neural Information Processing Systems",
        2018,
    ),
    "arya2019one": (
        "One Explanation Does Not Fit All: A Toolkit and Taxonomy of AI Explainability Techniques",
        "Arya, Vijay and others",
        "arXiv:1909.03012",
        2019,
    ),
    "bach2015pixel": (
        "On Pixel-Wise Explanations for Non-Linear Classifier Decisions by Layer-Wise Relevance Propagation",
        "Bach, Sebastian and Binder, Alexander and Montavon, Gr{\\'e}goire and Klauschen, Frederick and "
        'M{\\"u}ller, Klaus-Robert and Samek, Wojciech',
        "PLoS ONE 10(7)",
        2015,
    ),
    "bhatt2020evaluating": (
        "Evaluating and Aggregating Feature-based Model Explanations",
        "Bhatt, Umang and Weller, Adrian and Moura, Jos{\\'e} M. F.",
        "International Joint Conference on Artificial Intelligence",
        2020,
    ),
    "chalasani2020concise": (
        "Concise Explanations of Neural Networks using Adversarial Training",
        "Chalasani, Prasad and Chen, Jiefeng and Chowdhury, Amrita Roy and Wu, Xi and Jha, Somesh",
        "International Conference on Machine Learning",
        2020,
    ),
    "hedstroem2023sanity": (
        "Sanity Checks Revisited: An Exploration to Repair the Model Parameter Randomisation Test",
        'Hedstr{\\"o}m, Anna and Weber, Leander and Lapuschkin, Sebastian and H{\\"o}hne, Marina M.-C.',
        "XAI in Action Workshop at NeurIPS",
        2023,
    ),
    "kindermans2019reliability": (
        "The (Un)reliability of Saliency Methods",
        "Kindermans, Pieter-Jan and Hooker, Sara and Adebayo, Julius and Alber, Maximilian and "
        'Sch{\\"u}tt, Kristof T. and D{\\"a}hne, Sven and Erhan, Dumitru and Kim, Been',
        "Explainable AI: Interpreting, Explaining and Visualizing Deep Learning",
        2019,
    ),
    "montavon2018methods": (
        "Methods for Interpreting and Understanding Deep Neural Networks",
        "Montavon, Gr{\\'e}goire and Samek, Wojciech and M{\\\"u}ller, Klaus-Robert",
        "Digital Signal Processing 73",
        2018,
    ),
    "nguyen2020quantitative": (
        "On Quantitative Aspects of Model Interpretability",
        "Nguyen, An-phi and Rodr{\\'i}guez Mart{\\'i}nez, Mar{\\'i}a",
        "arXiv:2007.07584",
        2020,
    ),
    "rieger2020irof": (
        "IROF: a Low Resource Evaluation Metric for Explanation Methods",
        "Rieger, Laura and Hansen, Lars Kai",
        "ICLR Workshop on AI for Affordable Healthcare",
        2020,
    ),
    "rong2022consistent": (
        "A Consistent and Efficient Evaluation Strategy for Attribution Methods",
        "Rong, Yao and Leemann, Tobias and Borisov, Vadim and Kasneci, Gjergji and Kasneci, Enkelejda",
        "International Conference on Machine Learning",
        2022,
    ),
    "samek2017evaluating": (
        "Evaluating the Visualization of What a Deep Neural Network Has Learned",
        "Samek, Wojciech and Binder, Alexander and Montavon, Gr{\\'e}goire and Lapuschkin, Sebastian and "
        'M{\\"u}ller, Klaus-Robert',
        "IEEE Transactions on Neural Networks and Learning Systems 28(11)",
        2017,
    ),
    "sixt2020explanations": (
        "When Explanations Lie: Why Many Modified BP Attributions Fail",
        "Sixt, Leon and Granz, Maximilian and Landgraf, Tim",
        "International Conference on Machine Learning",
        2020,
    ),
    "sundararajan2017axiomatic": (
        "Axiomatic Attribution for Deep Networks",
        "Sundararajan, Mukund and Taly, Ankur and Yan, Qiqi",
        "International Conference on Machine Learning",
        2017,
    ),
    "yeh2019infidelity": (
        "On the (In)fidelity and Sensitivity of Explanations",
        "Yeh, Chih-Kuan and Hsieh, Cheng-Yu and Suggala, Arun Sai and Inouye, David I. and Ravikumar, Pradeep",
        "Advances in Neural Information Processing Systems",
        2019,
    ),
}

#: Captum says nothing of directions; Quantus does (`score_direction`), and is contradicted here
DIRECTIONS: dict[str, Direction] = {
    "captum:infidelity": "lower",
    "captum:sensitivity_max": "lower",
    # its values are drops of the prediction, most relevant first: the larger, the better the map
    "quantus:RegionPerturbation": "higher",
}


def bibtex(name: str) -> str:
    """The entries of a metric's publication, where it is known, and of the package.

    >>> bibtex("quantus:MaxSensitivity").count("@")
    2
    """
    key = CITATIONS.get(name)
    entries = [TOOLS[name.partition(":")[0]]]
    if key is not None:
        title, author, where, year = _PROCEEDINGS[key]
        fields = {"title": title, "author": author, "howpublished": where, "year": str(year)}
        lines = ",\n".join(f"  {field} = {{{value}}}" for field, value in fields.items())
        entries.insert(0, f"@misc{{{key},\n{lines}\n}}")
    return "\n".join(entries)
