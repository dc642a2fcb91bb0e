"""What is in a csv, JSON or text file, read by Arrow."""
