"""Witnesses: the protocol looked at a second time, by small explorers of our own and by Spin."""
