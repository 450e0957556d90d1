"""SenC: sensitivity consistency of prediction and explanation."""
