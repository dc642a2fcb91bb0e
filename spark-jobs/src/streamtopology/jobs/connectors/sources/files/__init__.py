"""Folders of files as streams of descriptors."""
