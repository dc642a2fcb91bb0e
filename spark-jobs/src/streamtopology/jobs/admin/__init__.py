"""Commands on a checkpoint or a running topology from outside: inspect, clone, roll back, watch."""
