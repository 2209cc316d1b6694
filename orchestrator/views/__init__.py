"""A set for people as one model: `parts.py`, rendered by `terminal.py`, `markdown.py` and
`page.py`."""
