"""Forms of lines about failures, without the causes.

The form decides which line counts (reading.py); only then is the line compared with the signs of
the causes (lines.py). So the same line counts if no cause is known.

No expression has nested repetitions: the time for a line grows with its length.
"""

from __future__ import annotations

import re

from orchestrator.causes.cause import ECHO, END, MACHINE, MENTION, PROGRAM, SYMPTOM, WRAPPER
from orchestrator.onnode.policy.trouble import is_harmless

_NEAR_START = 160
EXCEPTION = re.compile(
    r"(?:Uncaught |Unhandled exception: |Caught )?"
    r"(?:[A-Za-z_]\w*\.){0,12}[A-Za-z_]\w*"
    r"(?:Error|Exception|Interrupt|Failure|Exit|OutOfResources|Unsupported|BackendCompilerFailed"
    r"|MissingMandatoryValue|StopIteration)"
    r"(?:\(\w{1,40}\))?(?::\s|:?$)|(?:[a-z_]\w*\.){1,12}[A-Z]\w+: |StopIteration(?:: |:?$)"
)
"""The last line of a traceback: a type, dotted or with a usual name, and a colon or nothing."""
_NOISE = re.compile(
    r"\++ |[\s^~|=*.+-]*$|[│╭╰❱]|#?\d{1,3} +0x|frame #\d+|#\d+ |exception raised from |\[new lwp"
    r"|.{0,120}\[service thread\]"
    r"|/\S{1,300}\(\+?\w*\+?0x[0-9a-f]+\)|\S{1,60}[.](?:so|cpp)\S* ?\[0x|0x[0-9a-f]{6,}"
    r"|\(most recent call first"
)
"""Frames of a stack of another language, rulers."""
_ADVICE = re.compile(
    r"for debugging,? consider|compile with `?torch_use|hint: |note: |tip: "
    r"|some nccl operations have failed or timed out|.{0,80}to avoid data inconsistency"
    r"|.{0,300}potential root cause|possible (?:causes|reasons|solutions)|.{0,200}it usually means"
    r"|(?:sometimes )?this (?:is )?(?:usually|typically|often|probably|means|indicates) "
    r"|(?:hip|cuda) kernel errors might be|ptrace: "
    r"|skipping import of"
    r"|last error:|see also |please (?:check|make sure|see|try)|either request |you can "
    r"|usage: |for more information|for further information|if you |in order to |try "
    r"|a debugging |set (?:torch|the environment|hydra)|warning: \d+\t"
)
"""The start of a line that only comments on a failure."""
_ADVICE_LIST = re.compile(
    r".{0,120}\b(?:(?:usually|often|typically|likely|(?:may|might|can|could) be) "
    r"(?:is |be )?caused by"
    r"|(?:possible|potential|common|typical|usual) (?:causes|reasons|solutions|fixes)"
    r"|try (?:any |one )?(?:of )?the following)\b.{0,60}:$"
)
_ADVICE_ITEM = re.compile(r"\s|[*\u2022-] |\(?\d{1,2}[.)] ")
_WRAPPER = re.compile(
    r"ray\.exceptions\.raytaskerror\("
    r"|(?:\[[^\]]{1,80}\] )?\w[\w ]{2,60}(?<!verification)(?<!authentication) failed[.!]?$"
    r"|(?:\w+\.){0,12}(?:\w*enginedeaderror|\w*childfailederror"
    r"|processraisedexception|calledprocesserror|processexitedexception)"
    r"|engine ?core (?:hit an exception|encountered|failed|initiali[sz]ation)"
    r"|runtimeerror: engine (?:core|process|loop)|engine (?:background task|process|loop|core) "
    r"|exception in worker |error executing (?:method|job)|scheduler hit an exception"
    r"|exception \(either an error|timeout at nccl work|received a dump signal"
    r"|received sigquit from|.{0,80}(?:death|closing) signal|a worker died or was killed"
    r"|worker group failed|(?:uncaught|unhandled) (?:exception|error)\W*$"
    r"|exception in (?:thread|callback)|process \S{1,60}:$|rank \d{1,6} scheduler died"
    r"|failed core proc|command exited with|(?:w[a-z]*: )?error raised in subprocess"
    r"|unhandled error \(suppress|systemexit|keyboardinterrupt|terminate called|traceback \("
    r"|make\[?\d?\]?: \*\*\*|.{0,80}exiting due to|.{0,80}unable to load model$"
    r"|.{0,80}failed to load model\b|collect2: error|ninja: build stopped|compilation terminated"
    r"|\S{1,300}: (?:rocm|hip|cuda) error$|\d+ errors? occurred|.{0,60}: \d+ errors occurred:$"
    r"|aborted(?: \(core dumped\))?$|fatal python error: aborted|.{0,60}: aborted(?: \(core)?"
)
"""The start of a line that only passes a failure on."""
_ECHO = re.compile(
    r"broken ?pipe|connection ?(?:was )?(?:reset|refused|closed|aborted)|remote (?:process|peer|rank)"
    r"|remote error|nccl ?communicator|communicator was aborted|unhandled (?:system|cuda) error"
    r"|ncclunhandled|ncclsystemerror|ncclinternalerror|ncclremoteerror|dist(?:backend|network|store)error"
    r"|(?:nccl|rccl) error|socket (?:closed|recv failed)|peer (?:closed|is gone)|failed to (?:recv|send)\b"
    r"|failed to execute operation|proxy call to rank|another rank|other ranks?\b|store->get|eoferror"
    r"|exited unexpectedly|died unexpectedly|(?:returned|with) non-zero exit|non-zero exit code"
    r"|exit ?code:? ?-?\d|sigterm|signal 15|killed by us|signalexception|force terminated"
    r"|job step aborted|due to task failure|shutting down|worker failure|resource_tracker"
    r"|semaphore objects|in destructor|exception ignored|checkpointexception ranks|async exception"
    r"|data inconsistency|fatal error in process group|core dumped|sharedmemory object"
    r"|exited with (?:exit )?code|during handling of|the above exception|^orchestrator: local rank"
    r"|worker died or was killed|died, exit code"
    r"|actordiederror|worker process has died|is dead\b|operations have failed or timed out"
    r"|cancelled at |job (?:has been|was) cancelled|terminating stepid|caught \w+ in (?:dataloader|replica|thread)"
    r"|end of file\b|task \d+: exited|got signal: ?(?:15|1)\b|: terminated$"
)
"""The end of another process, or of this one without a reason."""
_PEER_LOST = re.compile(
    r"broken ?pipe|connection ?(?:was )?(?:reset|refused|closed|aborted)|remote (?:process|peer|rank)"
    r"|socket (?:closed|recv failed)|peer (?:closed|is gone)|failed to (?:recv|send)\b|eoferror"
    r"|peer process\b.{0,60} (?:has|was|is) (?:\w{1,20} )?(?:lost|disconnected)"
)
_OWN_NUMBER = re.compile(
    r"eaddrinuse|address already in use|enospc|no space left|edquot|quota exceeded|enomem"
    r"|cannot allocate memory|eacces|permission denied|emfile|too many open files|estale|stale file"
    r"|invalid usage|ncclinvalid|ran out of input"
)
"""Errors by number of this process itself, whoever reports them."""
_FILE_AT_END = re.compile(r": b?['\"]/[^'\"]{1,300}['\"]$")
_TERMINATED = re.compile(r".{0,200}terminated with exception: ")
_SYMPTOM = re.compile(
    r"exit barrier|watchdog|timed? ?out\b|timeout|rendezvous|no route to host|unreachable|name or service not known"
    r"|not known$|gai ?error|getaddrinfo|temporary failure in name|could not resolve|cannot resolve"
    r"|retry (?:counter )?exceeded|vendor err|completion (?:error|with error|from peer)|desync"
    r"|did not join|clients joined|host is down|ucx +error|syndrome 0x|async (?:fatal )?event"
    r"|^(?:orte|prte|prterun|open mpi)\b.{0,60}(?:unable|not |fail|lost|cannot)"
    r"|modify_qp|connect to \S+ failed|^ssh: |unhealthy|not responding|not all ranks"
)
"""A failure that another process may have caused."""
_OUTSIDE = re.compile(
    r"https?://|registry|huggingface|urllib|requests\.|httpx|aiohttp|urlopen|httpsconnectionpool"
    r"|docker|podman|curl|dial tcp|proxy\w*error|git |wandb|lookup "
)
"""A server outside the job: no other rank is the cause."""
KERNEL = re.compile(
    r"(?:\w{3} +\d{1,2} [\d:]{8} \S{1,60} )?kernel: |\[ {0,8}\d{1,8}\.\d{1,9}\]|.{0,60}\bamdgpu(?::| \d{4}:| \w{4}:)"
    r"|.{0,60}\bnvrm: |.{0,60}\bmlx5_core |.{0,40}\bbnxt_en |.{0,40}\bionic |.{0,40}\bpcieport "
    r"|.{0,40}\bmce: |.{0,40}\bedac |.{0,40}\blustre(?:error)?: |.{0,40}\blneterror|.{0,40}\bnfs: server"
    r"|.{0,40}\bext4-fs |.{0,40}\bxfs |.{0,40}\bnvme\d|.{0,40}\boom-kill|.{0,60}invoked oom-killer"
    r"|.{0,40}out of memory: kill|.{0,40}memory cgroup out of memory|.{0,40}\boom_reaper"
    r"|.{0,40}systemd-oomd|.{0,40}earlyoom|.{0,40}watchdog: bug|.{0,40}kernel panic|.{0,40}oom_kill"
    r"|hw exception by gpu|.{0,40}bug: (?:soft|unable)|.{0,40}task \S{1,60} blocked for more"
    r"|.{0,40}hardware error\]|.{0,40}pciehp|.{0,60}remounting filesystem|.{0,60}i/o error, dev"
)
_KERNEL_FAILS = re.compile(
    r"error|fail|fatal|\blost|time(?:d )?out|hang\b|hung|reset|uncorrect|panic|oops|\bbug\b|kill|oom"
    r"|stuck|lockup|stall|\bdown\b|unreachable|not responding|evict|disconnect|poison|threshold"
    r"|over temperature|ctf|denied|corrupt|fault|exception|inaccessible|shutdown|blocked|remount"
    r"|ras event|errevent|\bxid\b|compromised|miss count|not present|fallen|catastrophic|unrecoverable|wedged|d3cold"
)
_KERNEL_FINE = re.compile(
    r"\bcorrected\b(?<!uncorrected)| correctable|no user action|restored|succeeded|recovered"
    r"|no (?:un)?correct"
)
_HARDWARE = re.compile(
    r"uncorrect|poison|\becc\b|fatal|machine check|lost from|bus error for|link down|link is down"
    r"|card not present|over temperature|\bctf\b|firmware|health|catastrophic|oom|out of memory"
    r"|panic|lockup|stall|fallen off|inaccessible|d3cold|bad page|lost carrier|device lost|killed"
    r"|assert_var|athub|hardware errors? detected|device is lost|surprise|no longer accessible"
    r"|unable to handle|kernel bug|ras "
)
_SLURM_MACHINE = re.compile(
    r"node ?fail|oom.kill|out of memory|memory limit|credential|munge|authentication error"
    r"|due to preemption|due to (?:job )?time ?limit|time limit|not responding, setting|preempted by"
)
_SLURM_FAILS = re.compile(r"error|fatal|unrecognized option|invalid option")
_SLURM = re.compile(
    r"(?:^|\s)(?:slurmstepd|srun|slurmd|slurm|salloc|sbatch|spank|pyxis)\b[^:]{0,40}: "
    r"|^\[[\dt:.-]{19,26}\] \[\d{1,10}\.(?:\d{1,4}|batch|extern|interactive)\] "
)
"""Slurm's programs and plugins, and slurmd's own log, whose lines start with the step."""
_PREEMPTED = re.compile(
    r"(?<!if )(?<!when )\b(?:(?:this|the|your) job|job \d{1,12}) (?:is|was|has been) (?:being )?preempted"
)
"""The job, not the requests of a server, nor a condition."""
_PYXIS = re.compile(
    r"pyxis: (?:couldn't start|container (?:start failed|exited)|child \d+ failed"
    r"|failed to import|printing|\s*\[info)|required plugin|spank plugin stack|plugin stack init"
    r"|spank_task_init|exited with exit"
    r"|application launch failed"
)
"""Lines that pass the failure of a container on."""
_NATIVE = re.compile(
    r"what\(\):|hsa_status_error|(?:hip|cuda|rocm|nccl|rccl|miopen|cublas|rocblas\w*|hipblas\w*|cudnn"
    r"|triton) (?:runtime )?(?:error|failure)|memory access fault|assertion .{0,300}fail"
    r"|[a-z]+_assert ?\(|check failed|guarantee\(|internal assert|enforce fail|nccl warn|rccl warn"
    r"|mpich error|mpi(?:di|r)?_\w+\(\d|mpi_abort|pmix error|not enough slots"
    r"|memory_aperture|\bibv_\w{1,40} failed|fatal error in |ompi_mpi_init|terminating due to uncaught|failed: cuda error"
)
_SIGNAL = re.compile(
    r"segmentation fault|segfault at|sigsegv|bus error|sigbus|illegal instruction|sigill\b"
    r"|floating point exception|sigfpe|double free|free\(\): |malloc\(\): |corrupted (?:size|double)"
    r"|stack smashing|fatal python error|caught signal|signal: [a-z]|^killed|: killed\b|\d killed "
    r"|sigkill|signal 9|wtermsig [1-9]|killed by signal|munmap_chunk|heap corruption"
    r"|general protection|return code = -(?:4|6|7|8|9|11)\b"
    r"|exit ?(?:code|status):? ?(?:-(?:4|7|8|9|11)\b|13[2579]\b)|\(exitcode: -(?:4|7|8|9|11)\)"
    r"|deadlysignal|addresssanitizer|pure virtual|assertion failure in|exited 13[2579]\b"
    r"|exited with code 13[2579]\b|stack overflow|trap divide|core dumped\) segm|invalid opcode"
)
_MARKED = re.compile(
    r"(?:^|\s|\]|\)|:)(?:error|fatal|failed|failure|critical|panic|err)(?:\[\d+\])?\b ?[:\]!]|^error\b|^failed "
    r"|^fatal\b|\bexception\b[^:]{0,60}: |^\w{0,30}failed:|: error[: ]|error loading|cmake error|\berro\[|\] error"
)
_SHELL = re.compile(
    r"^(?:/\S{1,200}|[\w.-]{1,40}): (?:line \d+: |cannot |can't |\S{1,200}: )"
    r"|command not found|: not found$|unbound variable|no such file or directory"
    r"|permission denied|is not recognized|syntax error|cannot execute|exec format|cannot find "
)
_FATAL_SHELL = re.compile(
    r"\bld(?:\.lld)?: (?:cannot|error|undefined)|: undefined reference|"
    r": line \d+: .{0,200}(?:unbound|unexpected|syntax|parameter)|^\S{0,200}python[\d.]*: |^/usr/bin/env: "
    r"|not found \(required by|did not match|failed to run command|while loading shared"
)
"""A shell or loader that ends because of it."""
_FUNCTION = re.compile(
    r"[a-z]\w{0,60}_\w{1,60}(?:\(\))?: [^=]{0,300}(?:fail|invalid|error|unable|wrong|unsupported)"
)
"""A C function that names itself."""
_NOT_FINITE = re.compile(
    r"(?:loss|norm)\W{1,4}(?:nan|inf)\b|\bnan\b.{0,40}(?:loss|grad)|non-?finite"
)
_PERROR = re.compile(
    r": (?:resource temporarily unavailable|permission denied|no space left on device"
    r"|cannot allocate memory|disk quota exceeded|input/output error|stale file handle"
    r"|too many open files|address already in use|read-only file system)(?: \(\d+\))?$"
)
_TOOL = re.compile(
    r"(?:\S{0,60}/)?(?:rm|cp|mv|ln|mkdir|rmdir|chmod|chown|cat|ls|touch|tar|rsync|find|grep|sed|du|df"
    r"|stat|tee|head|tail|nvidia-smi|rocm-smi|ulimit|mount|umount|modprobe|sysctl): "
    r"|\S{1,200}: line \d+: |(?:\S{0,60}/)?(?:da)?sh: \d+: "
    r"|fatal: (?:unable to access|detected dubious)"
)
"""Tools and scripts go on after such an error, or the line after it names their end."""
_OF_GPU = re.compile(r"uncorrectable|\becc error")
_LEXICON = re.compile(
    r"could(?: not|n't)|can(?:not|'t)\b|unable to|failed|not found|no such|invalid|unknown|missing"
    r"|unsupported|denied|refused|exceed|expired|mismatch|does(?: not|n't)|not supported"
    r"|not available|is required|are required|must be|illegal|corrupt|not enough|insufficient"
    r"|no space|out of|no available|too (?:many|large|small|old|few)|undefined|unrecogni[sz]ed"
    r"|ambiguous|unexpected|conflict|not in |not a |not installed|no module|\bnan\b|non-finite"
    r"|infinite|disconnected|unauthorized|forbidden|unavailable|overflow|deadlock|stale|lost"
    r"|not loaded|truncated|malformed"
    r"|aborted|abort|is not set|already in use|in use by|busy|limit|stopped"
    r"|\berror\b|nothing to|no usable|no \w+ found|quota|read-only|not divisible|duplicate|different"
    r"|': expected\b"
)
"""Words of a failure that good programs use, too."""
_FINE = re.compile(
    r"warning|deprecat|\[w ?\d|\[w |\[info|\[debug|\binfo\b ?[:\]|-]|\bdebug\b ?[:\]|-]"
    r"|(?<!=)\b(?:info|debug) {1,8}\S|: w [\w./-]{1,120}:\d{1,6}\]|nccl info"
    r"|skipping (?:this )?(?:iteration|step)"
    r"|ignored exception|exception ignored|retrying|will retry|falling back"
    r"|fallback|fall back|no user action|: corrected|\bno (?:un)?correct"
    r"|starting from scratch|^\++ |^export |^declare -|^[a-z0-9_]+=\S*$|\biteration\s+\d+/"
)
"""Near the start of a line that did not end the program."""
_FINE_BUT = re.compile(
    r"nccl warn|non-finite loss|\[c10d\]|md5sum: warning|blocked for more than"
    r"|does not support the kernel abi|\] error|\*error\*|death signal"
)


