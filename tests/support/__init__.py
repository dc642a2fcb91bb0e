"""What several test rooms build their cases from."""
