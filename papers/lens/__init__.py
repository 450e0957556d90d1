"""Tables and figures of LENS."""
