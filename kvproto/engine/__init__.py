"""What an engine holds: endpoints, the event loop, and what carries out a rank's effects."""
