"""The endpoints that an engine holds and calls, one for each rank, and their answers."""
