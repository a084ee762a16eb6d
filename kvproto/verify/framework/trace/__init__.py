"""Traces: the steps of a protocol's parties, recorded, written, read, replayed, counted and told."""
