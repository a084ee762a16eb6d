"""Mutants of the code that runs: changed in memory, one at a time, and judged by the tests that are named for it."""
