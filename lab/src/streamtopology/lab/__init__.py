"""Benchmarks, reproductions of the papers, simulations and the demo. Nothing imports it."""
