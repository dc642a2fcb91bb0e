"""One run of a topology from preflight to its last batch, on any cluster."""
