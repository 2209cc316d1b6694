"""What people see of a set as one model, the parts of `parts.py`, with three renderers: `terminal.py`,
`markdown.py` and the page's template."""
