"""Pictures and tables of a protocol, all made from its rows."""
