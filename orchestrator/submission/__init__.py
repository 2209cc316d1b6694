"""Submission packages: the tree that MLCommons' checkers take, made from sets, all or nothing.

from orchestrator.submission.package import make_package, write_package # sets -> files -> a folder
from orchestrator.submission.verify import verify # a folder -> the official checker's word
"""
