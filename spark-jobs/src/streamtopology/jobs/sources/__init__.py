"""Where rows come from: descriptors that pinned tasks read themselves, and any other Spark streaming source."""
