"""Check nodes before their use: run a bundle's preflight.sh on them, for a verdict per node.

with temporary_bundle(entry, log_dir) as bundle:
    # or in_allocation, over_ssh, on_this_host
    verdicts = allocate(Request(bundle), entry, names, progress)
verdicts.fit, verdicts.exclude, verdicts.to_json()
"""
