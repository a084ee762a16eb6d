"""Support shared by tests of the core and of the loop."""
