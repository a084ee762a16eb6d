"""The verifying wing: proves, checks, mutates, simulates, draws, reads traces. Nothing that runs imports it."""
