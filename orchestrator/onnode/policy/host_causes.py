"""Why runs die by their machine: hardware, limits, storage, engine and image, GPU and driver, network. See causes.py."""

from __future__ import annotations

from .cause import LEAVE_OUT, LOGS, MACHINE, PREFLIGHT, PROGRAM, RESUME, SYMPTOM, Cause

HOST_CAUSES: tuple[Cause, ...] = (
    Cause("gpu_memory_error", MACHINE, LEAVE_OUT,
          "a GPU has an uncorrectable memory error (ECC, RAS)",
          "have the GPU reset or replaced; leave the node out until then",
          "uncorrectable hardware error | reason*ecc error | poison is consumed | uncorrectable ecc error | "
          "hsa_status_error_memory_fault*ecc | double bit ecc error | ras*uncorrectable*error | fatal error in umc"),
    Cause("gpu_lost", MACHINE, LEAVE_OUT,
          "a GPU is gone from the bus",
          "power-cycle the node; leave it out until then",
          "device lost from bus | gpu is lost from the bus | gpu has fallen off the bus | device is lost*amdgpu | "
          "amdgpu*gpu is lost | amdgpu*pcie link is lost"),
    Cause("host_out_of_memory", MACHINE, LOGS,
          "the memory of the host, or of the job's cgroup, is used up",
          "lower the number of loader processes or what they keep, or ask for all memory of the node (--mem=0)",
          "out of memory: killed process | memory cgroup out of memory | oom_kill event | oom-kill:constraint | "
          "invoked oom-killer | _arraymemoryerror | ^memoryerror | oom killed | std::bad_alloc | "
          "cannot allocate memory*fork | defaultcpuallocator: can't allocate memory | oom-kill event | oomkilled"),
    Cause("link_down", MACHINE, LEAVE_OUT,
          "a network link is down",
          "look at the cable, the port and the switch; leave the node out until then",
          "nic link is down | got async error event: port error | ib_event_port_err | link is not ready*rdma | "
          "async event*port error | mlx5*link down | ionic*link down | eth*link is down | port*state*down*rdma | "
          "got async fatal event"),
    Cause("node_failed", MACHINE, RESUME,
          "Slurm lost a node of the job",
          "leave the node out until it is well again",
          "due to node failure | launch failed requeued held | node failure on"),
    Cause("time_limit", MACHINE, RESUME,
          "the job's time limit was reached",
          "resume goes on at the first missing run",
          "due to time limit | due to job time limit | reached time limit"),
    Cause("preempted", MACHINE, RESUME,
          "the job was pre-empted by one with a higher priority",
          "resume goes on at the first missing run",
          "due to preemption"),
    Cause("shm_too_small", PROGRAM, RESUME,
          "the shared memory of the container (/dev/shm) is too small",
          "give the container more: --shm-size or --ipc=host among the site's `container.options`",
          "insufficient shared memory | failed to extend /dev/shm/*no space left | "
          "shared memory segment /dev/shm/*no space left | unable to mmap*<*no space left on device | "
          "no space left on device*/dev/shm | /dev/shm*no space left on device | "
          "unable to write to file </torch_*no space left | unable to open shared memory object </torch*"),
    Cause("gpu_out_of_memory", PROGRAM, PREFLIGHT,
          "the memory of a GPU is used up",
          "another program may be on it (preflight tells), or the batch is too large for it",
          "hip out of memory | cuda out of memory | hip error: out of memory | cuda error: out of memory | "
          "hiperroroutofmemory | cuda failure 'out of memory' | hip failure 'out of memory' | outofmemoryerror | "
          "failed*hipmalloc | rocm out of memory | hipblas_status_alloc_failed | cublas_status_alloc_failed | "
          "resource_exhausted: out of memory"),
    Cause("memlock", PROGRAM, PREFLIGHT,
          "RDMA cannot lock enough memory",
          "raise the limit: --ulimit memlock=-1 for the container, LimitMEMLOCK=infinity for slurmd and the engine",
          "ibv_reg_mr*cannot allocate memory | ibv_create_cq*cannot allocate memory | "
          "ibv_create_qp*cannot allocate memory | rlimit_memlock is | ibv_reg_dmabuf_mr*cannot allocate memory | "
          "memlock limit"),
    Cause("too_many_files", PROGRAM, RESUME,
          "the limit of open files is reached",
          "raise it: --ulimit nofile=1048576 for the container",
          "too many open files | received 0 items of ancdata"),
    Cause("too_many_processes", PROGRAM, RESUME,
          "the limit of processes is reached",
          "raise --pids-limit of the container or `ulimit -u`, or lower OMP_NUM_THREADS and the number of loaders",
          "pthread_create failed*resource temporarily unavailable | fork: retry: resource temporarily unavailable | "
          "can't start new thread | cannot fork | fork: resource temporarily unavailable | "
          "blockingioerror: [errno 11]*fork | libgomp: thread creation failed"),
    Cause("quota", PROGRAM, RESUME,
          "a disk quota is exceeded",
          "make room, or have the quota raised; `quota -s` and `lfs quota` tell",
          "disk quota exceeded | quota exceeded"),
    Cause("disk_full", PROGRAM, RESUME,
          "a file system is full",
          "make room; df -h on the node tells which",
          "no space left on device | no usable temporary directory found | not enough free disk space | "
          "disk is full | enospc"),
    Cause("read_only", PROGRAM, RESUME,
          "a file system is read-only",
          "mount it for writing, or have the program write somewhere else (container.mounts)",
          "read-only file system | erofs"),
    Cause("stale_storage", PROGRAM, RESUME,
          "a file of the shared storage went stale (NFS)",
          "mount the share again on the node; a file may have been replaced while it was read",
          "stale file handle | stale nfs file handle | estale"),
    Cause("storage_error", PROGRAM, PREFLIGHT,
          "the storage does not answer as it should",
          "look at the node's mounts and kernel log",
          "[errno 5] input/output error | : input/output error | transport endpoint is not connected | "
          "cannot send after transport endpoint shutdown | nfs: server*not responding | "
          "blk_update_request: i/o error | [errno 121] remote i/o error | buffer i/o error on dev"),
    Cause("engine_denied", PROGRAM, PREFLIGHT,
          "this user may not use the container engine",
          "add the user to the group docker, or set `sudo` in the site",
          "permission denied while trying to connect to the docker | permission denied*docker.sock | "
          "docker.sock*permission denied | cannot set up namespace*newuidmap | "
          "potentially insufficient uids or gids available"),
    Cause("engine_down", PROGRAM, PREFLIGHT,
          "the container engine is not running",
          "start it: systemctl start docker",
          "cannot connect to the docker daemon | cannot connect to podman | docker daemon is not running | "
          "podman.sock: connect | docker.sock: connect: no such file | docker.sock: connect: connection refused | "
          "failed to connect to the docker api"),
    Cause("pull_limit", PROGRAM, "orchestrator images --help",
          "the registry refuses more pulls for now",
          "log in to the registry, or use a mirror; or bring the image: orchestrator images distribute",
          "toomanyrequests | pull rate limit | 429 too many requests*manifest"),
    Cause("image_missing", PROGRAM, RESUME,
          "the image is not there under this name",
          "correct the image of the workload or the site, or pull it",
          "manifest unknown | no such image | image not known | name unknown*repository | not found: manifest | "
          "unable to find image*locally | no such manifest | repository name not known to registry | "
          "manifest for*not found | image*not found in registry"),
    Cause("pull_denied", PROGRAM, RESUME,
          "the registry does not give this user the image",
          "docker login (podman login) on the nodes, with a token that may read it",
          "pull access denied | reading manifest*unauthorized | unauthorized: authentication required | "
          "requested access to the resource is denied | no basic auth credentials | incorrect username or password | "
          "unauthorized: access token | reading manifest*denied | authentication required*registry | "
          "denied: access forbidden | initializing source*unauthorized"),
    Cause("bad_mount", PROGRAM, PREFLIGHT,
          "a folder to mount into the container is not there",
          "correct `data` or `container.mounts` of the site, or mount the file system",
          'bind source path does not exist | error mounting " | statfs*no such file or directory | '
          "invalid mount config | mkdir*read-only file system*mount | error while creating mount source path | "
          "invalid mount path | error mounting | mounts denied"),
    Cause("device_missing", PROGRAM, PREFLIGHT,
          "a device for the container is not there",
          "is the amdgpu driver loaded, and are /dev/kfd and /dev/dri there?",
          "error gathering device information | no such device*/dev/kfd | stat /dev/kfd*no such | "
          "stat /dev/dri*no such | could not select device driver"),
    Cause("wrong_gpu_code", PROGRAM, PREFLIGHT,
          "the image has no code for this GPU (gfx architecture)",
          "use an image that was built for it; rocminfo tells the gfx name",
          "invalid device function | nobinaryforgpu | no kernel image is available | tensilelibrary*no such file | "
          "cannot read*tensilelibrary | no gpu arch | unable to find code object for all current devices | "
          "code object*not compatible | hiperrorsharedobjectinitfailed | could not load*tensilelibrary | "
          "unsupported gfx | not supported on*gfx | rocblas error: cannot read"),
    Cause("gpu_not_visible", PROGRAM, PREFLIGHT,
          "a process sees no GPU, or fewer than it should",
          "look at HIP_VISIBLE_DEVICES, --gpus and the groups video and render",
          "unable to open /dev/kfd | no hip gpus are available | no cuda gpus are available | "
          "invalid device ordinal | no rocm-capable device | no cuda-capable device | hiperrornodevice | "
          'not member of "render" | not a member of "render" | hiperrorinvaliddevice | failed to get device count'),
    Cause("driver_mismatch", PROGRAM, PREFLIGHT,
          "the ROCm of the image and the node's driver do not work together",
          "update amdgpu-dkms on the node, or use an image for its driver",
          "hsa_status_error_out_of_resources | hsa_status_error_incompatible | kfd does not support | "
          "driver version is insufficient | hiperrorinsufficientdriver | hsa_init failed | "
          "hsa_status_error: a generic error | rocm version*does not match*driver | "
          "does not support the kernel abi | module amdgpu*not loaded | rock module is not loaded | "
          "no supported gpu*driver | amdgpu driver*too old"),
    Cause("illegal_access", PROGRAM, PREFLIGHT,
          "a GPU kernel used memory that is not its own",
          "a defect of a kernel, or a broken GPU when it is always the same one",
          "illegal memory access | memory access fault by gpu | hiperrorillegaladdress | "
          "hsa_status_error_memory_aperture_violation | vm_l2_protection_fault | hsa_status_error_memory_fault"),
    Cause("gpu_hung", PROGRAM, LEAVE_OUT,
          "a GPU hung and was reset",
          "look at the node's kernel log; leave the node out when it comes again",
          "reason :gpu hang | reason: gpu hang | gpu reset begin | ring*timeout, signaled seq | gpu reset failed | "
          "failed to evict process queues | cp might be in an unrecoverable state"),
    Cause("gid_index", PROGRAM, PREFLIGHT,
          "RDMA used a GID that the port does not have",
          "leave NCCL_IB_GID_INDEX to the nodes, or correct it; show_gids tells",
          "ibv_modify_qp*no data available | ibv_modify_qp*invalid argument | ibv_query_gid*failed | "
          "ibv_modify_qp*errno 61 | ibv_modify_qp*errno 22 | invalid gid index | gid index*not found"),
    Cause("no_route", PROGRAM, PREFLIGHT,
          "a node cannot be reached from another one",
          "correct `network.socket_ifname` of the site; look at routes and firewalls",
          "no route to host | network is unreachable | ehostunreach | enetunreach | "
          "ibv_modify_qp*network is unreachable | ibv_modify_qp*connection timed out"),
    Cause("no_interface", PROGRAM, PREFLIGHT,
          "the network interface that was named is not there",
          "correct `network.socket_ifname` of the site; `ip addr` tells the names",
          "no socket interface found | unable to find address for | no interface found*ifname | no such interface | "
          "does not match any interface"),
    Cause("name_unknown", SYMPTOM, PREFLIGHT,
          "a host name is not known",
          "have the nodes in DNS or /etc/hosts; `getent hosts NAME` tells",
          "gai error | name or service not known | temporary failure in name resolution*master | "
          "could not resolve host | nodename nor servname | socket.gaierror"),
    Cause("port_in_use", PROGRAM, PREFLIGHT,
          "a port that the run needs is in use",
          "something of an earlier run may be left on the node (preflight tells)",
          "address already in use | eaddrinuse"),
)  # fmt: skip
