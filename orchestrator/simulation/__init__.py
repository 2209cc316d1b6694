"""A simulated world from one seed, in one thread: clock, nodes, Slurm, storage and trainings.

The real loop, decisions and commands run in it, through `World` (onnode/kernel/world.py). Nothing
waits: time rises from event to event.

    engine      the heap of events; processes and their deaths
    storage     the file server as each host sees it, and its failures; parts: storage_*
    slurm       a cluster that answers Slurm's commands in text; parts: slurm_*
    nodes       an agent's answers to the loop (orchestrator/onnode/agent)
    training    a training's output, drawn from published results
    host        the worlds of the loop and of a command
    faults      sentences such as `node 3 dies in run 4`, and their effects
    play        a whole set, from `submit` to its score
    rehearsal   a planned set with faults; trials: many of them, with nodes that fail at random
    invariants  properties of every set
"""