def grade_of(text: str, bare: str) -> int | None:
    """Return the grade of a line's form (cause.py); None if it speaks of no failure.

    `bare` is the line without its prefixes.
    """
    low = text.strip().lower()
    start = bare.strip().lower()
    if _NOISE.match(start) or is_harmless(start):
        return None
    if KERNEL.match(start) and _KERNEL_FAILS.search(start):
        if _KERNEL_FINE.search(start):
            return None
        return MACHINE if _HARDWARE.search(start) else PROGRAM
    raised = EXCEPTION.match(bare.strip()) is not None
    if not raised and _ADVICE.match(start):
        return None
    if _PREEMPTED.search(start):
        return ECHO
    if not raised and _FINE.search(low, 0, _NEAR_START) and not _FINE_BUT.search(low):
        return None
    if _SLURM.search(low):
        return _of_slurm(low)
    if _WRAPPER.match(start):
        return WRAPPER
    if _SIGNAL.search(start) and not (raised and "memory" in start):
        return END
    is_own = _OWN_NUMBER.search(start) or _FILE_AT_END.search(start) or _OUTSIDE.search(start)
    if not is_own and (grade := _of_peers(start)) is not None:
        return grade
    if not raised and _TOOL.match(start):
        return PROGRAM if _FATAL_SHELL.search(start) else MENTION
    if raised or _NATIVE.search(start) or _MARKED.search(start) or _PERROR.search(start):
        return MACHINE if _OF_GPU.search(start) else PROGRAM
    if _FATAL_SHELL.search(start) or _FUNCTION.match(start) or _NOT_FINITE.search(start):
        return PROGRAM
    return MENTION if _SHELL.search(start) or _LEXICON.search(start) else None


