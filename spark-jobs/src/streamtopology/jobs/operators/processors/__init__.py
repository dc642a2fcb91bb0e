"""Classes of PySpark's StatefulProcessor, unchanged, as operators: their state in our store, one call a key and batch."""
