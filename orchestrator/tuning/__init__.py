"""Host settings as declared state: profiles, their script, and its results on nodes."""
