"""The framework: base types, tables of rows, and the compiled step.  It knows nothing of KV."""
