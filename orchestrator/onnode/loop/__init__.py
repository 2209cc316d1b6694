"""On the batch host: the job, the nodes that it holds, and its runs."""
