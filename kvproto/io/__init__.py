"""Sockets, transports, devices and clocks.  This folder knows layouts as bytes, and no protocol."""
