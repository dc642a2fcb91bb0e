"""Cases and helpers shared by several test rooms."""