def _of_peers(start: str) -> int | None:
    """Return the grade of a line about other processes; None for other lines."""
    terminated = _TERMINATED.match(start)
    if terminated is not None:
        inner = start[terminated.end() :]
        if _NATIVE.search(inner) and not _ECHO.search(inner):
            return PROGRAM
    if _PEER_LOST.search(start) and not start.startswith("ssh: "):
        return ECHO
    if _SYMPTOM.search(start):
        return SYMPTOM
    return ECHO if _ECHO.search(start) else None


def _of_slurm(low: str) -> int | None:
    if _SLURM_MACHINE.search(low):
        return MACHINE
    if "cancelled at" in low:
        return ECHO
    if _SIGNAL.search(low):
        return END
    if _ECHO.search(low) or _PYXIS.search(low):
        return WRAPPER
    return PROGRAM if _SLURM_FAILS.search(low) else None


_OUTER_END = re.compile(
    r"^killed$|: line \d+: +\d+ killed|cancelled at |time ?limit|due to preemption|job (?:has been|was) cancelled"
)
_STEP_ENDED = re.compile(
    r"terminating stepid|force terminated|job step aborted|\bstep \S{1,40} .{0,80}cancelled at "
)
_KILLED_TASK = re.compile(r"srun: error: .{1,200}: tasks? [\d,-]{1,200}: killed")
_JOB_CANCELLED = re.compile(
    r"\bjob \d{1,12}\b.{0,200} cancelled at |job (?:has been|was) cancelled"
)


