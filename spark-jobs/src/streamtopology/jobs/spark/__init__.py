"""Spark: the session, the runner of attempts, pinned tasks, and the watch over executors."""
