"""Requirements on explanations as a test: the fixture comes with holdfast."""


def test_explanations(holdfast_check):
    """All requirements of policy.yaml, beside this file, pass."""
    holdfast_check("policy.yaml")
