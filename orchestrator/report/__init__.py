"""Reports of a set as a page, Markdown, CSV or JSON.

from orchestrator.report.reading import read_report   # a folder -> Report
from orchestrator.report.page import page             # Report -> HTML
from orchestrator.report.markdown import markdown     # Report -> text for pasting
from orchestrator.report.spreadsheet import spreadsheet   # Reports -> CSV
"""
