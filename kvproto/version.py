"""This package's version, for whoever must not import the whole of it."""

__version__ = "0.1.0"
