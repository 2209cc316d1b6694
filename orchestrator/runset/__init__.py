"""The set folder on shared storage (docs/set-folder.md): create sets, submit their jobs."""
