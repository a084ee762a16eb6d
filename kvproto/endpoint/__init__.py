"""The endpoints: what an engine holds and calls, one a rank, and what it is told."""
