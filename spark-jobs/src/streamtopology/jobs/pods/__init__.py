"""The data plane in pods: the driver's process, the executors' launcher, and what the operator tells them."""
