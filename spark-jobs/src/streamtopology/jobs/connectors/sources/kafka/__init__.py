"""Topics of Kafka as streams of offset ranges."""
