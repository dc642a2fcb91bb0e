"""Code of users: its modules and functions, what it does to the process, and the line at which it raised."""
