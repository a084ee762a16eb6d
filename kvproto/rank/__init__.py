"""Ranks: the machines of one process with ring, links and timers.  They are pure; time is an argument."""
