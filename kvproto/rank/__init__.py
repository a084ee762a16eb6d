"""The ranks: the machines of one process put together, with ring, links and timers.  Pure; time is an argument."""
