"""Why runs die by their machine: hardware, limits, storage, engine and image, GPU and driver, network. See causes.py."""

from __future__ import annotations

from .cause import LEAVE_OUT, LOGS, MACHINE, PREFLIGHT, PROGRAM, RESUME, SYMPTOM, Cause

HOST_CAUSES: tuple[Cause, ...] = (
    Cause("gpu_memory_error", MACHINE, LEAVE_OUT,
          "a GPU has an uncorrectable memory error (ECC, RAS)",
          "have the GPU reset or replaced; leave the node out until then",
          "uncorrectable hardware error | reason*ecc error | poison is consumed | uncorrectable ecc error | "
          "hsa_status_error_memory_fault*ecc | double bit ecc error | ras*uncorrectable*error | fatal error in umc | "
          "uncorrectable hardware errors | uncorrectable*ecc | ras: *uncorrectable | xgmi*uncorrectable | "
          "hbm*uncorrectable | bad page*retired*threshold | ecc_error"),
    Cause("gpu_lost", MACHINE, LEAVE_OUT,
          "a GPU is gone from the bus",
          "power-cycle the node; leave it out until then",
          "device lost from bus | gpu is lost from the bus | gpu has fallen off the bus | device is lost*amdgpu | "
          "amdgpu*gpu is lost | amdgpu*pcie link is lost | pcie*surprise | device inaccessible | "
          "unable to change power state from d3cold | amdgpu*disconnected | amdgpu*device lost | "
          "gpu*not accessible"),
    Cause("host_out_of_memory", MACHINE, LOGS,
          "the memory of the host, or of the job's cgroup, is used up",
          "lower the number of loader processes or what they keep, or ask for all memory of the node (--mem=0)",
          "out of memory: killed process | memory cgroup out of memory | oom_kill event | oom-kill:constraint | "
          "invoked oom-killer | _arraymemoryerror | ^memoryerror | oom killed | std::bad_alloc | "
          "cannot allocate memory*fork | defaultcpuallocator: can't allocate memory | oom-kill event | oomkilled | "
          "killed process*total-vm | exceeded job memory limit | exceeded memory limit | "
          "[errno 12] cannot allocate memory | fork: cannot allocate memory | mmap*cannot allocate memory | "
          "out of host memory | unable to allocate*array | host memory*exhausted"),
    Cause("link_down", MACHINE, LEAVE_OUT,
          "a network link is down",
          "look at the cable, the port and the switch; leave the node out until then",
          "nic link is down | got async error event: port error | ib_event_port_err | link is not ready*rdma | "
          "async event*port error | mlx5*link down | ionic*link down | eth*link is down | port*state*down*rdma | "
          "got async fatal event | lost carrier | no carrier | link flap | port is not active | port not active | "
          "state is down | port state*down | link failure | carrier lost | link_downed | port down"),
    Cause("node_failed", MACHINE, RESUME,
          "Slurm lost a node of the job",
          "leave the node out until it is well again",
          "due to node failure | launch failed requeued held | node failure on"),
    Cause("slurm_credentials", MACHINE, RESUME,
          "Slurm's credentials were refused on a node",
          "are the clocks of the nodes the same, and does munge run on each?",
          "job credential expired | job credential revoked | invalid job credential | munge decode failed | "
          "munge*credential | munged"),
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
          "unable to write to file </torch_*no space left | /dev/shm*bus error | shared memory*no space left | "
          "out of shared memory | shared memory limit | shm-size | not enough shared memory"),
    Cause("gpu_out_of_memory", PROGRAM, PREFLIGHT,
          "the memory of a GPU is used up",
          "another program may be on it (preflight tells), or the batch is too large for it",
          "hip out of memory | cuda out of memory | hip error: out of memory | cuda error: out of memory | "
          "hiperroroutofmemory | cuda failure 'out of memory' | hip failure 'out of memory' | outofmemoryerror | "
          "failed*hipmalloc | rocm out of memory | hipblas_status_alloc_failed | cublas_status_alloc_failed | "
          "resource_exhausted: out of memory | hipmalloc*out of memory | torch.outofmemoryerror | "
          "allocation on device*would exceed | failed to allocate*gpu memory | not enough gpu memory | "
          "not enough memory on the gpu | hip failure*out of memory | cuda failure*out of memory | "
          "out of device memory | amdgpu*failed to allocate vram | available free mem : 0 mb | "
          "aborting with error : hsa_status_error_out_of_resources | vram*exhausted | no available memory for | "
          "insufficient gpu memory | hsa_status_error_out_of_memory"),
    Cause("memlock", PROGRAM, PREFLIGHT,
          "RDMA cannot lock enough memory",
          "raise the limit: --ulimit memlock=-1 for the container, LimitMEMLOCK=infinity for slurmd and the engine",
          "ibv_reg_mr*cannot allocate memory | ibv_create_cq*cannot allocate memory | "
          "ibv_create_qp*cannot allocate memory | rlimit_memlock is | ibv_reg_dmabuf_mr*cannot allocate memory | "
          "memlock limit | failed to register memory | ulimit -l | max locked memory"),
    Cause("too_many_files", PROGRAM, RESUME,
          "the limit of open files is reached",
          "raise it: --ulimit nofile=1048576 for the container",
          "too many open files | received 0 items of ancdata"),
    Cause("too_many_processes", PROGRAM, RESUME,
          "the limit of processes is reached",
          "raise --pids-limit of the container or `ulimit -u`, or lower OMP_NUM_THREADS and the number of loaders",
          "pthread_create failed*resource temporarily unavailable | fork: retry: resource temporarily unavailable | "
          "can't start new thread | cannot fork | fork: resource temporarily unavailable | "
          "blockingioerror: [errno 11]*fork | libgomp: thread creation failed | cannot create thread | "
          "unable to create new native thread | nproc limit | unable to start new thread"),
    Cause("quota", PROGRAM, RESUME,
          "a disk quota is exceeded",
          "make room, or have the quota raised; `quota -s` and `lfs quota` tell",
          "disk quota exceeded | quota exceeded"),
    Cause("disk_full", PROGRAM, RESUME,
          "a file system is full",
          "make room; df -h on the node tells which",
          "no space left on device | no usable temporary directory found | not enough free disk space | "
          "disk is full | enospc | [errno 28] | insufficient disk space | not enough disk space | "
          "not enough free space | rc = -28 | disk full | write failed*no space"),
    Cause("read_only", PROGRAM, RESUME,
          "a file system is read-only",
          "mount it for writing, or have the program write somewhere else (container.mounts)",
          "read-only file system | erofs | [errno 30]"),
    Cause("stale_storage", PROGRAM, RESUME,
          "a file of the shared storage went stale (NFS)",
          "mount the share again on the node; a file may have been replaced while it was read",
          "stale file handle | stale nfs file handle | estale | [errno 116] | errno 116"),
    Cause("storage_error", PROGRAM, PREFLIGHT,
          "the storage does not answer as it should",
          "look at the node's mounts and kernel log",
          "[errno 5] input/output error | : input/output error | transport endpoint is not connected | "
          "cannot send after transport endpoint shutdown | nfs: server*not responding | "
          "blk_update_request: i/o error | [errno 121] remote i/o error | buffer i/o error on dev | [errno 5] | "
          "[errno 107] | [errno 108] | lustreerror | ost*is unavailable | mount is not responding | rc = -5 | "
          "gpfs*stale | i/o error, dev | connection timed out*/ | remote i/o error | lustre*evicted | mount.nfs | "
          "was evicted by | not mounted | bad file descriptor*/"),
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
          "manifest for*not found | image*not found in registry | did not resolve to an alias | "
          "image does not exist | failed to resolve reference*not found | no matching manifest for | "
          "manifest*not found | unable to find user*image"),
    Cause("pull_denied", PROGRAM, RESUME,
          "the registry does not give this user the image",
          "docker login (podman login) on the nodes, with a token that may read it",
          "pull access denied | reading manifest*unauthorized | unauthorized: authentication required | "
          "requested access to the resource is denied | no basic auth credentials | incorrect username or password | "
          "unauthorized: access token | reading manifest*denied | authentication required*registry | "
          "denied: access forbidden | initializing source*unauthorized | invalid username/password | "
          "failed to resolve reference*forbidden | failed to authorize | authentication is required | "
          "unauthorized: incorrect | invalid status code from registry 40 | unable to retrieve auth token | "
          "denied: you do not have | insufficient_scope | access forbidden"),
    Cause("bad_mount", PROGRAM, PREFLIGHT,
          "a folder to mount into the container is not there",
          "correct `data` or `container.mounts` of the site, or mount the file system",
          'bind source path does not exist | error mounting " | statfs*no such file or directory | '
          "invalid mount config | mkdir*read-only file system*mount | error while creating mount source path | "
          "invalid mount path | error mounting | mounts denied | no such file or directory*rootfs | "
          "duplicate mount point | mount * does not exist | not a shared mount | invalid volume specification | "
          "are you trying to mount a directory onto a file"),
    Cause("registry_away", PROGRAM, RESUME,
          "the registry cannot be reached",
          "look at the node's way out, its proxy and DNS; or bring the image: orchestrator images distribute",
          "dial tcp*no such host | dial tcp*i/o timeout | dial tcp*connection refused | tls handshake timeout | "
          "client.timeout exceeded while awaiting headers | x509: certificate | pinging container registry | "
          "registry*server misbehaving | http response to https client"),
    Cause("device_missing", PROGRAM, PREFLIGHT,
          "a device for the container is not there",
          "is the amdgpu driver loaded, and are /dev/kfd and /dev/dri there?",
          "error gathering device information | no such device*/dev/kfd | stat /dev/kfd*no such | "
          "stat /dev/dri*no such | could not select device driver | /dev/kfd: no such file | "
          "/dev/dri: no such file | no such device or address*kfd | error adding device"),
    Cause("container_start", PROGRAM, PREFLIGHT,
          "the container engine could not start the container",
          "the engine's log on the node tells more: journalctl -u docker",
          "failed to create task for container | oci runtime create failed | oci runtime error | "
          "is already in use by container | name*is already in use | runc create failed | crun: | "
          "error response from daemon: failed to start | cgroup*no such file or directory: oci | "
          "failed to create shim task"),
    Cause("wrong_gpu_code", PROGRAM, PREFLIGHT,
          "the image has no code for this GPU (gfx architecture)",
          "use an image that was built for it; rocminfo tells the gfx name",
          "invalid device function | nobinaryforgpu | no kernel image is available | tensilelibrary*no such file | "
          "cannot read*tensilelibrary | no gpu arch | unable to find code object for all current devices | "
          "code object*not compatible | hiperrorsharedobjectinitfailed | could not load*tensilelibrary | "
          "unsupported gfx | not supported on*gfx | rocblas error: cannot read | hsa_status_error_invalid_isa | "
          "illegal seek for gpu arch | hsa_status_error_invalid_code_object | no compatible code objects | "
          "is not supported for*gfx | unsupported gpu arch | gfx*is not supported | arch*gfx*not supported | "
          "unsupported architecture | unsupported gpu | not supported on this architecture | "
          "architecture*not supported | does not support*gfx | only supported on*gfx | no kernel found for"),
    Cause("gpu_not_visible", PROGRAM, PREFLIGHT,
          "a process sees no GPU, or fewer than it should",
          "look at HIP_VISIBLE_DEVICES, --gpus and the groups video and render",
          "unable to open /dev/kfd | no hip gpus are available | no cuda gpus are available | "
          "invalid device ordinal | no rocm-capable device | no cuda-capable device | hiperrornodevice | "
          'not member of "render" | not a member of "render" | hiperrorinvaliddevice | failed to get device count | '
          "fatal error during gpu init | found no nvidia driver | no gpu detected | no gpus found | "
          "device count is 0 | no hip-capable | not compiled with cuda enabled | no devices were found | "
          "no amd gpu"),
    Cause("driver_mismatch", PROGRAM, PREFLIGHT,
          "the ROCm of the image and the node's driver do not work together",
          "update amdgpu-dkms on the node, or use an image for its driver",
          "hsa_status_error_incompatible | kfd does not support | driver version is insufficient | "
          "hiperrorinsufficientdriver | hsa_init failed | hsa_status_error: a generic error | "
          "rocm version*does not match*driver | does not support the kernel abi | module amdgpu*not loaded | "
          "rock module is not loaded | no supported gpu*driver | amdgpu driver*too old | driver not initialized | "
          "incompatible driver | amdgpu: unknown symbol | hsakmt*version | kernel driver*too old | "
          "driver*version*mismatch | driver/library version mismatch | failed to initialize rsmi | "
          "rsmi_status_init_error | call returned hsa_status_error_out_of_resources | "
          "is detected but the library is built for | built for rocm*but | was compiled with*rocm*runtime | "
          "requires rocm | requires driver"),
    Cause("illegal_access", PROGRAM, PREFLIGHT,
          "a GPU kernel used memory that is not its own",
          "a defect of a kernel, or a broken GPU when it is always the same one",
          "illegal memory access | memory access fault by gpu | hiperrorillegaladdress | "
          "hsa_status_error_memory_aperture_violation | vm_l2_protection_fault | hsa_status_error_memory_fault | "
          "no-retry page fault | [gfxhub*page fault | [mmhub*page fault | retry page fault | gpu page fault | "
          "misaligned address | page not present or supervisor privilege | write access to a read-only page"),
    Cause("device_assert", PROGRAM, LOGS,
          "a GPU kernel was given an index or a value out of its range",
          "mostly data that do not fit the model (vocabulary, labels); the lines above name the kernel",
          "device-side assert | device-side assertion"),
    Cause("gpu_hung", PROGRAM, LEAVE_OUT,
          "a GPU hung and was reset",
          "look at the node's kernel log; leave the node out when it comes again",
          "reason :gpu hang | reason: gpu hang | gpu reset begin | ring*timeout, signaled seq | gpu reset failed | "
          "failed to evict process queues | cp might be in an unrecoverable state | hang detected | "
          "mes failed to respond | mes*failed to*queue | kiq*test failed | gpu recovery | device wedged | "
          "gpu is hung | hiperrorlaunchtimeout | launch timed out | queue eviction | gpu hang | gpu reset | "
          "queue*hung"),
    Cause("rdma_device", PROGRAM, PREFLIGHT,
          "an RDMA device cannot be opened in the container",
          "give it /dev/infiniband and the library of the NIC's driver (container.mounts); preflight tells",
          "ibv_open_device failed | unable to open device | failed to open libibverbs | no rdma device | "
          "no ib devices found | no device found*nccl_ib_hca | does not support the kernel abi | "
          "/dev/infiniband*permission denied | couldn't open uverbs | ibv_get_device_list*failed"),
    Cause("gid_index", PROGRAM, PREFLIGHT,
          "RDMA used a GID that the port does not have",
          "leave NCCL_IB_GID_INDEX to the nodes, or correct it; show_gids tells",
          "ibv_modify_qp*no data available | ibv_modify_qp*invalid argument | ibv_query_gid*failed | "
          "ibv_modify_qp*errno 61 | ibv_modify_qp*errno 22 | invalid gid index | gid index*not found | "
          "no gid*found | gid*is not valid | could not find*gid | invalid gid"),
    Cause("no_route", PROGRAM, PREFLIGHT,
          "a node cannot be reached from another one",
          "correct `network.socket_ifname` of the site; look at routes and firewalls",
          "no route to host | network is unreachable | ehostunreach | enetunreach | "
          "ibv_modify_qp*network is unreachable | ibv_modify_qp*connection timed out | "
          "nccl warn*connection timed out | software caused connection abort | errno: 110 | [errno 110] | "
          "[errno 113] | [errno 101] | host is down | host is unreachable | no path to host | errno: 113"),
    Cause("no_interface", PROGRAM, PREFLIGHT,
          "the network interface that was named is not there",
          "correct `network.socket_ifname` of the site; `ip addr` tells the names",
          "no socket interface found | unable to find address for | no interface found*ifname | no such interface | "
          "does not match any interface | no ip found for interface | unable to resolve*interface | "
          "nccl_socket_ifname*not found | gloo_socket_ifname | no usable*interface | interface*not found | "
          "cannot find interface | bootstrap : no"),
    Cause("name_unknown", SYMPTOM, PREFLIGHT,
          "a host name is not known",
          "have the nodes in DNS or /etc/hosts; `getent hosts NAME` tells",
          "gai error | name or service not known | temporary failure in name resolution*master | "
          "could not resolve host | nodename nor servname | socket.gaierror | could not resolve hostname | "
          "getaddrinfo | unknown host | no address associated with hostname | name does not resolve | "
          "failed to resolve host"),
    Cause("port_in_use", PROGRAM, PREFLIGHT,
          "a port that the run needs is in use",
          "something of an earlier run may be left on the node (preflight tells)",
          "address already in use | eaddrinuse | errno: 98 | [errno 98] | port is already allocated | "
          "port*already in use | cannot bind | failed to bind"),
)  # fmt: skip
