"""A fencing lock, in one file."""
