"""Failures of the machine: hardware, the node's kernel, Slurm's ends, limits, storage. See
tables.py."""

from __future__ import annotations

from orchestrator.causes.cause import LEAVE_OUT, LOGS, MACHINE, PREFLIGHT, PROGRAM, RESUME, Cause

MACHINE_CAUSES: tuple[Cause, ...] = (
    Cause("gpu_memory_error", MACHINE, LEAVE_OUT,
          "a GPU has an uncorrectable memory error (ECC, RAS)",
          "have the GPU reset or replaced; leave the node out until then",
          "uncorrectable hardware error | uncorrectable ecc | uncorrected ecc | ecc error encountered | reason*ecc error | "
          "double bit ecc | double-bit ecc | multi-bit ecc | poison is consumed | poison consum | ras*uncorrect | "
          "ras event of type | ras controller interrupt | ras*poison | ras*fatal error | fatal error in umc | "
          "xgmi*uncorrect | hbm*uncorrect | hbm*ecc error | umc*uncorrect | sram*uncorrect | errevent_athub | ecc_error | "
          "eccuncorrect | ecc_uncorrect | eccnotcorrect | bad_page_threshold | bad page threshold | bad page*threshold | "
          "rma due to bad page | gpu*bad pages*exceed | amdgpu*uncorrectable*error | amdgpu*deferred hardware error*poison | "
          "amdgpu*bad status with bad | hsa_status_error_memory_fault*ecc"),
    Cause("gpu_lost", MACHINE, LEAVE_OUT,
          "a GPU is gone from the bus",
          "power-cycle the node; leave it out until then",
          "lost from bus | lost from the bus | fallen off the bus | fell off the bus | falls off the bus | gpu is lost | "
          "device is lost*amdgpu | amdgpu*device is lost | amdgpu*pcie link is lost | amdgpu*device lost | "
          "amdgpu*disconnected | amdgpu*device is gone | surprise down | surprise removal | pcie*surprise | "
          "pciehp*link down | pciehp*card not present | device inaccessible | unable to change power state from d3cold | "
          "unable to change power state from unknown | pci_channel_io_perm_failure | amdgpu*can't change power state | "
          "gpu*no longer accessible | gpu*not accessible | gpu*no longer present | gpu*disappeared | "
          "gpu*not responding on the bus | amdgpu*removed from the bus"),
    Cause("gpu_overheated", MACHINE, LEAVE_OUT,
          "a GPU became too hot",
          "look at fans, air and power caps of the node; leave it out until then",
          "gpu over temperature | over temperature range | due to gpu*ctf | sw ctf | hw ctf | thermal shutdown | "
          "gpu*thermal trip | gpu*critical temperature | gpu*overheat | gpu*emergency temperature"),
    Cause("host_out_of_memory", MACHINE, LOGS,
          "the memory of the host, or of the job's cgroup, is used up",
          "lower the number of loader processes or what they keep, or ask for all memory of the node (--mem=0)",
          "oom_killer | invoked oom-killer | oom_kill_process | oom_kill event | oom-kill event | oom-kill: | "
          "out of memory: kill | memory cgroup out of memory | oomkilled | oom kill | oom_reaper | killed process*total-vm | "
          "killed process*anon-rss | systemd-oomd*killed | oomd*killed | killed*due to memory | due to memory pressure | "
          "earlyoom*sending sig | task*: out of memory | arraymemoryerror | arrowmemoryerror | ^memoryerror | "
          "std::bad_alloc | defaultcpuallocator | exceeded job memory limit | exceeded*memory limit | exceeds*memory limit | "
          "[errno 12] | errno 12: | fork*cannot allocate memory | mmap*cannot allocate memory | cannot allocate memory*fork | "
          "out of host memory | host memory*exhausted | unable to allocate*array | unable to allocate*shape ( | "
          "malloc of size*failed | realloc of size*failed | not enough host memory | memory allocation of*failed | "
          "out of memory (os error 12) | cannot allocate memory (os error 12) | hiphostmalloc*fail | "
          "memory limit of the job | reached its memory limit | insufficient host memory | memory.max*reached"),
    Cause("node_kernel", MACHINE, LEAVE_OUT,
          "the kernel of a node found a hardware error, crashed or hung",
          "look at the node's kernel log and its BMC; leave it out until then",
          "machine check exception | fatal machine check | uncorrected machine check | kernel panic | soft lockup - | "
          "hard lockup | self-detected stall | kernel bug at | bug: unable to handle | hardware error*severity: fatal | "
          "hardware memory corruption | uncorrected hardware memory error | edac*uncorrect | severity=uncorrected (fatal) | "
          "aer: uncorrected (fatal) | aer: uncorrectable (fatal) | not syncing"),
    Cause("nic_failed", MACHINE, LEAVE_OUT,
          "a network card failed (its firmware or its bus)",
          "look at the node's kernel log; reset the card, and leave the node out until then",
          "health compromised | mlx5*fw*assert | mlx5*assert_var | mlx5*irisc not responding | mlx5*health*fatal | "
          "mlx5*firmware*fatal | mlx5*internal state error | bnxt*firmware*fatal | bnxt*fw health | bnxt*error recovery | "
          "bnxt*unresponsive | bnxt*hwrm*timeout | bnxt*resp timeout | ionic*firmware*(down | ionic*fw*down | "
          "ionic*fw*stopped | ionic*heartbeat | ionic*timeout*dev_cmd | ionic*dev_cmd*timeout | ionic*dev cmd*timeout | "
          "ionic*heart beat | got async fatal event: local catastrophic | ibv_event_device_fatal | device fatal event | "
          "nic*firmware*hang"),
    Cause("link_down", MACHINE, LEAVE_OUT,
          "a network link is down",
          "look at the cable, the port and the switch; leave the node out until then",
          "link is down | async error event: port | async event*port error | async event : port | async fatal event | "
          "event_port_err | link is not ready*rdma | mlx5*link down | ionic*link down | bnxt*link down | link down*rdma | "
          "port*state*down*rdma | lost carrier | carrier lost | link flap | link_downed | port is not active | "
          "port not active | port*is down | physical state*disabled | physical link*down | link layer*down | lag*port*down | "
          "~no carrier | ~state is down | ~port state*down | ~link failure | ~port down | ~link*down"),
    Cause("node_failed", MACHINE, RESUME,
          "Slurm lost a node of the job",
          "leave the node out until it is well again",
          "due to node fail | launch failed requeued held | node failure on | killed due node failure | node failure, see | "
          "node*not responding*slurm | slurm*node*not responding | slurm*lost contact with node | not responding, setting down"),
    Cause("slurm_credentials", MACHINE, RESUME,
          "Slurm's credentials were refused on a node",
          "are the clocks of the nodes the same, and does munge run on each?",
          "job credential | munge decode failed | munge*credential | munge*error | munge*fail | munge*expired | "
          "munge*rewound | munge*replayed | munged | protocol authentication error | authentication credential | "
          "auth_g_verify | credential replayed | zero bytes*munge | failed to access*munge.socket | cred*expired*slurm"),
    Cause("time_limit", MACHINE, RESUME,
          "the job's time limit was reached",
          "resume goes on at the first missing run",
          "due to time limit | due to job time limit | reached time limit | hitting max wall clock | "
          "exceeded its time limit | due to timelimit"),
    Cause("preempted", MACHINE, RESUME,
          "the job was pre-empted by one with a higher priority",
          "resume goes on at the first missing run",
          "due to preemption | job*preempted by | has been preempted"),
)  # fmt: skip

