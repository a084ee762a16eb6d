"""What a rank leaves for people while it runs: logs, durations, traces in files."""
