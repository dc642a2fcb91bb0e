"""Pure builders: from a topology to the Kubernetes objects that run it, as plain dicts (docs/internals/how-it-works.md)."""
