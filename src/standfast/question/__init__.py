"""What is asked, in one form, whether it comes from Python or from a study file."""
