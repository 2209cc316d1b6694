"""The contract of an image, from its files alone: programs, variables, paths, downloads."""
