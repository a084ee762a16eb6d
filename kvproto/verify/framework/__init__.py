"""Verifies any protocol of tables: lint, search, stories, drawings, traces, the inspector. Knows no KV."""
