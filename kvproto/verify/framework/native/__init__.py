"""Native: prints tables as C, compiles them, and fires their rows beside the Python ones."""
