"""Epochs: all routing of a topology under one number, the placement of instances, and the switch between epochs."""
