"""The set folder on shared storage (docs/set-folder.md): creating sets, submitting their jobs, one picture of all."""
