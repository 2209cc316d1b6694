"""Failures before a run: container engine, image, registry, Slurm's launch, ssh. See tables.py."""

from __future__ import annotations

from orchestrator.causes.cause import PREFLIGHT, PROGRAM, RESUME, Cause

ENGINE_CAUSES: tuple[Cause, ...] = (
    Cause("engine_denied", PROGRAM, PREFLIGHT,
          "this user may not use the container engine",
          "add the user to the group docker, or set `sudo` in the site",
          "permission denied*docker daemon | permission denied*docker api | permission denied*docker.sock | "
          "docker.sock*permission denied | permission denied*podman.sock | podman.sock*permission denied | "
          "permission denied*containerd.sock | "
          "sudo: a password is required | "
          "sudo: a terminal is required | not in the sudoers file | is not allowed to execute*docker | "
          "is not allowed to execute*podman"),
    Cause("engine_down", PROGRAM, PREFLIGHT,
          "the container engine is not running",
          "start it: systemctl start docker",
          "cannot connect to the docker daemon | is the docker daemon running | docker daemon is not running | "
          "failed to connect to the docker api | cannot connect to podman | unable to connect to podman | "
          "podman.sock: connect | docker.sock: connect: | error during connect | containerd.sock: connect | "
          "containerd.sock*no such file | containerd.sock*connection refused | failed to dial*containerd | "
          "docker.service*failed | docker.service*inactive | docker.service is not active | containerd.service*failed | "
          "dockerd*not running | ~docker is not running | ~podman*is not running"),
    Cause("pull_limit", PROGRAM, "orchestrator images --help",
          "the registry refuses more pulls for now",
          "log in to the registry, or use a mirror; or bring the image: orchestrator images distribute",
          "toomanyrequests | pull rate limit | download rate limit | 429 too many requests*manifest | "
          "too many requests*registry | registry*too many requests | docker*too many requests | "
          "initializing source*too many requests | pinging*too many requests | manifests*too many requests | "
          "v2/*too many requests | code: 429*registry | registry*code: 429"),
    Cause("user_ids", PROGRAM, PREFLIGHT,
          "the user has too few ids for containers without root on the node",
          "a range for the user in /etc/subuid and /etc/subgid there, setuid newuidmap, then `podman system migrate`",
          "newuidmap | newgidmap | potentially insufficient uids or gids | no subuid ranges | cannot find mappings for user | "
          "/etc/subuid"),
    Cause("pull_denied", PROGRAM, RESUME,
          "the registry does not give this user the image",
          "docker login (podman login) on the nodes, with a token that may read it",
          "pull access denied | requested access to the resource is denied | unauthorized: | no basic auth credentials | "
          "reading manifest*unauthorized | reading manifest*denied | initializing source*unauthorized | "
          "initializing source*denied | initializing source*forbidden | incorrect username or password | "
          "invalid username/password | authentication is required | authentication required*registry | "
          "registry*authentication required | failed to resolve reference*forbidden | failed to resolve reference*401 | "
          "failed to resolve reference*403 | failed to resolve reference*authorization | failed to authorize | "
          "failed to fetch anonymous token | failed to fetch oauth token | unable to retrieve auth token | "
          "error getting credentials | insufficient_scope | access forbidden | no pull access | denied: you do not have | "
          "denied: requested | denied: permission | denied: your authorization | denied: installation not allowed | denied: { | "
          "denied: denied | invalid status code from registry 40 | response status code from registry 40 | "
          "v2/*401 unauthorized | v2/*403 forbidden | manifests/*401 | manifests/*403 | registry*401 unauthorized | "
          "registry*403 forbidden | registry*code: 401 | registry*code: 403 | code: 401*v2/ | "
          "could not process json input*enroot | requesting bearer token | get*v2/*: unauthorized | get*v2/*: denied"),
    Cause("image_missing", PROGRAM, RESUME,
          "the image is not there under this name",
          "correct the image of the workload or the site, or pull it",
          "manifest unknown | manifest_unknown | no such image | no such manifest | image not known | image unknown | "
          "name unknown | name_unknown | repository name not known to registry | not found: manifest | "
          "manifest for*not found | manifest*not found | no matching manifest | image*not found in registry | "
          "did not resolve to an alias | image does not exist | failed to resolve reference*not found | "
          "failed to resolve image | unable to find user*image | tag*not found in repository | reference does not exist | "
          "invalid reference format | could not parse image reference | repository*not found: does not exist | "
          ".sqsh*no such file | no such file*.sqsh | .sif*no such file | .tar*no such file*docker load | registry*code: 404 | "
          "v2/*code: 404 | code: 404*v2/ | v2/*404 not found | no image with | docker image*does not exist | "
          "docker image*not found | ~unable to find image*locally | ~image*not found | ~image*does not exist"),
    Cause("image_damaged", PROGRAM, RESUME,
          "the image, or what is kept of it on the node, is damaged",
          "remove it from the node and pull it again; look at the engine's storage",
          "bad superblock for squashfs | while mounting image*superblock | "
          "layer verification failed | invalid tar header | layer does not exist | layer not known | "
          "failed to register layer: *unexpected eof | unexpected commit digest | failed size validation | "
          "failed commit on ref | layers from manifest don't match | error creating layer | corrupt*image layer | "
          "squashfs error | missing or corrupt*/var/lib/docker | failed to mount squashfs | failed to get layer"),
    Cause("bad_mount", PROGRAM, PREFLIGHT,
          "a folder to mount into the container is not there",
          "correct `data` or `container.mounts` of the site, or mount the file system",
          "doesn't exist in container | "
          "mount*no such file or directory: oci | mount ` | crun: mount | source path does not exist | error mounting | "
          "failed to mount | invalid mount config | invalid mount path | invalid volume specification | "
          "invalid mount option | creating mount source path*no such | "
          "creating mount source path*read-only | creating mount source path*file exists | mount source*does not exist | "
          "mounts denied | "
          "not a shared mount | duplicate mount point | trying to mount a directory onto a file | "
          "no such file or directory*rootfs | statfs*no such file | mkdir*read-only file system*mount | "
          "mkdir*read-only file system*oci | lstat*no such file or directory | making mountpoint | "
          "mount destination*not absolute | mount point*does not exist | enroot-mount | couldn't mount | can't mount | "
          "could not mount | mount * through procfd | mount hook*no such | failed to resolve mount | mount * does not exist | "
          "~mount*no such file or directory | ~cannot mount"),
    Cause("registry_away", PROGRAM, RESUME,
          "the registry cannot be reached",
          "look at the node's way out, its proxy and DNS; or bring the image: orchestrator images distribute",
          "dial tcp | tls handshake timeout | tls: handshake failure | x509: | client.timeout exceeded | awaiting headers | "
          "pinging container registry | registry*server misbehaving | proxyconnect tcp | net/http: | "
          "http response to https client | context deadline exceeded | unexpected status*registry*50 | "
          "registry*unexpected status*50 | v2/*502 bad gateway | v2/*503 service | v2/*500 internal | v2/*504 gateway | "
          "error pulling image configuration | received unexpected http status | tls: failed to verify | "
          "error parsing http 50 | registry*connection refused | registry*timed out | registry*connection reset | "
          "get*v2/*: eof | could not resolve host: registry | unable to ping registry | lookup*no such host | "
          "lookup*i/o timeout | lookup*server misbehaving | ~registry*unreachable"),
    Cause("device_missing", PROGRAM, PREFLIGHT,
          "a device for the container is not there",
          "is the amdgpu driver loaded, and are /dev/kfd and /dev/dri there?",
          "error gathering device information | stat /dev/*no such | no such device*/dev/ | no such device or address*kfd | "
          "/dev/kfd*no such file | /dev/dri*no such file | /dev/kfd*does not exist | /dev/kfd*not found | "
          "/dev/dri*does not exist | /dev/infiniband*no such file | could not select device driver | error adding device | "
          "unresolvable cdi device | cdi device*not found | kfd driver not loaded | not a device node | /dev/kfd*is missing | "
          "/dev/dri*is missing | nvidia-container-cli"),
    Cause("ssh_denied", PROGRAM, PREFLIGHT,
          "a node does not let this user in by ssh, or is not the one that is known",
          "try `ssh -o BatchMode=yes` to the node: its key, the user's key, and pam_slurm (a job of yours must run there)",
          "host key verification failed | permission denied (publickey | permission denied (gssapi | "
          "permission denied (keyboard | remote host identification has changed | kex_exchange_identification | "
          "too many authentication failures | pam_slurm | access denied by pam | no active jobs on this node | "
          "ssh: connect to host | ssh_exchange_identification"),
    Cause("launch_failed", PROGRAM, RESUME,
          "Slurm could not start the job's processes on a node",
          "look at slurmd's log and the prolog on that node; leave the node out until then",
          "execve()*slurm_script | "
          "prolog failed | prolog failure | prolog error | prolog/epilog failure | prolog*exit code | prolog*status | "
          "prolog_failed | task launch for | task launch failed | application launch failed | unable to create step | "
          "unable to create job step | slurmd could not | unable to satisfy cpu bind | unable to layout tasks | "
          "plugin initialization failed | spank*failed | spank: required plugin | container_p_join | container_g_join | "
          "failed to invoke spank | "
          "slurmstepd*unable to create cgroup | slurmstepd*cgroup*unable | joblaunchfailure | unable to confirm allocation | "
          "launch*communication connection failure | batch job*launch failure | too many job steps"),
)  # fmt: skip

CONTAINER_START = Cause("container_start", PROGRAM, PREFLIGHT,
          "the container engine could not start the container",
          "the engine's log on the node tells more: journalctl -u docker",
          "failed to create task for container | oci runtime | failed to create shim task | runc create failed | "
          "runc run failed | runc did not terminate | crun: | is already in use by | name*is already in use | "
          "error response from daemon: failed to start | cannot start container | failed to start container | "
          "unable to start container | failed to set up container | container create failed | creating container storage | "
          "error creating container | failed to create endpoint | failed to create network | netavark: | setting up network | "
          "slirp4netns failed | cgroup*no such file or directory: oci | conmon failed | conmon bytes | "
          "unknown or invalid runtime name | error creating overlay mount | overlay*invalid argument | "
          "couldn't start container | container start failed | failed to create container | enroot-switchroot | "
          "enroot-nsenter | container exited before | no such container | marked for removal | conflicting options: ")  # fmt: skip
"""The engine prints these for every failed start: they follow all exact signs."""
