"""kvproto: the KV-cache transfer protocol as tables."""
