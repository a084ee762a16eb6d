"""What the parties of a protocol did: kept, written, read, replayed, counted, and told."""
