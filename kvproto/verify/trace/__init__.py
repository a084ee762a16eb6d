"""Reads the traces of ranks: stories, and judges of what ranks did."""
