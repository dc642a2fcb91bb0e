"""Input and output: the API server, drivers, clocks, HTTP."""
