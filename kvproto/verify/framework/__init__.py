"""The verifying framework: lint, search, stories, drawings, traces and the inspector for any protocol."""
