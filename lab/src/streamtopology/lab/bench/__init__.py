"""Benchmarks: each module has `run(...)`, which returns the figures; `streamtopology bench NAME` runs one."""
