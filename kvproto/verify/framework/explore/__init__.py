"""A world to click through, as one web page."""
