"""The code of the nodes and the batch host, shared with the controller: records,
events, decisions.

Standard library only, Python 3.9 or newer. A bundle carries this package as it is, as its folder
`lib/`; the controller imports it as `orchestrator.onnode`. So every import in here is relative, and
nothing in here imports ours from elsewhere.

    kernel/   what both programs need: files, records, events, settings, waiting, the world
    policy/   decisions: pure functions of events and settings
    set/      what writes a set's folder: its lease, its ledger, its bundle
    loop/     on the batch host: the job, its nodes, its runs
    agent/    on a node: one process that holds it for the life of the job
    measure/  the bandwidth between the nodes, carried where the site wants it measured
"""
