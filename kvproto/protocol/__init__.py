"""The protocol: its vocabulary, its messages and their codec, its timers, and its six tables."""
