"""Handlers of a rank's effects on data: gathers, scatters, launches, writes, and their memory."""
