"""What lies between an engine's scheduler and the endpoints; each engine's own part has a folder of its own."""
