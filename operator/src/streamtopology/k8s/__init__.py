"""The Kubernetes operator: observe a StreamTopology, decide, apply."""
