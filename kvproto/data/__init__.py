"""Carries out a rank's effects on data: gathers, scatters, launches, writes, and the memory that they use."""
