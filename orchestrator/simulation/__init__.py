"""A world that is simulated: clock, nodes, Slurm, storage and trainings, in one thread and from one seed.

The loop, the decisions and the commands that run in it are the real ones; what they ask of their surroundings
(orchestrator/onnode/world.py) is answered here. Nothing in here waits: time is a number that rises from event to event.

    engine      the heap of events, processes and how they are killed
    storage     the file server as each host sees it; storage_server and storage_faults switch its faults
    slurm       a cluster that answers Slurm's commands in Slurm's words
    nodes       what an agent answers to the loop's orders (orchestrator/onnode/agent)
    training    the output of a training, drawn from published results
    host        the worlds of the loop and of a command
    play        a whole set, from `submit` to its score
"""
