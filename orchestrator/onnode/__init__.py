"""The code of nodes and batch host, shared with the controller.

Standard library, Python 3.9 or newer. A bundle carries it unchanged as `lib/`; the controller
imports it as `orchestrator.onnode`: imports are relative, and none leaves the package.

    kernel/   for both programs: files, records, events, settings, waiting, the world
    policy/   decisions: pure functions of events and settings
    set/      writes a set's folder: its lease, its ledger, its bundle
    loop/     on the batch host: the job, its nodes, its runs
    agent/    on a node: one process that holds it for the life of a step
    measure/  the bandwidth between nodes, carried if the site wants it measured
"""
