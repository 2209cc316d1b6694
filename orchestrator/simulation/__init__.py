"""A world that is simulated: clock, nodes, Slurm, storage and trainings, in one thread and from one seed.

The loop, the decisions and the commands that run in it are the real ones; what they ask of their surroundings
(orchestrator/onnode/kernel/world.py) is answered here. Nothing in here waits: time is a number that rises from event to event.

    engine      the heap of events, processes and how they are killed
    storage     the file server as each host sees it, and how it fails; its parts are storage_*
    slurm       a cluster that answers Slurm's commands in Slurm's words; its parts are slurm_*
    nodes       what an agent answers to the loop's orders (orchestrator/onnode/agent)
    training    the output of a training, drawn from published results
    host        the worlds of the loop and of a command
    faults      sentences such as `node 3 dies in run 4`, and what they do
    play        a whole set, from `submit` to its score
    rehearsal   a set that a user is about to run, with faults; trials: many of them, with nodes that fail at random
    invariants  properties of every set, whatever happened to it
"""
