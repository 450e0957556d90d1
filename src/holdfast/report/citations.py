"""BibTeX of the publications whose evaluations a report shows."""

from __future__ import annotations

BIBTEX: dict[str, str] = {
    "huang2023safari": """@inproceedings{huang2023safari,
  title     = {{SAFARI}: Versatile and Efficient Evaluations for Robustness of Interpretability},
  author    = {Huang, Wei and Zhao, Xingyu and Jin, Gaojie and Huang, Xiaowei},
  booktitle = {Proceedings of the IEEE/CVF International Conference on Computer Vision (ICCV)},
  pages     = {1988--1998},
  year      = {2023}
}""",
    "yeh2019infidelity": """@inproceedings{yeh2019infidelity,
  title     = {On the (In)fidelity and Sensitivity of Explanations},
  author    = {Yeh, Chih-Kuan and Hsieh, Cheng-Yu and Suggala, Arun Sai and Inouye, David I. and Ravikumar, Pradeep},
  booktitle = {Advances in Neural Information Processing Systems},
  volume    = {32},
  year      = {2019}
}""",
    "alvarezmelis2018robustness": """@inproceedings{alvarezmelis2018robustness,
  title     = {On the Robustness of Interpretability Methods},
  author    = {Alvarez-Melis, David and Jaakkola, Tommi S.},
  booktitle = {ICML Workshop on Human Interpretability in Machine Learning (WHI)},
  note      = {arXiv:1806.08049},
  year      = {2018}
}""",
}
