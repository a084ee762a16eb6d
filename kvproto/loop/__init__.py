"""The event loop of a rank: passes, wake-ups, its own thread, and the links to peers."""
