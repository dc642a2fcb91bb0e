"""Experiments of the papers, in the simulator and on Spark, held against what the papers claim."""
