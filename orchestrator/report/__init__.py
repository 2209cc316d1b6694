"""Reports of a set: all known facts, read once, as a page, Markdown, CSV or JSON.

from orchestrator.report.reading import read_report   # a folder -> Report
from orchestrator.report.page import page             # Report -> one self-contained HTML file
from orchestrator.report.markdown import markdown     # Report -> text for pasting
from orchestrator.report.spreadsheet import spreadsheet   # Reports -> CSV
"""
