"""Groupings, routing tables, planners and the control loop: pure functions of values, without Spark or Kubernetes."""
