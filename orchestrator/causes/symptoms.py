"""Symptoms that can hide a deeper cause, echoes of another process's end, and harmless lines.
See tables.py."""

from __future__ import annotations

from orchestrator.causes.cause import END, LOGS, PREFLIGHT, SYMPTOM, Cause

SYMPTOM_CAUSES: tuple[Cause, ...] = (
    Cause("no_route", SYMPTOM, PREFLIGHT,
          "a node cannot be reached from another one",
          "correct `network.socket_ifname` of the site; look at routes and firewalls",
          "gloo*timed out*remote=[127.0.0.1] | "
          "no route to host | network is unreachable | network unreachable | host is unreachable | host unreachable | "
          "ehostunreach | enetunreach | no path to host | host is down | software caused connection abort | errno: 110 | "
          "[errno 110] | [errno 101] | errno: 113 | errno: 101 | errno 113 | modify_qp*timed out | modify_qp*errno 110 | "
          "modify qp*timed out | modify_qp*unreachable | nccl warn*connection timed out | nccl warn*connect*timed out | "
          "call to connect*timed out | connect to*failed*timed out | failed to connect to*timed out | "
          "connection timed out*peer | unreachable peer | ib*address resolution*fail | rdma_cm_event_unreachable | "
          "rdma_cm_event_addr_error | rdma_resolve"),
    Cause("name_unknown", SYMPTOM, PREFLIGHT,
          "a host name is not known",
          "have the nodes in DNS or /etc/hosts; `getent hosts NAME` tells",
          "gai error | gaierror | name or service not known | temporary failure in name resolution | could not resolve host | "
          "nodename nor servname | getaddrinfo | unknown host | no address associated with hostname | name does not resolve | "
          "failed to resolve host | unable to resolve host | cannot resolve host | could not resolve*address | "
          "hostname*cannot be resolved | error encountered when getting address info"),
    Cause("rendezvous_timeout", SYMPTOM, PREFLIGHT,
          "not all nodes came to the rendezvous",
          "a node started late or cannot be reached: look at the log of each node",
          "diststoreerror: socket timeout | waiting for clients | rendezvoustimeouterror | rendezvousconnectionerror | "
          "rendezvousclosederror | rendezvousgracefulexit | client socket has timed out | workers joined | clients joined | "
          "nodes joined | timed out initializing process group | socket timeout*store | timed out waiting for*store | "
          "wait timeout after | barrier timed out | timed out*tcpstore | tcpstore*timed out | tcpstore*timeout | "
          "connect() timed out | connectfullmesh failed | waiting for*ranks | waiting for all*to join | waiting for*to join | "
          "gloo*connect*timeout | rendezvous*timed out | rendezvous*timeout | rendezvous*failed | the join attempt | "
          "failed to connect to the master | rdzv*timed out | timed out after*waiting for | failed to rendezvous | "
          "rendezvous*closed | c10d store has failed | not all ranks joined | failed to join | did not join | "
          "failed to connect to any network address | bootstrap*timeout | bootstrap*timed out | "
          "timed out*connecting to coordinator | deadline_exceeded*coordination"),
    Cause("rdma_failed", SYMPTOM, PREFLIGHT,
          "RDMA between two nodes failed",
          "look at the links of both nodes: orchestrator preflight --deep",
          "got completion | transport retry counter exceeded | retry exceeded | retry_exc | net/ib*vendor err | rnr retry | "
          "local protection error | remote access error | remote operation error | remote invalid request | "
          "local qp operation error | work request flushed | wr_flush | ibv_poll_cq | ibv_post_send | ibv_post_recv | "
          "ucx  error | ucx error | modify qp | modify_qp | status 12 | syndrome 0x | error cqe | cqe with error | qp fatal | "
          "qp_fatal | ib_wc_ | ibv_wc_ | transport retry count exceeded | completion with error | completion error | "
          "rdma*retry"),
    Cause("collective_timeout", SYMPTOM, LOGS,
          "a collective did not end in time (watchdog)",
          "one rank hung or fell behind: compare the ends of the nodes' logs",
          "collective operation timeout | caught collective | watchdog*timeout | watchdog*timed out | watchdog hang | "
          "watchdog got stuck | watchdog thread*timeout | collective*timed out | timeout*in collective | timeout*collective | "
          "timed out waiting*recv operation | timed out waiting*for send operation | operation*timed out in*wait | "
          "monitoredbarrier*timeout | failed to pass monitoredbarrier | heartbeat monitor timed out | before timing out | "
          "nccl*timed out | rccl*timed out | barrier*timeout | barrier*timed out | terminating the process after*timeout | "
          "flight recorder*timeout | work*timed out | stuck*collective | nccl watchdog | desync | timeout at ncc | "
          "allreduce*timed out | all_reduce*timed out | allgather*timed out | reduce_scatter*timed out | heartbeat timeout | "
          "observed timeout dump signal | timed out in*recv | gloo*timed out | timed out waiting for*rank"),
    Cause("killed", END, LOGS,
          "a process was killed from outside (signal 9)",
          "mostly by a memory limit: dmesg on the node tells",
          "signal sigkill | killed by signal: killed | killed by signal 9 | exitcode: -9) | ^killed | signals.sigkill | "
          "signal: 9 | task*: killed | exited with signal 9 | terminated by signal 9 | script: killed | killed (signal 9 | "
          "process*was killed | ]: killed | : killed  | : line *: *killed | received sigkill | with sigkill | signal 9 (killed | "
          "exit code 137 | exit status 137 | exited with code 137 | exited 137"),
    Cause("crash", END, LOGS,
          "a process crashed",
          "look at the lines around it, and at the node's kernel log",
          "segmentation fault | segfault at | sigsegv | bus error | sigbus | illegal instruction | sigill | "
          "floating point exception | sigfpe | exitcode: -11) | exitcode: -7) | exitcode: -4) | exitcode: -8) | "
          "double free or corruption | malloc(): | free(): invalid | free(): double | malloc_consolidate | munmap_chunk(): | "
          "corrupted size vs | corrupted double-linked | stack smashing | heap corruption | buffer overflow detected | "
          "caught signal 7 | caught signal 4 | caught signal 8 | general protection fault | stack overflow | signal: 11 | "
          "signal 11 | signal: segmentation | assertion failure in | unhandled exception: | pure virtual method | "
          "core dumped)*segmentation | trap divide error | invalid opcode | exit code 139 | exited with code 139 | "
          "deadlysignal | addresssanitizer"),
)  # fmt: skip
ECHOES = (
    "childfailederror", "signalexception", "brokenpipe", "broken pipe", "connectionreset", "connectionrefused", "connectionaborted",
    "connection refused", "connection closed", "connection reset", "connection was closed", "connection aborted",
    "distbackenderror", "distnetworkerror", "diststoreerror", "nccl error", "rccl error", "ncclremoteerror", "ncclinternalerror",
    "ncclsystemerror", "ncclunhandledcudaerror", "remote process exited", "unhandled system error", "unhandled cuda error",
    "communicator was aborted", "nccl communicator", "remote peer", "remote error", "socket closed", "socket recv failed",
    "peer closed", "peer is gone", "failed to execute operation", "proxy call to rank", "another rank", "other ranks",
    "remote rank",
    "keyboardinterrupt", "systemexit", "calledprocesserror", "^subprocess.", "exited unexpectedly", "processraisedexception",
    "processexitedexception", "processfailure", "died unexpectedly", "returned non-zero exit status", "non-zero exit code",
    "exit code: 1", "exit code 1", "exitcode: ", "sigterm", "signal 15", "terminate called", "core dumped",
    "fatal python error: aborted", "sigabrt", "during handling of the above",
    "the above exception was", "eoferror", "^orchestrator: local rank", "killed by us",
    "force terminated", "job step aborted", "due to task failure", "shutting down", "worker group failed", "worker failure",
    "sharedmemory object", "resource_tracker", "semaphore objects", "in destructor", "exception ignored",
    "store->get", "failed to recv", "failed to send", "checkpointexception ranks", "nccl operations have failed or timed out",
    "async exception", "some nccl operations", "to avoid data inconsistency", "data inconsistency", "fatal error in process group",
)  # fmt: skip
"""Lines that only follow another process's end, or precede the real message."""
PASSED_OVER = (
    r"warning|deprecat|\[w ?\d|\[w |\[info|\[debug|\binfo\b ?[:\]|-]|\bdebug\b ?[:\]|-]|\b(?:info|debug) {1,8}\S|nccl info|"
    r"ignored exception|exception ignored|retrying|will retry|falling back|fallback|fall back|no user action|"
    r": corrected|\bno (?:un)?correct|"
    r"starting from scratch|^\++ |^export |^declare -|^[a-z0-9_]+=\S*$"
)
"""A line with one of these near its start ends no program, unless it starts with an exception or
has one of COUNTS."""
COUNTS = (
    "nccl warn",
    "non-finite loss",
    "[c10d]",
    "md5sum: warning",
    "blocked for more than",
    "does not support the kernel abi",
    "] error",
    "*error*",
)
"""`NCCL WARN` is RCCL's word for an error; c10d has only warnings."""
