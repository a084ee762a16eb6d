"""Mutation tests: mutants of the running code, made in memory, one at a time, and judged by their
tests.
"""
