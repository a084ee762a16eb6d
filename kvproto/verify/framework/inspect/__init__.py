"""A trace as one web page, to step through."""
