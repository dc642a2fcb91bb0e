"""Policies compared without Spark, on a described stream or a trace."""
