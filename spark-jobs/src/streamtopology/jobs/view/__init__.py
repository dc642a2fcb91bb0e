"""What a person looks at: the page, the terminal, the report, the picture and the metrics."""
