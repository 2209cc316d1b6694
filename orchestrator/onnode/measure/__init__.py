"""Bus bandwidth of an all-reduce with other nodes, in the workload's container: Python 3.7, and the
image's torch or rccl-tests.

agent/deep.py starts `python3 measure`. Requests are lines of JSON on its input, whose end ends it
and its processes:

    {"do": "measure", "id": 3, "way": "torch", "limit": 120, "bytes": 536870912,
     "members": [[NODE, ADDRESS, PORT], ...], "rank": 0}
    {"do": "cancel", "id": 3}        another of these nodes has failed

Members are in rank order. Answers are lines of JSON on its output; STATE is ok or error:

    ["deep-ready", GPUS, RCCL_TESTS, ADDRESS, PORT, NOTE]
    ["deep", ID, STATE, WAY, BYTES, MICROSECONDS, MBPS, WRONG, PORT, NOTE]

Each way has processes (`python3 measure WAY INDEX FD`) that stay between requests: importing torch
takes longer than measuring.
"""
