"""Why runs die, as data: what programs print then, what it means in one sentence, what mends it, the next command to type.

The signs are what PyTorch, torchrun, RCCL, ROCm, the amdgpu driver, Linux, Docker, podman, Slurm and Hugging Face print. A line has
the first cause in CAUSES that has a sign in it, so what is special stands before what is general. docs/explain.md has the table.
"""

from __future__ import annotations

from .cause import LOGS, PREFLIGHT, PROGRAM, RESUME, SYMPTOM, Cause
from .host_causes import HOST_CAUSES

PROGRAM_CAUSES: tuple[Cause, ...] = (
    Cause("gated_repository", PROGRAM, RESUME,
          "the Hugging Face account may not read a gated model",
          "ask for access on its page, and pass the token (`pass_env: [HF_TOKEN]`)",
          "gatedrepoerror | cannot access gated repo | not in the authorized list | access to model*is restricted | "
          "access to dataset*is restricted"),
    Cause("wrong_token", PROGRAM, RESUME,
          "a token is wrong or has expired",
          "make a new one, and pass it (`pass_env: [HF_TOKEN]`)",
          "invalid user token | 401 client error | invalid credentials in authorization header | "
          "invalid username or password | token*is invalid | user access token*expired | repositorynotfounderror | "
          "api_key not configured | 403 client error: forbidden | invalid api key | http 401 | error 401"),
    Cause("no_internet", PROGRAM, "orchestrator prepare --help",
          "the node cannot reach a server outside",
          "have data and models on the storage (orchestrator prepare), with HF_HUB_OFFLINE=1; or a proxy",
          "couldn't connect to 'http | max retries exceeded with url | localentrynotfounderror | "
          "cannot find the requested files in the disk cache and outgoing traffic | proxyerror | "
          "offlinemodeisenabled | outgoing traffic has been disabled | temporary failure in name resolution | "
          "urlopen error"),
    Cause("damaged_data", PROGRAM, "orchestrator prepare --help",
          "a file of the data or a checkpoint is damaged",
          "compare it with its checksum: orchestrator prepare --check",
          "nonmatchingchecksum | checksums didn't match | checksum mismatch | safetensoriserror | "
          "error while deserializing header | pytorchstreamreader failed | md5sum: warning | "
          "computed checksum did not match | sha256 mismatch | unpicklingerror | badzipfile | "
          "invalid header or archive is corrupted | file is corrupt | arrowinvalid | unexpected end of data | "
          "consistency check failed | hash mismatch | checksum does not match | not a gzipped file | "
          "crc check failed | integrity check"),
    Cause("missing_library", PROGRAM, LOGS,
          "a shared library is missing in the image, or does not fit",
          "use the image of the workload as it is; look at LD_LIBRARY_PATH and mounts",
          "cannot open shared object file | undefined symbol | version `*not found | glibc*not found | "
          "wrong elf class"),
    Cause("missing_module", PROGRAM, LOGS,
          "a Python module is missing in the image, or has another version",
          "use the image of the workload as it is; look at PYTHONPATH and mounts",
          "modulenotfounderror | importerror: cannot import name | no module named | packagenotfounderror | "
          "distributionnotfound | error: importerror"),
    Cause("checkpoint_mismatch", PROGRAM, LOGS,
          "a checkpoint does not fit the model",
          "use the checkpoint that the workload prepares, and its config",
          "error(s) in loading state_dict | size mismatch for | missing key(s) in state_dict | "
          "unexpected key(s) in state_dict | checkpoint*does not match*model | shape mismatch*checkpoint | "
          "missing key in checkpoint state_dict"),
    Cause("nan_loss", PROGRAM, LOGS,
          "the loss became NaN",
          "look at learning rate, precision and data; on one node only, at its GPUs",
          "found nan in | loss is nan | loss: nan | loss=nan | loss nan | 'loss': nan | nan loss | "
          "nan or inf found | loss became nan | found inf in local forward loss | found inf in local grad norm | "
          "loss is inf | nan in loss | non-finite loss | loss is not finite | found nan | loss diverged | "
          "rerundatastate*nan | contains nan"),
    Cause("bad_parallelism", PROGRAM, LOGS,
          "the numbers of GPUs, parallel parts and batch do not fit one another",
          "correct the config: the product of the parts must divide the world size",
          "world size*is not divisible by | world_size*is not divisible | world size*not divisible | "
          "is not divisible by*parallel | must be divisible by | batch size*not divisible | "
          "global batch size*divisible | is not divisible by micro batch"),
    Cause("compile_failed", PROGRAM, LOGS,
          "a kernel could not be compiled",
          "clear the compile caches (container.scratch), and use the image as it is",
          "triton.compiler.errors | inductorerror | error building extension | ninja: build stopped | "
          "backendcompilerfailed | hiprtc_error_compilation | hipcc failed | ptxas fatal | compilationerror | "
          "loweringexception | failed to compile"),
    Cause("syntax_error", PROGRAM, LOGS,
          "a file of the program or its config is not well-formed",
          "correct the line that the log names",
          "syntaxerror: | indentationerror: | taberror: | yaml.scanner.scannererror | yaml.parser.parsererror | "
          "jsondecodeerror | syntax error near unexpected token | syntax error: unexpected | "
          "unexpected eof while looking for"),
    Cause("bad_argument", PROGRAM, LOGS,
          "the program does not take an argument or a key of its config",
          "correct the config; the image may have another version of the program",
          "error: unrecognized arguments | error: argument  | error: the following arguments are required | "
          "hydra*could not override | configattributeerror | key*is not in struct | configkeyerror | "
          "invalid choice: | got an unexpected keyword argument | unbound variable | missingmandatoryvalue | "
          "configcompositionexception | no such option | interpolationkeyerror | environment variable*not found"),
    Cause("command_missing", PROGRAM, LOGS,
          "a command is not in the image",
          "use the image of the workload as it is; look at PATH",
          ": command not found | executable file not found in $path | command*not found | exec format error | "
          "can't open file"),
    Cause("data_missing", PROGRAM, PREFLIGHT,
          "a file or folder that the run needs is not there",
          "correct `data` of the site, or prepare the data: orchestrator prepare --check",
          "no such file or directory | files cannot be found at the path prefix | filenotfounderror | "
          "does not exist at path | dataset*not found | directory*not found | is not a directory | "
          "notadirectoryerror | data*does not exist | couldn't find*dataset | path does not exist | "
          "does not appear to have a file named | incorrect path_or_model_id"),
    Cause("permission_denied", PROGRAM, LOGS,
          "a file may not be read, written or executed",
          "look at owner and mode of the file, and at root squash of the share",
          "permission denied | permissionerror | operation not permitted | eacces"),
    Cause("rendezvous_timeout", SYMPTOM, PREFLIGHT,
          "not all nodes came to the rendezvous",
          "a node started late or cannot be reached: look at the log of each node",
          "seconds waiting for clients | rendezvoustimeouterror | rendezvousconnectionerror | "
          "rendezvousclosederror | client socket has timed out after | workers joined | "
          "timed out initializing process group | socket timeout*store | timed out waiting for*store | "
          "wait timeout after*keys | barrier timed out"),
    Cause("rdma_failed", SYMPTOM, PREFLIGHT,
          "RDMA between two nodes failed",
          "look at the links of both nodes: orchestrator preflight --deep",
          "got completion from peer*status= | got completion with error | transport retry counter exceeded | "
          "retry exceeded | net/ib*vendor err | rnr retry | got completion*error"),
    Cause("collective_timeout", SYMPTOM, LOGS,
          "a collective did not end in time (watchdog)",
          "one rank hung or fell behind: compare the ends of the nodes' logs",
          "caught collective operation timeout | watchdog*timeout | collective*timed out | "
          "timed out waiting*recv operation | operation*timed out in*wait | monitoredbarrier*timeout | "
          "failed to pass monitoredbarrier | heartbeat monitor timed out"),
    Cause("killed", SYMPTOM, LOGS,
          "a process was killed from outside (signal 9)",
          "mostly by a memory limit: dmesg on the node tells",
          "sigkill | killed by signal: killed | exitcode: -9 | exitcode  : -9 | ^killed |  killed  | signal 9"),
    Cause("crash", SYMPTOM, LOGS,
          "a process crashed",
          "look at the lines around it, and at the node's kernel log",
          "segmentation fault | sigsegv | bus error | sigbus | illegal instruction | exitcode: -11 | "
          "floating point exception | sigill | double free or corruption | malloc():  | free(): invalid | "
          "corrupted size vs | stack smashing"),
)  # fmt: skip
CAUSES = (*HOST_CAUSES, *PROGRAM_CAUSES)
BY_NAME = {cause.name: cause for cause in CAUSES}
ECHOES = ["childfailederror", "signalexception", "brokenpipe", "connectionreset", "connectionrefused", "connection refused", "distbackenderror", "distnetworkerror", "diststoreerror", "connection closed", "connection reset", "remote process exited", "keyboardinterrupt", "systemexit", "calledprocesserror", "exited unexpectedly", "unhandled system error", "unhandled cuda error", "sigterm", "terminate called", "core dumped", "fatal python error: aborted", "sigabrt", "broken pipe", "exitcode: -6", "exitcode: 1)", "during handling of the above", "processraisedexception", "processexitedexception", "^subprocess.", "socket closed", "eoferror"]
"""What is only said because another process has ended, or stands above what is meant."""
PASSED_OVER = (
    "warning",
    "[w0",
    "[w1",
    "[w ",
    "deprecat",
    "debug:",
    "[debug",
    "nccl info",
    "info:",
    "[info",
    "info]",
    "- info -",
    "ignored exception",
    "retrying",
)
"""A line with one of these near its begin does not end a program, unless it has one of COUNTS."""
COUNTS = ("nccl warn", "[c10d]")
"""`NCCL WARN` is RCCL's word for an error; what c10d warns of is all that it says."""
