"""The tasks of an attempt, as they run in a Python worker."""
