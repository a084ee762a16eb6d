"""What several tests of the core and of the loop share."""
