"""Transports: one contract (`base`), several backends."""
