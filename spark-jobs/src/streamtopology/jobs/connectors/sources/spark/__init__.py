"""Spark's own streaming sources, read where Spark puts them."""
