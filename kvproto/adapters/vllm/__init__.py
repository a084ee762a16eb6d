"""vLLM: its connector interface, translated."""
