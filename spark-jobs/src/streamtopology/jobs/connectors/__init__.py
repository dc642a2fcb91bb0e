"""Sources of rows and sinks of results."""
