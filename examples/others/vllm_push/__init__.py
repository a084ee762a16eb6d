"""vLLM's NIXL push connector as tables, with the names of its code."""
