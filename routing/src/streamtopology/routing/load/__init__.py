"""Load reports of instances, the planner load made of them, and sketches of keys, pairs and costs."""