_TAG = re.compile(r"^\[[^\]]{1,60}\] ?")
_HEADER = re.compile(
    r"(?:error|exception|failed|failure|uncaught|unhandled|got|caught|encountered|traceback)\b|.{0,80}failed[.:]?$"
    r"|.{0,80}(?:exception|error)[.:]?$"
)


def is_header(bare: str) -> bool:
    """Return whether a line only announces the traceback that follows it."""
    return _HEADER.match(_TAG.sub("", bare.strip().lower())) is not None


def opens_advice(bare: str) -> bool:
    """Return whether a line announces a list of causes or remedies in general."""
    return _ADVICE_LIST.match(bare.strip().lower()) is not None


def is_advice(bare: str) -> bool:
    """Return whether a line only comments on a failure."""
    return _ADVICE.match(bare.strip().lower()) is not None


def is_advice_item(bare: str) -> bool:
    """Return whether a line may belong to such a list: indented, or an item."""
    return _ADVICE_ITEM.match(bare) is not None


def is_outer_end(text: str) -> bool:
    """Return whether a line is about the end that Slurm or a shell made or saw."""
    return _OUTER_END.search(text.strip().lower()) is not None


def ends_step(text: str) -> bool:
    """Return whether a line reports that Slurm ends a step, and kills its tasks."""
    return _STEP_ENDED.search(text.strip().lower()) is not None


def is_killed_task(text: str) -> bool:
    """Return whether a line is Slurm's about killed tasks of a step."""
    return _KILLED_TASK.search(text.strip().lower()) is not None


def is_of_scheduler(text: str) -> bool:
    return _SLURM.search(text.strip().lower()) is not None


def is_job_cancelled(text: str) -> bool:
    """Return whether a line reports that the whole job was cancelled."""
    return _JOB_CANCELLED.search(text.strip().lower()) is not None
