"""Layouts: which rank holds which heads and layers, and which bytes go where.  Pure arithmetic."""
