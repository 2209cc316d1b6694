"""Container images: which one every node has, getting the same one onto all, and the code inside."""
