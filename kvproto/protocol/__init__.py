"""The protocol: vocabulary, messages and their codec, timers, the ring, routes of messages, and seven tables."""
