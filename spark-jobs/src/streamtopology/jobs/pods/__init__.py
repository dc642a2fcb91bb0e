"""The data plane in pods: the driver's process, the executors' launcher, and the routing ConfigMap from the operator."""
