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
          "access to dataset*is restricted | gated repo | is gated | awaiting a review from the repo authors | "
          "you must have access to it and be authenticated"),
    Cause("rate_limited", PROGRAM, RESUME,
          "a server outside refuses more requests for now",
          "log in with a token, and have data and models on the storage (orchestrator prepare)",
          "429 client error | too many requests | rate limit exceeded | rate-limited | rate limited"),
    Cause("wrong_token", PROGRAM, RESUME,
          "a token is wrong or has expired",
          "make a new one, and pass it (`pass_env: [HF_TOKEN]`)",
          "invalid user token | 401 client error | invalid credentials in authorization header | "
          "invalid username or password | token*is invalid | user access token*expired | repositorynotfounderror | "
          "api_key not configured | 403 client error: forbidden | invalid api key | http 401 | error 401 | "
          "localtokennotfounderror | token is required | no token found | bad credentials | expired token | "
          "invalid token | token has expired | authentication failed | http error 401 | http error 403 | "
          "403 client error | 403 forbidden | wandb*not logged in | api key must be | no api key configured | "
          "not logged in | invalid status code from registry 40 | not a valid model identifier | "
          "make sure to pass a token | private repository"),
    Cause("no_internet", PROGRAM, "orchestrator prepare --help",
          "the node cannot reach a server outside",
          "have data and models on the storage (orchestrator prepare), with HF_HUB_OFFLINE=1; or a proxy",
          "couldn't connect to 'http | max retries exceeded with url | localentrynotfounderror | "
          "cannot find the requested files in the disk cache and outgoing traffic | proxyerror | "
          "offlinemodeisenabled | outgoing traffic has been disabled | temporary failure in name resolution | "
          "urlopen error | connection error, and we cannot find | we cannot find the requested files in the | "
          "httpsconnectionpool | connecttimeout | readtimeout | certificate_verify_failed | "
          "certificate verify failed | curl: (6) | curl: (7) | curl: (28) | curl: (35) | "
          "could not connect to server | failed to establish a new connection | couldn't reach | "
          "cannot reach https | fstimeouterror | offline mode is enabled | cannot reach server | "
          "max retries exceeded | unable to access 'http | dns error | temporary failure resolving | "
          "failed to download"),
    Cause("damaged_data", PROGRAM, "orchestrator prepare --help",
          "a file of the data or a checkpoint is damaged",
          "compare it with its checksum: orchestrator prepare --check",
          "nonmatchingchecksum | checksums didn't match | checksum mismatch | safetensoriserror | "
          "error while deserializing header | pytorchstreamreader failed | md5sum: warning | "
          "computed checksum did not match | sha256 mismatch | unpicklingerror | badzipfile | "
          "invalid header or archive is corrupted | file is corrupt | arrowinvalid | unexpected end of data | "
          "consistency check failed | hash mismatch | checksum does not match | not a gzipped file | "
          "crc check failed | integrity check | digest mismatch | invalid magic | bad magic | "
          "pickle data was truncated | headertoolarge | invalidheader | truncated file | truncated archive | "
          "is truncated | unexpected end of file | unexpected eof | is corrupt | not a zip archive | "
          "not a zip file | eof marker not found | zlib.error | expected sha256 | cannot identify image file | "
          "image file is truncated | bad crc | deserializing header | file signature not found | "
          "not a parquet file | file*corrupted | data*corrupted | corrupted*file | checkpoint*corrupted | "
          "bad header | no data left in file | cannot read: /*.idx | cannot read: /*.bin | "
          "cannot reshape array of size | file is too small | wrong magic | failed to read*bytes | but only read | "
          "invalid index file | read less bytes | size of*does not match the expected"),
    Cause("missing_library", PROGRAM, LOGS,
          "a shared library is missing in the image, or does not fit",
          "use the image of the workload as it is; look at LD_LIBRARY_PATH and mounts",
          "cannot open shared object file | undefined symbol | version `*not found | glibc*not found | "
          "wrong elf class | libnotfound | error while loading shared libraries | symbol lookup error | "
          "cannot load library | could not load library | unable to load*.so | failed to load*.so | "
          "no such file*.so | librccl | libhip*not found | libtorch*not found | cannot find*.so | dlopen"),
    Cause("missing_module", PROGRAM, LOGS,
          "a Python module is missing in the image, or has another version",
          "use the image of the workload as it is; look at PYTHONPATH and mounts",
          "modulenotfounderror | importerror: cannot import name | no module named | packagenotfounderror | "
          "distributionnotfound | error: importerror | is not installed | please install | no module | "
          "but is not installed | pip install | requires*to be installed | requires the*library | versionconflict | "
          "is required but found | is required for a normal functioning | attributeerror: module*has no attribute | "
          "make sure*is installed | is not available. please | needs to be installed | not installed | "
          "must be installed | cannot import | import error"),
    Cause("checkpoint_mismatch", PROGRAM, LOGS,
          "a checkpoint does not fit the model",
          "use the checkpoint that the workload prepares, and its config",
          "error(s) in loading state_dict | size mismatch for | missing key(s) in state_dict | "
          "unexpected key(s) in state_dict | checkpoint*does not match*model | shape mismatch*checkpoint | "
          "missing key in checkpoint state_dict | checkpointingexception | shape mismatch for | "
          "global shape mismatch | mismatched sizes | incompatible checkpoint | checkpoint*incompatible | "
          "not found in checkpoint | loading state_dict | unexpected keys in | checkpoint*was saved with | "
          "checkpoint's*does not match | unexpected shape | param shape | keyerror: 'model | "
          "key*missing in checkpoint"),
    Cause("nan_loss", PROGRAM, LOGS,
          "the loss became NaN",
          "look at learning rate, precision and data; on one node only, at its GPUs",
          "found nan in | loss is nan | loss: nan | loss=nan | loss nan | 'loss': nan | nan loss | "
          "nan or inf found | loss became nan | found inf in local forward loss | found inf in local grad norm | "
          "loss is inf | nan in loss | non-finite loss | loss is not finite | found nan | loss diverged | "
          "rerundatastate*nan | contains nan | loss scale already at minimum | =nan, | nan detected | "
          "nan encountered | nans in | nan gradient | gradient*nan | grad norm*nan | norm*is non-finite | nan/inf | "
          "loss was nan | nan values | infinite loss | non-finite | total norm of order*is non-finite | "
          "unexpected result nan | loss*is nan | lm loss: nan | not finite | non finite | infinite or nan"),
    Cause("bad_parallelism", PROGRAM, LOGS,
          "the numbers of GPUs, parallel parts and batch do not fit one another",
          "correct the config: the product of the parts must divide the world size",
          "world size*is not divisible by | world_size*is not divisible | world size*not divisible | "
          "is not divisible by*parallel | must be divisible by | batch size*not divisible | "
          "global batch size*divisible | is not divisible by micro batch | not divisible by | not divisible | "
          "should be divisible | must be a multiple of | world size*must be | tensor parallel*exceeds | "
          "parallel size*greater than | number of gpus*must"),
    Cause("compile_failed", PROGRAM, LOGS,
          "a kernel could not be compiled",
          "clear the compile caches (container.scratch), and use the image as it is",
          "triton.compiler.errors | inductorerror | error building extension | ninja: build stopped | "
          "backendcompilerfailed | hiprtc_error_compilation | hipcc failed | ptxas fatal | compilationerror | "
          "loweringexception | failed to compile | hiprtcexception | hiprtc: | llvm error | fatal error:*.h | "
          "compilation failed | compile error | passmanager::run failed | error: compilation | "
          "command failed: hipcc | failed to build | code object build failed | error [buildocl] | error [compile | "
          "compilation error"),
    Cause("syntax_error", PROGRAM, LOGS,
          "a file of the program or its config is not well-formed",
          "correct the line that the log names",
          "syntaxerror: | indentationerror: | taberror: | yaml.scanner.scannererror | yaml.parser.parsererror | "
          "jsondecodeerror | syntax error near unexpected token | syntax error: unexpected | "
          "unexpected eof while looking for | yaml.constructor | mapping values are not allowed | tomldecodeerror | "
          "could not find expected | found character*that cannot start any token | expecting property name"),
    Cause("bad_argument", PROGRAM, LOGS,
          "the program does not take an argument or a key of its config",
          "correct the config; the image may have another version of the program",
          "error: unrecognized arguments | error: argument  | error: the following arguments are required | "
          "hydra*could not override | configattributeerror | key*is not in struct | configkeyerror | "
          "invalid choice: | got an unexpected keyword argument | unbound variable | missingmandatoryvalue | "
          "configcompositionexception | no such option | interpolationkeyerror | environment variable*not found | "
          "unrecognized option | unknown option | invalid option | unknown argument | unrecognized argument | "
          "validation error for | no such file or directory: 'conf | unexpected field | "
          "extra inputs are not permitted | parameter null or not set | invalid value for | argument*is required | "
          "invalid literal for int | got multiple values for"),
    Cause("command_missing", PROGRAM, LOGS,
          "a command is not in the image",
          "use the image of the workload as it is; look at PATH",
          ": command not found | executable file not found in $path | command*not found | exec format error | "
          "can't open file | executable file*not found | exec: * not found | no such file or directory*exec | "
          ": not found | cannot execute binary file | required file not found"),
    Cause("data_missing", PROGRAM, PREFLIGHT,
          "a file or folder that the run needs is not there",
          "correct `data` of the site, or prepare the data: orchestrator prepare --check",
          "no such file or directory | files cannot be found at the path prefix | filenotfounderror | "
          "does not exist at path | dataset*not found | directory*not found | is not a directory | "
          "notadirectoryerror | data*does not exist | couldn't find*dataset | path does not exist | "
          "does not appear to have a file named | incorrect path_or_model_id | loading a checkpoint for mp= | "
          "does not exist | no such file | file not found | unable to open file | no files found | not found at | "
          "[errno 2] | cannot open*: no such | doesn't exist | not a directory | no checkpoint found | "
          "no data files | is empty*dataset | cannot be found | can't load tokenizer | missing file | "
          "could not find*file | cannot find*file | could not find*data | cannot find*path | cannot find*dataset | "
          "could not find*checkpoint | cannot find*checkpoint | cannot find*directory"),
    Cause("permission_denied", PROGRAM, LOGS,
          "a file may not be read, written or executed",
          "look at owner and mode of the file, and at root squash of the share",
          "permission denied | permissionerror | operation not permitted | eacces | access denied | [errno 13] | "
          "[errno 1] operation not permitted | insufficient permissions | must be root | "
          "detected dubious ownership | not owned by | not writable | cannot create directory"),
    Cause("rendezvous_timeout", SYMPTOM, PREFLIGHT,
          "not all nodes came to the rendezvous",
          "a node started late or cannot be reached: look at the log of each node",
          "seconds waiting for clients | rendezvoustimeouterror | rendezvousconnectionerror | "
          "rendezvousclosederror | client socket has timed out after | workers joined | "
          "timed out initializing process group | socket timeout*store | timed out waiting for*store | "
          "wait timeout after*keys | barrier timed out | timed out*tcpstore | tcpstore*timed out | "
          "connect() timed out | connectfullmesh failed | waiting for*ranks | gloo*connect*timeout | "
          "rendezvous*timed out | rendezvous*timeout | the join attempt | failed to connect to the master | "
          "rdzv*timed out | timed out after*waiting for | failed to rendezvous | rendezvous*closed"),
    Cause("rdma_failed", SYMPTOM, PREFLIGHT,
          "RDMA between two nodes failed",
          "look at the links of both nodes: orchestrator preflight --deep",
          "got completion from peer*status= | got completion with error | transport retry counter exceeded | "
          "retry exceeded | net/ib*vendor err | rnr retry | got completion*error | local protection error | "
          "remote access error | work request flushed | wr_flush | ibv_poll_cq | ibv_post_send | ucx  error | "
          "ibv_modify_qp | status 12 | remote operation error | local qp operation error"),
    Cause("collective_timeout", SYMPTOM, LOGS,
          "a collective did not end in time (watchdog)",
          "one rank hung or fell behind: compare the ends of the nodes' logs",
          "caught collective operation timeout | watchdog*timeout | collective*timed out | "
          "timed out waiting*recv operation | operation*timed out in*wait | monitoredbarrier*timeout | "
          "failed to pass monitoredbarrier | heartbeat monitor timed out | timed out waiting*for send operation | "
          "before timing out | collective operation timeout | nccl*timed out | barrier*timeout | "
          "terminating the process after*timeout | watchdog hang | timeout*in collective | flight recorder*timeout | "
          "work*timed out | watchdog got stuck | stuck*collective | collectives are*desync | nccl watchdog | "
          "watchdog thread*timeout | desync | timeout at ncc"),
    Cause("killed", SYMPTOM, LOGS,
          "a process was killed from outside (signal 9)",
          "mostly by a memory limit: dmesg on the node tells",
          "killed by signal: killed | exitcode: -9 | ^killed | signals.sigkill: 9 | signal: 9 | was killed | "
          "task 0: killed | exited with signal 9 | terminated by signal 9 | oom-killed | script: killed | "
          "is killed by signal: killed"),
    Cause("crash", SYMPTOM, LOGS,
          "a process crashed",
          "look at the lines around it, and at the node's kernel log",
          "segmentation fault | sigsegv | bus error | sigbus | illegal instruction | exitcode: -11 | "
          "floating point exception | sigill | double free or corruption | malloc():  | free(): invalid | "
          "corrupted size vs | stack smashing | exitcode: -7 | exitcode: -4 | exitcode: -8 | caught signal 11 | "
          "caught signal 7 | caught signal 4 | general protection fault | stack overflow | signal: 11 | "
          "signals.sigsegv | heap corruption | assertion failure in | unhandled exception: | pure virtual method | "
          "core dumped)*segmentation"),
)  # fmt: skip
CAUSES = (*HOST_CAUSES, *PROGRAM_CAUSES)
BY_NAME = {cause.name: cause for cause in CAUSES}
ECHOES = (
    "childfailederror", "signalexception", "brokenpipe", "connectionreset", "connectionrefused",
    "connection refused", "distbackenderror", "distnetworkerror", "diststoreerror", "connection closed",
    "connection reset", "remote process exited", "keyboardinterrupt", "systemexit", "calledprocesserror",
    "exited unexpectedly", "unhandled system error", "unhandled cuda error", "sigterm", "terminate called",
    "core dumped", "fatal python error: aborted", "sigabrt", "broken pipe", "exitcode: -6", "exitcode: 1)",
    "during handling of the above", "processraisedexception", "processexitedexception", "^subprocess.",
    "socket closed", "eoferror",
)  # fmt: skip
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
