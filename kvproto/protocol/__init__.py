"""The protocol: its vocabulary, its messages and their codec, its timers, its ring, the routes of its messages, and its seven tables."""
