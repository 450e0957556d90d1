"""SenC: sensitivity consistency."""
