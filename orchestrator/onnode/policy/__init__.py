"""Decisions: pure functions of events and settings. No clock, no file, no process in here."""
