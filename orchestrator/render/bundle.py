"""Render a bundle's files from the templates and an Entry."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import asdict
from functools import cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator import __version__
from orchestrator.errors import RenderError
from orchestrator.model.prerequisites import build_advice, unmet
from orchestrator.render.job_time import job_time
from orchestrator.render.readme import shown_values
from orchestrator.render.sources import ORIGINS, network_values, origins_table
from orchestrator.resources import data_dir, generated_file
from orchestrator.tuning.profile import SCRIPT, profile_for, profile_script

if TYPE_CHECKING:
    from jinja2 import Environment

    from orchestrator.model.entry import Entry, Mount
    from orchestrator.model.site_documents import SiteMount

Files = dict[str, bytes]

MANIFEST = "manifest.json"
WORKLOAD = "workload.json"
_PLAIN = ("preflight.sh",)
_RENDERED = (
    "README",
    "job.sh",
    "run_with_docker.sh",
    "run_with_docker_slurm.sh",
    "settings.sh",
    "rccl_env.sh",
)


def render_bundle(entry: Entry, *, nexp: int) -> Files:
    """Return {relative path: bytes}; the same entry and nexp give the same bytes.

    Raises RenderError without the site's log directory, or for a value unfit for scripts.
    """
    from orchestrator.model.checks import launch_problem
    from orchestrator.model.sites import sets_folder

    sets_folder(entry.site, RenderError)
    if not entry.image and entry.container.engine != "none":
        raise RenderError(
            f"{entry.workload} of round {entry.round} was published without a container image",
            hint=(
                f"in the site file: `container: {{engine: none}}` and `code: {{{entry.workload}: "
                f"/path/to/the/code}}`"
            ),
        )
    of = entry.documents
    if problem := launch_problem(of.system, of.mine, of.workload, of.round, entry.site.code):
        raise RenderError(problem, hint='orchestrator docs descriptors, "How runs are started"')
    if not 1 <= nexp <= 9999:
        raise RenderError(f"nexp is {nexp}; it must be a number from 1 to 9999")
    templates = data_dir("templates")
    environment = _environment(templates)
    values = _values(entry, nexp)
    values |= shown_values(entry, values)
    files: Files = {name: _render(environment, f"{name}.j2", values) for name in _RENDERED}
    files[entry.config_file] = _render(environment, "config.sh.j2", values)
    files[SCRIPT] = profile_script(profile_for(entry))
    files.update({name: (templates / name).read_bytes() for name in _PLAIN})
    files.update(_package(entry))
    files.update(_code(entry.workload))
    names = _input_names(entry)
    files[WORKLOAD] = _workload(entry)
    files[ORIGINS] = origins_table(entry, names)
    files[MANIFEST] = _manifest(entry, nexp, files, templates, names)
    return dict(sorted(files.items()))


def image_config(entry: Entry) -> bytes:
    """Return the whole environment as a file to mount over the image's config."""
    from orchestrator.model.quoting import comment, env_value, name

    about = f"Environment of {entry.workload} (round {entry.round}) on {entry.system}"
    lines = [f"# {comment(about)}, in place of the image's own."]
    lines += [f"export {name(key)}={env_value(value)}" for key, value in entry.whole_env.items()]
    return ("\n".join(lines) + "\n").encode("utf-8", "surrogateescape")


def manifest_hash(files: Mapping[str, bytes]) -> str:
    """Return the manifest's SHA-256, which identifies the bundle."""
    return hashlib.sha256(files[MANIFEST]).hexdigest()


@cache
def _environment(templates: Path) -> Environment:
    from orchestrator.jinja import environment
    from orchestrator.model import quoting

    made = environment(
        templates,
        generated_file(""),
        autoescape=False,
        keep_trailing_newline=True,
        finalize=quoting.only_quoted,
    )
    made.filters |= quoting.FILTERS
    return made


def _render(environment: Environment, template: str, values: Mapping[str, Any]) -> bytes:
    from jinja2 import UndefinedError

    try:
        text = environment.get_template(template).render(values)
    except UndefinedError as error:
        raise RenderError(f"templates/{template}: {error.message}") from error
    try:
        # surrogateescape restores bytes of arguments in other encodings.
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise RenderError(
            f"a value holds a lone surrogate, which is no character: {text[error.start]!r}"
        ) from error


def _values(entry: Entry, nexp: int) -> dict[str, Any]:
    from orchestrator.model.quoting import Shell

    site = entry.site
    container = entry.container
    return {
        "entry": entry,
        "site": site,
        "nexp": nexp,
        "job_name": f"orch-{entry.system}-{entry.workload}",
        "sbatch_options": list(_sbatch_options(entry, nexp)),
        "deep_gbps": "" if site.preflight.deep_gbps is None else f"{site.preflight.deep_gbps:g}",
        "engine_command": container.command
        or ((container.engine,) if container.engine != "none" else ()),
        "image_gb": entry.image_gb,
        "requires": [f"{name}={value}" for name, value in entry.requires.items()],
        "reaches": [f"{part.host}\t{part.what}" for part in entry.reaches],
        "proxy": [f"{name}={value}" for name, value in site.container.proxy.variables.items()],
        "site_mounts": [_site_mount(mount) for mount in site.container.mounts],
        "container_options": list(_container_options(entry)),
        "mounts": [_mount_line(mount) for mount in entry.mounts if mount.variable != "LOGDIR"],
        "mount_values": sorted(site.data.get(entry.workload, {}).items()),
        "loader": Shell(lib_file("loader.py").decode().strip("\n")),
        "job_time": job_time(entry),
        "build_advice": build_advice(entry),
        "unmet": [part.what for part in unmet(entry)],
        "launch_env": [f"{name}\t{value}" for name, value in entry.launch.env.items()],
        "launch_verbose": [f"{name}\t{value}" for name, value in entry.launch.verbose.items()],
        "env": list(entry.env.items()),
        "rccl_env": list(entry.rccl_env.items()),
        **network_values(entry),
    }


