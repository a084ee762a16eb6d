"""Calls that run at most once, under leases."""
