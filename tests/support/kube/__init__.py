"""A real Kubernetes for tests: its binaries built from Go modules, an API server alone, and a whole node."""
