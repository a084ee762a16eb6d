"""Native: the search in C, which asks the worlds of Python what their parts do."""
