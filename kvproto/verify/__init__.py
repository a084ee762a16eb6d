"""The verifying wing: proves, checks, mutates, simulates, draws and reads traces. No running code
imports it.
"""
