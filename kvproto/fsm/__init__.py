"""The framework: states, events and effects as base types, tables of rows, the compiled step, the lint. Knows no KV."""
