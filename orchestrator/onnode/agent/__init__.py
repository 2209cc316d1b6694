"""On a node: one process that holds it for the life of a job, and speaks to the loop in lines."""