LIMIT_CAUSES: tuple[Cause, ...] = (
    Cause("shm_too_small", PROGRAM, RESUME,
          "the shared memory of the container (/dev/shm) is too small",
          "give the container more: --shm-size or --ipc=host among the site's `container.options`",
          "insufficient shared memory | out of shared memory | not enough shared memory | shared memory limit | "
          "/dev/shm*no space left | no space left*/dev/shm | </torch_*no space left | /torch_*no space left | "
          "shared memory*no space left | shm_open*no space | shm*no space left | psm_*no space left | "
          "unable to mmap*<*no space left | /dev/shm*bus error | bus error*shm | bus error*shared memory | "
          "posix_fallocate*no space left | shared memory*insufficient | shm*too small | /dev/shm*is full | "
          "shared memory*exhausted | increase*/dev/shm | /dev/shm*too small | /dev/shm*not enough | ~shm-size"),
    Cause("gpu_out_of_memory", PROGRAM, PREFLIGHT,
          "the memory of a GPU is used up",
          "another program may be on it (preflight tells), or the batch is too large for it",
          "outofmemoryerror | hip out of memory | cuda out of memory | rocm out of memory | error: out of memory | "
          "failure 'out of memory' | failure*out of memory | hiperroroutofmemory | cuda_error_out_of_memory | "
          "cudaerrormemoryallocation | failed*hipmalloc | hipmalloc*fail | hipmalloc*out of memory | hip malloc*fail | "
          "failed to cuda calloc | failed to cuda malloc | status_alloc_failed | resource_exhausted | "
          "allocation on device*would exceed | gpu*out of memory | tried to allocate*gib | out of device memory | "
          "not enough memory on the gpu | not enough gpu memory | insufficient gpu memory | failed to allocate*gpu memory | "
          "failed to allocate*device memory | failed to allocate*vram | failed to alloc*vram | vram*exhausted | vram*full | "
          "available free mem : 0 mb | no available memory for | aborting with error : hsa_status_error_out_of_resources | "
          "hsa_status_error_out_of_memory | memory on the device*insufficient | xlaruntimeerror*out of memory | "
          "hbm*out of memory | less than desired gpu memory"),
    Cause("memlock", PROGRAM, PREFLIGHT,
          "RDMA cannot lock enough memory",
          "raise the limit: --ulimit memlock=-1 for the container, LimitMEMLOCK=infinity for slurmd and the engine",
          "ibv_*cannot allocate memory | reg_mr*cannot allocate memory | reg_mr*errno 12 | create_cq*errno 12 | "
          "rlimit_memlock | failed to register memory | failed to register*memory region | memory registration failed | "
          "memory registration*cannot allocate | cannot lock memory | mlock*cannot allocate | ~memlock | ~ulimit -l | "
          "~locked memory"),
    Cause("too_many_files", PROGRAM, RESUME,
          "the limit of open files is reached",
          "raise it: --ulimit nofile=1048576 for the container",
          "too many open files | items of ancdata | [errno 24] | [errno 23] | file table overflow | emfile | "
          "no file descriptors available | out of file descriptors | os error 24"),
    Cause("too_many_processes", PROGRAM, RESUME,
          "the limit of processes is reached",
          "raise --pids-limit of the container or `ulimit -u`, or lower OMP_NUM_THREADS and the number of loaders",
          "can't start new thread | unable to start new thread | cannot create thread | cannot create a thread | "
          "thread creation failed | unable to create*thread | failed to create*thread*temporarily | pthread_create failed | "
          "pthread_create*temporarily unavailable | thread*resource temporarily unavailable | "
          "fork*resource temporarily unavailable | blockingioerror: [errno 11]*fork | "
          "what(): *resource temporarily unavailable | resource temporarily unavailable*thread | cannot fork | can't fork | "
          "nproc limit | fork rejected by pids | pids limit | pids.max | no more processes | newosproc | "
          "failed to spawn*os error 11 | resource temporarily unavailable (os error 11)"),
    Cause("quota", PROGRAM, RESUME,
          "a disk quota is exceeded",
          "make room, or have the quota raised; `quota -s` and `lfs quota` tell",
          "disk quota exceeded | edquot | [errno 122] | (os error 122) | user block limit reached | user file limit reached | "
          "block quota | rc = -122 | ~quota exceeded | ~over quota | ~exceeds*quota | ~quota*reached"),
    Cause("disk_full", PROGRAM, RESUME,
          "a file system is full",
          "make room; df -h on the node tells which",
          "no space left | no usable temporary directory found | not enough*disk space | disk is full | disk full | enospc | "
          "[errno 28] | (os error 28) | insufficient*disk space | not enough free space | rc = -28 | out of disk space | "
          "file system full | filesystem full | filesystem is full | device is full | write failed*no space | out of inodes | "
          "no free inodes | ~insufficient space | ~not enough space | ~insufficient free space"),
    Cause("read_only", PROGRAM, RESUME,
          "a file system is read-only",
          "mount it for writing, or have the program write somewhere else (container.mounts)",
          "read-only file system | readonly file system | read only file system | erofs | [errno 30] | (os error 30) | "
          "remounting filesystem read-only | remount*read-only | is mounted read-only | rc = -30"),
    Cause("stale_storage", PROGRAM, RESUME,
          "a file of the shared storage went stale (NFS)",
          "mount the share again on the node; a file may have been replaced while it was read",
          "stale file handle | stale nfs | stale handle | estale | errno 116 | (os error 116) | rc = -116"),
    Cause("storage_error", PROGRAM, PREFLIGHT,
          "the storage does not answer as it should",
          "look at the node's mounts and kernel log",
          "sqlite*locking protocol | sqlite*disk i/o error | "
          "[errno 103]*: '/ | connection abort: '/ | input/output error | [errno 5] | (os error 5) | i/o error, dev | "
          "remote i/o error | [errno 121] | buffer i/o error | metadata i/o error | blk_update_request: i/o | medium error | "
          "unrecovered read error | nvme*timeout | nvme*controller is down | nvme*i/o error | transport endpoint | "
          "[errno 107] | [errno 108] | nfs: server*not responding | nfs*server*timed out | nfs*timed out | nfs*i/o error | "
          "mount.nfs | lustreerror | lneterror | lustre*evicted | lustre*connection*lost | lustre*not available | "
          "was evicted by | ost*is unavailable | ost*not available | rc = -5 | rc = -108 | rc = -110 | gpfs*stale | "
          "gpfs*panic | gpfs*unmount | mmfs*panic | mmfs*unmount | mmfsd*error | weka*fail | weka*error | weka*timed out | "
          "wekafs*i/o | beegfs*error | beegfs*fail | ceph*hung | ceph*timed out | libceph*error | fuse*i/o error | "
          "mount is not responding | ext4-fs error | xfs*corruption | xfs*i/o error | xfs*shutting down filesystem | "
          "xfs*shut down | structure needs cleaning | [errno 117] | [errno 112] host is down | connection timed out: '/ | "
          "connection timed out: b'/ | blocked for more than*seconds | s3*service unavailable | slowdown*s3 | "
          "~bad file descriptor*/ | ~not mounted | ~mount point*not responding"),
)  # fmt: skip
