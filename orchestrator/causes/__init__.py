"""Causes of failures: their signs, and the first cause in the logs of several nodes."""
