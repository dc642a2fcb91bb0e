"""The papers' experiments, on the groupings and planners that also run on Spark."""
