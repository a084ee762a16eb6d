"""The laboratory: benchmarks, the demonstration, torture and fuzzing. Nothing else imports it."""
