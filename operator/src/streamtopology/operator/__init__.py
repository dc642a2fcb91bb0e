"""The Kubernetes operator: observe a StreamTopology, decide, apply. (The rooms are built with the operator's own work.)"""
