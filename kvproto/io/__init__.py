"""Side-effect handlers: the only code that knows sockets, transports, devices and clocks."""
