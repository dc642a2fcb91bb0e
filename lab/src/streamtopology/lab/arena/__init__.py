"""The arena: other engines, each in an environment of its own, on the same rows and the same CPU."""
