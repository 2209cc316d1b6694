"""Causes of failures, as tables of what programs print, and the first cause in the logs of
several nodes."""
