"""Comparing sets of runs, and sets with published entries.

from orchestrator.compare.sides import find_side  # folder, set or published entry -> Side
from orchestrator.compare.comparison import compare  # two Sides -> Comparison
"""
