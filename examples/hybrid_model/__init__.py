"""A hybrid model's KV and state between groups of other sizes: the continued tokens are the same."""
