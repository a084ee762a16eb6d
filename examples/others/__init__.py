"""Other systems' protocols, written as tables and put to the same search."""
