"""A simulated world from one seed, in one thread: clock, nodes, Slurm, storage and trainings.

The real loop and commands run in it, through `World` (onnode/kernel/world.py). Nothing waits.

    engine      the heap of events; processes
    storage     the file server as each host sees it; parts: storage_*
    slurm       a cluster that answers Slurm's commands in text; parts: slurm_*
    nodes       agents (orchestrator/onnode/agent); parts: agent_parts, machine, node_run
    training    a training's output, drawn from published results
    host        the loops of jobs
    desk        the user's commands
    faults      sentences such as `node 3 dies in run 4`, and their effects
    play        a set, from `submit` to its score; parts: rendered, set_trainings
    rehearsal   a planned set with faults; trials: many sets with random failures
"""
