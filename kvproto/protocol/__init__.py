"""The protocol: vocabulary, messages and codec, timers, ring, routes of messages, and seven tables."""
