"""The control loop: observe batches, judge stages, decide whether to re-route."""
