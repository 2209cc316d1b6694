"""Container images: the same image on every node, and the code in an image."""
