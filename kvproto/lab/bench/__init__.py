"""Benchmarks: what the parts reach on a machine, beside what the machine reaches."""
