"""Pictures and tables of the protocol, all made from the rows."""
