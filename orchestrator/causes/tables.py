"""Causes as data: the output of programs, its meaning in one sentence, the fix, the next command to
type.

The signs are families of wordings of PyTorch, torchrun, RCCL, ROCm, the amdgpu driver, Linux,
Docker, podman, Slurm, Megatron, NeMo, Hydra and Hugging Face. A line has the first cause in CAUSES
with a matching sign, so special causes precede general ones (lines.py). docs/explain.md has the
table.
"""

from __future__ import annotations

from orchestrator.causes.cause import LOGS, PREFLIGHT, PROGRAM, RESUME, Cause
from orchestrator.causes.engine import CONTAINER_START, ENGINE_CAUSES
from orchestrator.causes.gpu import GPU_CAUSES
from orchestrator.causes.host import LIMIT_CAUSES, MACHINE_CAUSES
from orchestrator.causes.symptoms import SYMPTOM_CAUSES

PROGRAM_CAUSES: tuple[Cause, ...] = (
    Cause("gated_repository", PROGRAM, RESUME,
          "the Hugging Face account may not read a gated model",
          "ask for access on its page, and pass the token (`pass_env: [HF_TOKEN]`)",
          "access to gated | public gated repositories | access a gated | access gated repo | gatedrepo | gated model | "
          "gated dataset | is gated | not in the authorized list | not on the authorized list | "
          "access to model*is restricted | access to dataset*is restricted | awaiting a review from the repo | "
          "you must have access to it and be authenticated | you must be authenticated to access it | request access at | "
          "is a gated | ask for access"),
    Cause("rate_limited", PROGRAM, RESUME,
          "a server outside refuses more requests for now",
          "log in with a token, and have data and models on the storage (orchestrator prepare)",
          "429 client error | http 429 | status code 429 | status: 429 | error 429 | code: 429 | <response [429]> | "
          "too many requests | too many 429 | rate limit exceeded | rate limit reached | rate-limited | rate limited | "
          "rate limit for | hit the rate limit | your rate limit | ratelimiterror | ~rate limit"),
    Cause("no_internet", PROGRAM, "orchestrator prepare --help",
          "the node cannot reach a server outside",
          "have data and models on the storage (orchestrator prepare), with HF_HUB_OFFLINE=1; or a proxy",
          "couldn't connect to 'http | couldn't connect to the hugging face | max retries exceeded | "
          "localentrynotfounderror | outgoing traffic | proxyerror | cannot connect to proxy | tunnel connection failed | "
          "offlinemodeisenabled | offline mode is enabled | urlopen error | we cannot find the requested files | "
          "we can't find the requested files | cannot find the requested files in the | httpsconnectionpool | "
          "httpconnectionpool | connecttimeout | readtimeout | connecterror: | certificate_verify_failed | "
          "certificate verify failed | sslerror | sslcertverificationerror | ssl: wrong_version | curl: ( | "
          "wget: unable to resolve | wget*unable to establish | could not connect to server | "
          "failed to establish a new connection | couldn't reach | cannot reach http | can't reach | fstimeouterror | "
          "cannot reach server | unable to access 'http | dns error | dns resolution | temporary failure resolving | "
          "clientconnectorerror | cannot connect to host | serverdisconnectederror | server disconnected without | "
          "remoteprotocolerror | error while downloading from http | check your internet connection | "
          "please check your connection | no matching distribution found | could not find a version that satisfies | "
          "newconnectionerror | nameresolutionerror | endpointconnectionerror | could not connect to the endpoint url | "
          "502 server error | 503 server error | 504 server error | 500 server error | bad gateway for url | "
          "service unavailable for url | ~failed to download | ~unable to download"),
    Cause("wrong_token", PROGRAM, RESUME,
          "a token is wrong or has expired",
          "make a new one, and pass it (`pass_env: [HF_TOKEN]`)",
          "when calling*forbidden | (403) when calling | invalid user token | 401 client error | 403 client error | "
          "403 forbidden | 401 unauthorized | invalid credentials | invalid username or password | token*is invalid | "
          "token*expired | token*not valid | repositorynotfounderror | repository not found for url | "
          "api_key not configured | no api key | invalid api key | api key must be | api key is invalid | incorrect api key | "
          "http 401 | http 403 | error 401 | http error 403 | status code 401 | status code 403 | <response [401]> | "
          "<response [403]> | localtokennotfounderror | token is required | no token found | bad credentials | "
          "expired token | invalid token | authentication failed | authenticationerror | wandb*not logged in | "
          "not a valid model identifier | not a valid repository name | make sure to pass a token | private repository | "
          "could not read username for 'http | ask the project owner to grant you access | invalidaccesskeyid | "
          "accessdenied | signaturedoesnotmatch | nocredentialserror | unable to locate credentials | expiredtoken | "
          "~not logged in | ~unauthorized"),
    Cause("checkpoint_mismatch", PROGRAM, LOGS,
          "a checkpoint does not fit the model",
          "use the checkpoint that the workload prepares, and its config",
          "size mismatch between saved | "
          "this looks incorrect | trying to set a tensor of shape | in loading state_dict | loading state_dict for | "
          "size mismatch for | size mismatch*checkpoint | missing key(s) in state_dict | unexpected key(s) in state_dict | "
          "missing key in checkpoint | unexpected key in checkpoint | checkpoint*does not match*model | "
          "shape mismatch*checkpoint | checkpoint*shape mismatch | shape mismatch for | global shape mismatch | "
          "global shape*mismatch | incompatible checkpoint | checkpoint*incompatible | checkpoint*not compatible | "
          "checkpoint*was saved with | checkpoint*saved with a different | checkpoint's*does not match | "
          "argument value from checkpoint | value from checkpoint*is not equal | "
          "from checkpoint, the shape in current model | copying a param with shape | while copying the parameter named | "
          "different number of parameter groups | parameter group that doesn't match | state_dict*doesn't match the size | "
          "checkpoint has*but model | checkpoint*different parallel | checkpoint*different tensor | "
          "error loading checkpoint*shape | cannot copy out of meta tensor*checkpoint | optimizer state*does not match | "
          "no checkpoint shards match | sharding*does not match*checkpoint | ~unexpected keys in | ~missing keys in | "
          "~mismatched sizes | ~mismatched shapes | ~not found in checkpoint | ~not found in the checkpoint | "
          "~unexpected shape | ~param shape | ~missing in checkpoint | ~not in the checkpoint | ~not in checkpoint"),
    Cause("damaged_data", PROGRAM, "orchestrator prepare --help",
          "a file of the data or a checkpoint is damaged",
          "compare it with its checksum: orchestrator prepare --check",
          "could not parse modelproto | "
          "nonmatchingchecksum | nonmatchingsplitssizes | checksums didn't match | checksum mismatch | checksum error | "
          "checksum*did not match | checksum does not match | checksum failed | checksum verification failed | md5 mismatch | "
          "md5 check failed | sha256 mismatch | hash mismatch | hashes do not match | digest mismatch | expected sha256 | "
          "hash*does not match | consistency check failed | integrity check | safetensorerror | safetensorserror | "
          "deserializing header | headertoolarge | invalidheader | headertoosmall | metadataincompletebuffer | "
          "pytorchstreamreader | central directory | unpicklingerror | invalid load key | pickle data was truncated | "
          "ran out of input | badzipfile | not a zip file | not a zip archive | not a gzipped file | badgzipfile | "
          "archive is corrupted | arrowinvalid | not an arrow file | parquet magic bytes | not a parquet file | "
          "parquet*corrupt | expected to read*metadata bytes | unexpected end of data | unexpected end of file | "
          "unexpected end of stream | unexpected end of archive | compressed file ended before | incomplete or corrupt | "
          "unexpected eof in archive | crc check failed | bad crc | crc mismatch | crc error | zlib.error | "
          "incorrect header check | incorrect data check | invalid stored block | invalid compressed data | lzmaerror | "
          "zstderror | eof marker not found | datalosserror | corrupted record | truncated record | invalid magic | "
          "bad magic | wrong magic | magic number mismatch | file signature not found | truncated file | truncated archive | "
          "cannot identify image file | unidentifiedimageerror | image file is truncated | broken data stream | "
          "premature end of jpeg | corrupt jpeg | bad header | no data left in file | cannot read: /*.idx | "
          "cannot read: /*.bin | invalid index file | index file*corrupt | incorrect index file | "
          "cannot reshape array of size | read less bytes | failed to read*bytes | but only read | file is too small | "
          "mmap length is greater than file size | cannot mmap an empty file | buffer is smaller than requested size | "
          "size of*does not match the expected | tar: *skipping to next header | does not look like a tar archive | "
          "readerror: *tar | tarfile.readerror | readerror: unexpected end | headererror | git-lfs.github.com/spec | "
          "error reading webdataset | file is corrupt | file*corrupted | data*corrupted | corrupted*file | corrupted*data | "
          "checkpoint*corrupt | corrupt*checkpoint | data corruption | codec can't decode byte | invalid utf-8 | "
          "cannot be deserialized | ~is truncated | ~is corrupt | ~unexpected eof"),
    Cause("missing_library", PROGRAM, LOGS,
          "a shared library is missing in the image, or does not fit",
          "use the image of the workload as it is; look at LD_LIBRARY_PATH and mounts",
          "cannot open shared object file | undefined symbol | version `*not found | version 'glibc*not found | "
          "wrong elf class | invalid elf header | libnotfound | error while loading shared libraries | symbol lookup error | "
          "symbol*not found*version | cannot load library | could not load library | failed to load library | "
          "could not load dynamic library | unable to load*.so | failed to load*.so | could not load*.so | cannot load*.so | "
          "could not find*.so | cannot find*.so | file too short*.so | .so*file too short | no such file*.so | "
          "librccl*not found | libhip*not found | libtorch*not found | glibc*not found | glibcxx*not found | "
          "cxxabi*not found | cannot allocate memory in static tls block | cannot enable executable stack | ld.so: object | "
          "relocation error | undefined reference | abi mismatch | ~shared library*not found | ~dlopen"),
    Cause("missing_module", PROGRAM, LOGS,
          "a Python module is missing in the image, or has another version",
          "use the image of the workload as it is; look at PYTHONPATH and mounts",
          "from a slow version*installed | make sure you have*installed | "
          "failed to import*because of | modulenotfounderror | no module named | cannot import name | importerror: | "
          "packagenotfounderror | no package metadata | distributionnotfound | versionconflict | is required but found | "
          "is required for a normal functioning | attributeerror: module*has no attribute | "
          "attributeerror: partially initialized | make sure*is installed | does not recognize this architecture | "
          "this modeling file requires the following packages | requires the*library | requires*to be installed | "
          "requires python | numpy.dtype size changed | compiled using numpy 1.x cannot be run | could not import module | "
          "numpy.core.multiarray failed to import | requires torch | incompatible version of | version*is incompatible | "
          "flashattention*has been toggled on | package*was not found in the current environment | ~not installed | "
          "~please install | ~pip install | ~no module | ~needs to be installed | ~must be installed | ~import error | "
          "~cannot import | ~is not available. please | ~error: importerror"),
    Cause("nan_loss", PROGRAM, LOGS,
          "the loss became NaN",
          "look at learning rate, precision and data; on one node only, at its GPUs",
          "non-finite loss | nonfinite loss | "
          "found nan | found inf in local | nan or inf found | nan or inf detected | loss is nan | loss is inf | "
          "loss was nan | loss: nan | loss:nan | loss=nan | loss = nan | loss nan | loss': nan | loss\": nan | nan loss | "
          "nan in loss | nans in | contains nan | contain nan | nan detected | nan encountered | detected nan | "
          "encountered nan | nan values | nan/inf | nan or infinite | infinite or nan | is nan or | unexpected result nan | "
          "unexpected result inf | produced nan | became nan | turned nan | got nan | is nan. | is nan, stop | loss*is nan | "
          "loss*not finite | loss*non-finite | loss*infinite | non-finite loss | nonfinite | loss diverged | diverging loss | "
          "loss scale already at minimum | minimum loss scale | loss scale reached minimum | current loss scale*minimum | "
          "norm: nan | norm=nan | norm is nan | norm is non-finite | norm of order*is non-finite | norm*is nan | "
          "gradient*is nan | gradients*are nan | nan grad | =nan, | tensor(nan | rerundatastate*nan | ~non-finite | "
          "~not finite | ~non finite"),
    Cause("bad_parallelism", PROGRAM, LOGS,
          "the numbers of GPUs, parallel parts and batch do not fit one another",
          "correct the config: the product of the parts must divide the world size",
          "number of tasks per node*does not match | "
          "not divisible by | must be divisible | should be divisible | has to be divisible | be divisible by | must divide | "
          "not evenly divisible | cannot be divided | does not divide | must be a multiple of | should be a multiple of | "
          "multiple of tensor | world size*must be | world_size*must be | world size*does not | world size*is less than | "
          "world size*smaller than | world size*too small | parallel size*greater than | parallel_size*greater than | "
          "parallel size*exceeds | parallel*exceeds | parallel*larger than | parallel*product | dp*tp*pp*world | "
          "number of gpus*must | number of gpus*does not | not enough gpus for | mesh*world size | device_mesh*world | "
          "mesh should not be bigger than | invalid parallel dims | parallel_dims | train_batch_size is not equal | "
          "gradient_acc_step | number of experts*parallel"),
    Cause("compile_failed", PROGRAM, LOGS,
          "a kernel could not be compiled",
          "clear the compile caches (container.scratch), and use the image as it is",
          "triton.compiler.errors | compilationerror | compilation error | inductorerror | loweringexception | "
          "backendcompilerfailed | backend compiler failed | error building extension | ninja: build stopped | "
          "ninja is required | hiprtc_error | hiprtcexception | hiprtc: | hipcc failed | hipcc: | command failed: hipcc | "
          "ptxas fatal | failed to compile | compilation failed | compile error | compile failed | compilation terminated | "
          "llvm error | passmanager::run failed | fatal error: *.h | fatal error: *.hpp | error: compilation | "
          "failed to build | code object build failed | error [buildocl] | error [buildhip] | error [compile | comgr | "
          "outofresources: out of resource | out of resource: shared memory | invalid isa for target | cannot select: | "
          "hip kernel compil | [aiter] build*fail | build failed*jit | jit*build*fail | jit compil*fail | "
          "clang*error: linker command failed | lld: error | undefined hidden symbol | subprocess*'hipcc'*non-zero | "
          "torch._dynamo.exc.*compil | cppcompileerror | ninja*non-zero exit"),
    Cause("syntax_error", PROGRAM, LOGS,
          "a file of the program or its config is not well-formed",
          "correct the line that the log names",
          "syntaxerror: | indentationerror: | taberror: | scannererror | parsererror | composererror | constructorerror | "
          "yaml.constructor | jsondecodeerror | syntax error near unexpected | syntax error: | syntax error in | "
          "unexpected eof while looking for | unexpected end of file from | mapping values are not allowed | "
          "tomldecodeerror | tomllib | could not find expected ':' | found character*that cannot start any token | "
          "found undefined alias | found duplicate key | expecting property name | expecting value: line | "
          "is not a valid json | not valid json | malformed | yamlerror | duplicateoptionerror | missingsectionheadererror | "
          "configparser. | overrideparseexception | lexernoviablealt | grammarparseerror"),
    Cause("variable_missing", PROGRAM, LOGS,
          "a variable that the program needs is not set",
          "set it: --env NAME=VALUE, or `env` of the workload; config_<SYSTEM>.sh of the bundle has those of the system",
          "environment variable*not found | environment variable*not set | environment variable*is required | "
          "environment variable*missing | missing environment variable | environment variable*expected | "
          ": unbound variable | parameter null or not set | parameter not set"),
    Cause("bad_argument", PROGRAM, LOGS,
          "the program does not take an argument or a key of its config",
          "correct the config; the image may have another version of the program",
          "received both*choose one | "
          "unrecognized argument | unrecognized option | unknown argument | unknown option | unexpected argument | "
          "error: argument  | the following arguments are required | one of the arguments | expected one argument | "
          "expected at least one argument | ambiguous option | not allowed with argument | option*requires an argument | "
          "argument*is required | no such option | invalid option | invalid choice | invalid value for | not a valid choice | "
          "could not override | is not in struct | configattributeerror | configkeyerror | configtypeerror | "
          "missingmandatoryvalue | missing mandatory value | configcompositionexception | missingconfigexception | "
          "interpolationkeyerror | interpolationresolution | interpolationtomissing | omegaconf.errors | "
          "could not append to config | multiple values for | in 'defaults' list | primary config | "
          "unsupportedinterpolation | unexpected keyword | "
          "missing*required positional argument | missing*required keyword-only | takes*positional argument | "
          "validation error for | validation errors for | unexpected field | extra inputs are not permitted | "
          "extra fields not permitted | "
          "field required | invalid literal for int | could not convert string to float | misconfigurationexception | "
          "some specified arguments are not used | error in call to target | instantiationexception | "
          "no such file or directory: 'conf | not a valid value for | ~missing option | ~missing argument | "
          "~is not a valid option | ~conflicting arguments | ~mutually exclusive"),
    Cause("command_missing", PROGRAM, LOGS,
          "a command is not in the image",
          "use the image of the workload as it is; look at PATH",
          "failed to run command*no such file | [errno 2] no such file or directory: 'ffmpeg | "
          "[errno 2] no such file or directory: 'docker | [errno 2] no such file or directory: 'bash' | "
          "[errno 2] no such file or directory: 'python' | [errno 2] no such file or directory: 'python3' | "
          "[errno 2] no such file or directory: 'nvidia-smi | [errno 2] no such file or directory: 'taskset | "
          "[errno 2] no such file or directory: 'lscpu | [errno 2] no such file or directory: 'ssh' | "
          "[errno 2] no such file or directory: 'mpirun | [errno 2] no such file or directory: 'srun | "
          "[errno 2] no such file or directory: 'make' | [errno 2] no such file or directory: 'g++' | "
          "[errno 2] no such file or directory: 'gcc' | [errno 2] no such file or directory: 'nvcc | "
          "[errno 2] no such file or directory: 'git' | [errno 2] no such file or directory: 'numactl | env: *no such file | "
          "executable file not found | executable*not found in $path | executable `*not found | exec: *not found | "
          "exec: *no such file | exec: *stat | no such file or directory*exec | exec format error | "
          "cannot execute binary file | required file not found | bad interpreter | execve*no such file | "
          "failed to execute: | could not exec | executable not found | ^bash: torchrun: | "
          "[errno 2] no such file or directory: 'torchrun | [errno 2] no such file or directory: 'rocm | "
          "[errno 2] no such file or directory: 'hipcc | [errno 2] no such file or directory: 'ninja | ~command not found | "
          "~command*not found | ~sh: *: not found"),
    Cause("permission_denied", PROGRAM, LOGS,
          "a file may not be read, written or executed",
          "look at owner and mode of the file, and at root squash of the share",
          "permission denied | permissionerror | operation not permitted | eacces | [errno 13] | [errno 1] | (os error 13) | "
          "insufficient permissions | must be root | must be run as root | detected dubious ownership | not writable | "
          "is not writeable | not readable | permissions are too open | rc = -13 | ~access denied | ~not owned by | "
          "~cannot create directory"),
    Cause("unknown_user", PROGRAM, LOGS,
          "the user of the container has no name there",
          "mount /etc/passwd, or set USER, LOGNAME and HOME (`container.options`), or run it as root",
          "getpwuid | uid not found | no username set in the environment | cannot find name for user id | i have no name | "
          "no such user | unable to find user | no matching entries in passwd | unknown user"),
    Cause("rccl_mismatch", PROGRAM, LOGS,
          "the nodes do not run the same RCCL or the same model of a collective",
          "the same image on every node (preflight tells), and no other librccl on LD_LIBRARY_PATH",
          "mismatched nccl version | mismatched rccl version | mismatch*nccl version | nccl version mismatch | "
          "rccl version mismatch | net plugin*version mismatch | mismatched collective | collective*mismatch | "
          "detected mismatch between collectives"),
    CONTAINER_START,
    Cause("data_missing", PROGRAM, PREFLIGHT,
          "a file or folder that the run needs is not there",
          "correct `data` of the site, or prepare the data: orchestrator prepare --check",
          "(404) when calling | dataset does not exist | files cannot be found at the path prefix | filenotfounderror | "
          "notadirectoryerror | "
          "isadirectoryerror | [errno 2] | (os error 2) | does not exist at path | datasetnotfounderror | "
          "datafilesnotfounderror | emptydatasetserror | entrynotfounderror | entry not found for url | "
          "revisionnotfounderror | doesn't exist on the hub | does not appear to have a file named | "
          "does not appear to have files named | error no file named | incorrect path_or_model_id | repo id must be | "
          "hfvalidationerror | loading a checkpoint for mp= | can't load tokenizer | can't load the configuration | "
          "can't load the model | can't load config | can't open file | cannot open*no such file | unable to open file | "
          "bash: *no such file | sh: *no such file | : line *: *no such file | nosuchkey | nosuchbucket | num_samples=0 | "
          "num_samples should be a positive | couldn't chdir | ~no checkpoint found | ~no checkpoints found | "
          "~checkpoint*not found | ~could not find*checkpoint | ~cannot find*checkpoint | ~checkpoint*missing | "
          "~unable to find*checkpoint | ~could not locate | ~no tokenizer file | ~tokenizer*not found | ~vocab*not found | "
          "~no data files | ~no files found | ~dataset*is empty | ~is empty*dataset | ~no samples | ~dataset*not found | "
          "~no such file | ~doesn't exist | ~not found at | ~file not found | ~directory*not found | ~not a directory | "
          "~cannot be found | ~missing file | ~could not find*file | ~cannot find*file | ~could not find*data | "
          "~cannot find*path | ~cannot find*dataset | ~cannot find*directory | ~not found in path | ~couldn't find | "
          "~path*not found | ~not exist | ~is missing"),
)  # fmt: skip
CAUSES = (
    *MACHINE_CAUSES,
    *ENGINE_CAUSES,
    *LIMIT_CAUSES,
    *GPU_CAUSES,
    *PROGRAM_CAUSES,
    *SYMPTOM_CAUSES,
)
BY_NAME = {cause.name: cause for cause in CAUSES}
EXACTER = {
    "container_start": (
        *(cause.name for cause in (*ENGINE_CAUSES, *LIMIT_CAUSES)),
        *("command_missing", "permission_denied", "missing_library"),
    ),
    "wrong_token": ("gated_repository",),
    "missing_module": ("missing_library",),
    "node_kernel": ("gpu_lost", "gpu_memory_error", "nic_failed"),
    "link_down": ("nic_failed",),
}
"""Causes that describe the same end more exactly, such as the page of a gated model after its
HTTP error."""
