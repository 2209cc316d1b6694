"""Submission packages: the tree that MLCommons' checkers take, made from sets, all or nothing.

from orchestrator.submission.package import make_package, write_package  # sets -> files -> folder
from orchestrator.submission.verify import verify  # files -> the official checker's verdict
"""
