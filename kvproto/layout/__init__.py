"""Who holds which heads and layers, and which bytes go where: arithmetic over intervals, pure."""
