"""The version of this package, for code that must not import all of it."""

__version__ = "0.1.0"
