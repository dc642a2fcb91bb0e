"""The demo: a skewed stream on unequal executors, fixed and then re-routed."""
