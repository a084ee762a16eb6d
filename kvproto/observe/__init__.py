"""Observability of a running rank: logs, durations, traces in files."""
