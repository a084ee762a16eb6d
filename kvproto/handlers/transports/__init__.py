"""Transports: one contract, several backends."""
