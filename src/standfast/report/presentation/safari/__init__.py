"""SAFARI: worst cases, probabilities of misinterpretation, sensitivities."""
