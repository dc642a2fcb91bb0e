"""Sources of rows: descriptors that pinned tasks read themselves, and any other Spark streaming source."""
