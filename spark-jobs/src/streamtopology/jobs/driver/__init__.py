"""The micro-batch loop: from the source's offsets to the commit record."""
