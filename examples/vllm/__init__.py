"""vLLM carried by kvproto: a router, and scenarios that are run in the real engine."""
