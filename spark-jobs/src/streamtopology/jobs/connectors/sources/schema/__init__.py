"""The columns that a source declares, and rows held against them."""
