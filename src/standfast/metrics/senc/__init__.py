"""SenC: are prediction and explanation sensitive to the same features and weights?"""
