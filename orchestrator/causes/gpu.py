"""Failures of GPUs, their driver and the network between nodes. See tables.py."""

from __future__ import annotations

from orchestrator.causes.cause import LEAVE_OUT, LOGS, PREFLIGHT, PROGRAM, Cause

GPU_CAUSES: tuple[Cause, ...] = (
    Cause("wrong_gpu_code", PROGRAM, PREFLIGHT,
          "the image has no code for this GPU (gfx architecture)",
          "use an image that was built for it; rocminfo tells the gfx name",
          "invalid device function | nobinaryforgpu | no kernel image | device kernel image is invalid | "
          "hiperrorinvalidimage | hiperrorinvalidkernelfile | invalid kernel file | hiperrorsharedobject | "
          "shared object initialization failed | tensilelibrary | no gpu arch | code object for all current devices | "
          "code object*not compatible | no compatible code object | hsa_status_error_invalid_isa | "
          "hsa_status_error_invalid_code_object | hsa_status_error_incompatible_arguments*isa | rocblas error: cannot read | "
          "illegal seek for gpu arch | unsupported gfx | not supported on this arch | does not support*gfx | "
          "only supported on*gfx | only supports*gfx | no device code | not compiled for*gfx | not built for*gfx | "
          "built for*gfx*but | compiled for*gfx*but | requires*gfx9 | incompatible*gfx | hip_fatbin*not | "
          "cannot find*code object | no suitable*code object | requires*compute capability | ptxas*gfx | "
          "unknown*gpu architecture | unrecognized*gpu architecture | ~unsupported gpu | ~unsupported architecture | "
          "~not supported on*gfx | ~not supported for*gfx | ~gfx*not supported | ~gfx*unsupported | ~arch*gfx*not | "
          "~architecture*not supported | ~no kernel found for"),
    Cause("gpu_not_visible", PROGRAM, PREFLIGHT,
          "a process sees no GPU, or fewer than it should",
          "look at HIP_VISIBLE_DEVICES, --gpus and the groups video and render",
          "than the number of available gpus | you requested gpu: | but your machine only has | device_count() is | "
          "unable to open /dev/kfd | /dev/kfd*permission denied | "
          "/dev/dri*permission denied | permission denied*/dev/kfd | permission denied*/dev/dri | no hip gpus | "
          "no cuda gpus | no gpus are available | no gpus available | invalid device ordinal | no rocm-capable | "
          "no cuda-capable | no hip-capable | hiperrornodevice | hiperrorinvaliddevice | hiperrornotinitialized | "
          'not member of "render | not a member of "render | not member of "video | failed to get device count | '
          "fatal error during gpu init | found no nvidia driver | device count is 0 | found 0 gpu | 0 gpus found | "
          "not compiled with cuda enabled | not compiled with rocm | no devices were found | no amd gpu | "
          "amdgpu probe*failed | amdgpu: probe of*failed | no gpu agents | no agents found | cuda.is_available() is false | "
          "is_available() returned false | cuda.is_available() should be true | but only*gpus are | but only*gpu is | "
          "but found only*gpu | only*gpus visible | expected*gpus*found | expected*gpus, got | gpus*but*visible | "
          "duplicate gpu detected | not a valid*hip_visible_devices | could not initialize tensile host: no devices | "
          "~no gpu detected | ~no gpus found | ~no gpu found | ~no gpus were found | ~no gpu was found | ~no devices found | "
          "~cuda is not available | ~rocm is not available | ~hip is not available | ~fewer gpus than"),
    Cause("driver_mismatch", PROGRAM, PREFLIGHT,
          "the ROCm of the image and the node's driver do not work together",
          "update amdgpu-dkms on the node, or use an image for its driver",
          "hsa_status_error_incompatible | kfd does not support | driver version is insufficient | "
          "hiperrorinsufficientdriver | insufficient driver | incompatible kernel and userspace | hsa_init failed | "
          "hsa_status_error: a generic error | hsa_status_error*hsa_init | rocm version*does not match*driver | "
          "rocm*driver*mismatch | driver*rocm*mismatch | driver/library version mismatch | kernel driver*too old | "
          "driver*too old | driver is older | driver*not compatible | driver*incompatible | kfd version*not supported | "
          "kfd*version mismatch | kfd*too old | ioctl version mismatch | module amdgpu*not loaded | "
          "rock module is not loaded | no supported gpu*driver | driver not initialized | initialize rsmi | "
          "rsmi_status_init_error | amdsmi*init*fail | amdsmi_status_driver | "
          "call returned hsa_status_error_out_of_resources | is detected but the library is built for | built for rocm*but | "
          "built with rocm*but | was compiled with*rocm*runtime | requires rocm | requires driver | requires*amdgpu driver | "
          "requires a newer*driver | firmware*too old | firmware*mismatch | unsupported*driver version | "
          "hipruntime*version*driver"),
    Cause("illegal_access", PROGRAM, PREFLIGHT,
          "a GPU kernel used memory that is not its own",
          "a defect of a kernel, or a broken GPU when it is always the same one",
          "illegal memory access | memory access fault | illegaladdress | memory_aperture_violation | "
          "memory aperture violation | protection_fault | hsa_status_error_memory_fault | amdgpu*page fault | "
          "[gfxhub*page fault | [mmhub*page fault | gpu page fault | retry page fault | misaligned address | "
          "page not present or supervisor privilege | write access to a read-only page | memory violation | "
          "invalid device pointer | gpu*memory fault"),
    Cause("device_assert", PROGRAM, LOGS,
          "a GPU kernel was given an index or a value out of its range",
          "mostly data that do not fit the model (vocabulary, labels); the lines above name the kernel",
          "device-side assert | hiperrorassert | .cu:*assertion | .hip:*assertion | srcindex < | "
          "index out of bounds*thread: [ | thread: [*assertion"),
    Cause("gpu_hung", PROGRAM, LEAVE_OUT,
          "a GPU hung and was reset",
          "look at the node's kernel log; leave the node out when it comes again",
          "gpu hang | gpu is hung | hang detected | gpu reset | gpu recovery fail | gpu recovery* begin | "
          "ring*timeout, signaled | ring gfx*timeout | ring sdma*timeout | ring comp*timeout | ring page*timeout | "
          "ring vcn*timeout | ring kiq*timeout | failed to evict*queue | failed to quiesce kfd | "
          "cp might be in an unrecoverable state | unrecoverable state, issue | mes failed | mes(*failed | mes*failed to | "
          "mes ring | kiq*test failed | ring*test failed | kiq*timeout | device wedged | ip block*is hung | fence*timed out | "
          "fence*timeout | waiting for fences timed out | fence wait*timeout | hiperrorlaunchtimeout | launch timed out | "
          "queue eviction | queue preemption | queues preemption | queue*hung | smu is in hanged state | failed to send smu | "
          "hws hang | mode1 reset | mode-1 reset | failed to suspend process | gpu*unresponsive | gpu*not responding | "
          "gpu*stopped responding | amdgpu*hang"),
    Cause("rdma_device", PROGRAM, PREFLIGHT,
          "an RDMA device cannot be opened in the container",
          "give it /dev/infiniband and the library of the NIC's driver (container.mounts); preflight tells",
          "ibv_open_device | unable to open device | failed to open libibverbs | no rdma device | no rdma-capable | "
          "no ib device | no device found*nccl_ib_hca | no device found*ib | no ib/roce device | "
          "does not support the kernel abi | /dev/infiniband*permission denied | permission denied*/dev/infiniband | "
          "couldn't open uverbs | failed to open uverbs | ibv_get_device_list | no userspace device-specific driver | "
          "failed to get ib device | unable to get the list of ib | nccl_ib_hca*not found | nccl_ib_hca*no match | "
          "no matching*hca | ibv_query_device*fail | failed to open device mlx5 | failed to open device*rdma | "
          "ibv_alloc_pd*fail | ibv_query_port*fail"),
    Cause("gid_index", PROGRAM, PREFLIGHT,
          "RDMA used a GID that the port does not have",
          "leave NCCL_IB_GID_INDEX to the nodes, or correct it; show_gids tells",
          "modify_qp*no data available | modify_qp*invalid argument | modify_qp*errno 61 | modify_qp*errno 22 | "
          "modify qp*invalid argument | modify qp*no data available | ibv_query_gid | query_gid*fail | invalid gid | "
          "gid index*not found | gid index*invalid | gid_index*invalid | gid index*out of range | gid*is not valid | "
          "gid*not found | no gid*found | no valid gid | no usable gid | could not find*gid | gid table | gid*is empty | "
          "gid entry"),
    Cause("no_interface", PROGRAM, PREFLIGHT,
          "the network interface that was named is not there",
          "correct `network.socket_ifname` of the site; `ip addr` tells the names",
          "gloo*no such device | no socket interface found | no interface found | unable to find address for | "
          "no such interface | could not find interface | could not find any*interface | cannot find interface | "
          "unable to find interface | unable to find network interface | does not match any interface | "
          "no ip found for interface | unable to resolve*interface | no usable*interface | no matching interface | "
          "network interface*not found | network interface*does not exist | nccl_socket_ifname*not | gloo_socket_ifname*not | "
          "gloo_socket_ifname*invalid | unsupported gloo device | makedeviceforinterface | makedeviceforhostname | "
          "bootstrap : no | not a valid network interface | has no ipv4 address | ~interface*not found | "
          "~interface*does not exist"),
    Cause("port_in_use", PROGRAM, PREFLIGHT,
          "a port that the run needs is in use",
          "something of an earlier run may be left on the node (preflight tells)",
          "address already in use | eaddrinuse | errno: 98 | errno 98 | (os error 98) | port is already allocated | "
          "port*already in use | port*is in use | port*not available | port*already bound | port*is occupied | cannot bind | "
          "could not bind | failed to bind | bind: address | required ports are in use | exposing port"),
)  # fmt: skip
