"""Tables and figures of coarse to fine."""