def _sbatch_options(entry: Entry, nexp: int) -> list[str]:
    site = entry.site
    options = [
        f"--time={site.time_limit or job_time(entry).minutes(nexp)}",
        "--output=job_%j.out",
    ]
    options += ["--exclusive", "--mem=0"] if site.exclusive else []
    options += entry.gpu_options
    for name in ("partition", "account", "qos", "reservation", "constraint"):
        if value := getattr(site, name):
            options.append(f"--{name}={value}")
    for name in ("exclude", "nodelist"):
        if nodes := getattr(site, name):
            options.append(f"--{name}={','.join(nodes)}")
    return options


def _container_options(entry: Entry) -> list[str]:
    container = entry.container
    options = [f"--network={container.network}", f"--ipc={container.ipc}", f"--uts={container.uts}"]
    options += ["--privileged"] if container.privileged else []
    options += [f"--device={device}" for device in container.devices]
    options += [f"--group-add={group}" for group in container.groups]
    options += [f"--cap-add={cap}" for cap in container.caps]
    options += [f"--security-opt={option}" for option in container.security_opt]
    options += [f"--ulimit={name}={limit}" for name, limit in container.ulimits]
    options += [f"--shm-size={container.shm_size}"] if container.shm_size else []
    return [*options, *container.options]


def _mount_line(mount: Mount) -> str:
    return "\t".join((mount.variable, mount.subpath or ".", mount.container, _mode(mount)))


def _mode(mount: Mount) -> str:
    return "ro" if mount.read_only else "written" if mount.written else "rw"


def _site_mount(mount: SiteMount) -> str:
    return "\t".join((mount.host, mount.container or mount.host, "ro" if mount.read_only else "rw"))


def _package(entry: Entry) -> Files:
    """Return lib/: `orchestrator.onnode` without parts unusable for this entry
    (kernel/program.py)."""
    from orchestrator import onnode
    from orchestrator.onnode.kernel.program import needs

    site = entry.site
    notifies = bool(site.notify.command or site.notify.mail or site.notify.webhook)
    wanted = needs(
        entry.container.engine,
        deep=site.preflight.deep,
        notifies=notifies,
        scratch=site.container.scratch is not None,
    )
    folder = Path(onnode.__path__[0])
    names = [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*.py"))]
    return {
        f"lib/{name}": (folder / name).read_bytes() for name in names if is_carried(name, wanted)
    }


def is_carried(name: str, wanted: Mapping[str, bool]) -> bool:
    """Return whether a bundle carries a file of lib/."""
    from orchestrator.onnode.kernel.program import PARTS

    return all(wanted[part.need] for part in PARTS if name.startswith(part.path))


def lib_file(name: str) -> bytes:
    """Return a file of lib/, even if only some bundles carry it."""
    from orchestrator import onnode

    return (Path(onnode.__path__[0]) / name).read_bytes()


def _code(workload: str) -> Files:
    """Return a workload's shipped code, which runs without an image."""
    folder = data_dir("workloads") / workload
    if not folder.is_dir():
        return {}
    return {
        f"code/{path.relative_to(folder).as_posix()}": path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def _workload(entry: Entry) -> bytes:
    """Return `workload.json`: facts for scores and checks of the set's logs."""
    described = {
        "schema": 1,
        "workload": entry.workload,
        "runs_required": entry.runs_required,
        "logged": [asdict(check) for check in entry.logged],
    }
    return (json.dumps(described, indent=1, ensure_ascii=False) + "\n").encode()


def _manifest(
    entry: Entry, nexp: int, files: Files, templates: Path, names: Mapping[str, str]
) -> bytes:
    """Return versions and hashes of inputs and outputs, without time, host or absolute path."""
    inputs = {
        f"templates/{path.relative_to(templates).as_posix()}": _sha256(path.read_bytes())
        for path in templates.rglob("*.j2")
    }
    inputs |= {name: _sha256(Path(path).read_bytes()) for path, name in names.items()}
    manifest = {
        "schema": 1,
        "orchestrator": __version__,
        "system": entry.system,
        "workload": entry.workload,
        "round": entry.round,
        "nexp": nexp,
        "inputs": dict(sorted(inputs.items())),
        "outputs": {name: _sha256(content) for name, content in sorted(files.items())},
    }
    return (json.dumps(manifest, indent=1, ensure_ascii=False) + "\n").encode()


def _input_names(entry: Entry) -> dict[str, str]:
    names: dict[str, str] = {}
    for path in entry.files:
        names[path] = _input_name(Path(path), names.values())
    return names


def _input_name(path: Path, taken: Collection[str]) -> str:
    for kind in ("systems", "workloads"):
        if path.resolve().is_relative_to(data_dir(kind)):
            return f"{kind}/{path.resolve().relative_to(data_dir(kind)).as_posix()}"
    names = (path.name if n == 1 else f"{path.name} ({n})" for n in count(1))
    return next(name for name in names if name not in taken)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
