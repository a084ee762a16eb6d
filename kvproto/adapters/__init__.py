"""Adapters between an engine's scheduler and the endpoints; each engine has a folder of its own."""
