"""Host settings: profiles, their script, and its results on nodes."""
