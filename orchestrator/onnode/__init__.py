"""The code of nodes and batch host, shared with the controller: records, events, decisions.

Standard library only, Python 3.9 or newer. A bundle carries this package unchanged as its folder
`lib/`; the controller imports it as `orchestrator.onnode`. So every import here is relative, and
none leaves the package.

    kernel/   for both programs: files, records, events, settings, waiting, the world
    policy/   decisions: pure functions of events and settings
    set/      writes a set's folder: its lease, its ledger, its bundle
    loop/     on the batch host: the job, its nodes, its runs
    agent/    on a node: one process that holds it for the life of the job
    measure/  the bandwidth between nodes, carried if the site wants it measured
"""
