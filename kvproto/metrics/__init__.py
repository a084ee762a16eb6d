"""Metrics of endpoints, and how they are exported."""
