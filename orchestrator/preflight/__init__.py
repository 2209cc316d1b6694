"""Checking nodes before they are used: a bundle's preflight.sh on them, and one verdict per node.

with temporary_bundle(entry, log_dir) as bundle:
    # or in_allocation, over_ssh, on_this_host
    verdicts = allocate(Request(bundle), entry, names, progress)
verdicts.fit, verdicts.exclude, verdicts.to_json()
"""
