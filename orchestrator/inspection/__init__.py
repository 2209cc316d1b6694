"""The contract of an image: what it starts, reads, writes and downloads, from its files alone."""
