"""Requirements on explanations as a test: the fixture comes with standfast."""


def test_explanations(standfast_check):
    """All requirements of policy.yaml, beside this file, pass."""
    standfast_check("policy.yaml")
