"""Two-phase commit: a protocol of its own on the framework of kvproto."""
