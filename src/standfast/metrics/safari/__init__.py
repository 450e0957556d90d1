"""SAFARI (Huang et al., ICCV 2023): worst cases, probabilities of misinterpretation, sensitivities."""
