"""The page of a running topology: what it shows, and its files for the browser."""
