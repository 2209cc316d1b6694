"""A simulated world: clock, nodes, Slurm, storage and trainings, in one thread and from one seed.

The real loop, decisions and commands run in it. It answers everything they ask through `World`
(onnode/kernel/world.py). Nothing waits: time is a number that rises from event to event.

    engine      the heap of events, processes and how they are killed
    storage     the file server as each host sees it, and how it fails; its parts are storage_*
    slurm       a cluster that answers Slurm's commands in text; its parts are slurm_*
    nodes       an agent's answers to the loop's orders (orchestrator/onnode/agent)
    training    the output of a training, drawn from published results
    host        the worlds of the loop and of a command
    faults      sentences such as `node 3 dies in run 4`, and their effects
    play        a whole set, from `submit` to its score
    rehearsal   a planned set with faults; trials: many of them, with nodes that fail at random
    invariants  properties of every set, whatever happened to it
"""
