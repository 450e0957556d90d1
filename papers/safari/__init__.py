"""Tables and figures of SAFARI."""
