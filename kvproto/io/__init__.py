"""Sockets, transports, devices and clocks.  Of the protocol nothing is known here; of layouts, the bytes."""
