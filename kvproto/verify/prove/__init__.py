"""Proofs without bounds: the tables' own functions, run on terms of a solver (z3, extra `prove`)."""
