"""Worlds that are not real: whole groups of ranks whose surroundings are lists and a seed."""
