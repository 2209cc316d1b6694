"""Bad documents: each message names file, line and key, and says what would be right."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from orchestrator.errors import DescriptorError, OrchestratorError, UsageError, did_you_mean
from orchestrator.model import Catalogue, load_entry, load_site
from orchestrator.model.fields import sbatch_problem
from orchestrator.model.source import Document
from orchestrator.model.validation import validate_file
from orchestrator.model.values import name_problem, secret_problem, value_problem

SYSTEM = """\
kind: system
name: MI300X_2x8x1
accelerator: MI300X
nodes: 2
gpus_per_node: 8
fabric: pollara
workloads:
  flux1:
    "6.0":
      micro_batch: 32
      global_batch: 512
      env:
        LR: "0.1"
"""

SITE = """\
kind: site
name: here
scheduler: slurm
log_dir: /shared/results
data:
  flux1: {DATADIR: /data/flux1}
network:
  socket_ifname: eno0
container:
  engine: docker
limits:
  attempts: 3
sbatch: ["--mem=0"]
exclude: [node7]
"""

WORKLOAD = """\
kind: workload
name: tiny
benchmark: tiny
metric: loss
runs_required: 3
code_dir: /workspace/code
command: [bash, run.sh]
mounts:
  - {variable: DATADIR, container: /data}
rounds:
  "6.0":
    ruleset: "6.0.0"
    image: registry/tiny:1
    minutes_per_run: 5
"""

OWN_WORKLOAD = WORKLOAD.replace('"6.0.0"', "own")

# id: (document, old text, new text, line, key, part of the message)
CASES: dict[str, tuple[str, str, str, int, str, str]] = {
    "unknown key": (SYSTEM, "nodes: 2", "noodes: 2", 4, "noodes", 'did you mean "nodes"?'),
    "unknown key lists the keys": (
        SYSTEM,
        "fabric: pollara",
        "colour: red",
        6,
        "colour",
        "keys here: kind, name",
    ),
    "missing key": (SYSTEM, "nodes: 2\n", "", 1, "nodes", "this key is required"),
    "unknown nested key": (
        SYSTEM,
        "micro_batch",
        "mikro_batch",
        10,
        "workloads.flux1.6.0.mikro_batch",
        'did you mean "micro_batch"?',
    ),
    "submitted or not": (
        SYSTEM,
        "micro_batch: 32",
        "submitted: maybe",
        10,
        "workloads.flux1.6.0.submitted",
        "'maybe' is not accepted; accepted: true, false, unknown",
    ),
    "text for a number": (
        SYSTEM,
        "nodes: 2",
        'nodes: "2"',
        4,
        "nodes",
        "must be a whole number, not text ('2')",
    ),
    "fraction for a number": (
        SYSTEM,
        "nodes: 2",
        "nodes: 2.5",
        4,
        "nodes",
        "must be a whole number",
    ),
    "truth for a number": (
        SYSTEM,
        "nodes: 2",
        "nodes: true",
        4,
        "nodes",
        "must be a whole number, not true/false",
    ),
    "list for a number": (
        SYSTEM,
        "nodes: 2",
        "nodes: [2]",
        4,
        "nodes",
        "must be a whole number, not a list",
    ),
    "no nodes": (
        SYSTEM,
        "nodes: 2",
        "nodes: 0",
        4,
        "nodes",
        "0 is too small; accepted: at least 1",
    ),
    "negative nodes": (SYSTEM, "nodes: 2", "nodes: -2", 4, "nodes", "-2 is too small"),
    "absurd nodes": (
        SYSTEM,
        "nodes: 2",
        "nodes: 1000000000",
        4,
        "nodes",
        "too large; accepted: at most 100000",
    ),
    "number for a name": (
        SYSTEM,
        "MI300X_2x8x1",
        "17",
        2,
        "name",
        "must be text, not a whole number (17); write",
    ),
    "name with a line break": (
        SYSTEM,
        "name: MI300X_2x8x1",
        r'name: "MI300X\n2x8"',
        2,
        "name",
        "is not a name",
    ),
    "name with blanks": (
        SYSTEM,
        "name: MI300X_2x8x1",
        'name: "MI300X 2"',
        2,
        "name",
        "accepted: up to 80 letters",
    ),
    "name against nodes": (
        SYSTEM,
        "nodes: 2",
        "nodes: 4",
        4,
        "nodes",
        "the name MI300X_2x8x1 says 2",
    ),
    "name against GPUs": (
        SYSTEM,
        "gpus_per_node: 8",
        "gpus_per_node: 4",
        5,
        "gpus_per_node",
        "the name MI300X_2x8x1 says 8",
    ),
    "name against GPU model": (
        SYSTEM,
        "accelerator: MI300X",
        "accelerator: MI325X",
        3,
        "accelerator",
        "the name MI300X_2x8x1 says MI300X",
    ),
    "name against file": (
        SYSTEM,
        "MI300X_2x8x1",
        "MI300X_02x08x01",
        2,
        "name",
        "the file is called",
    ),
    "unknown accelerator": (
        SYSTEM,
        "accelerator: MI300X",
        "accelerator: MI300Y",
        3,
        "accelerator",
        'did you mean "MI300X"?; there are: MI300X, MI325X',
    ),
    "unknown fabric": (
        SYSTEM,
        "fabric: pollara",
        "fabric: polara",
        6,
        "fabric",
        'did you mean "pollara"?',
    ),
    "fabric of a wrong type": (
        SYSTEM,
        "fabric: pollara",
        "fabric: [pollara]",
        6,
        "fabric",
        "must be a name from",
    ),
    "inline fabric, unknown kind": (
        SYSTEM,
        "fabric: pollara",
        "fabric: {title: x, kind: broadcomm}",
        6,
        "fabric.kind",
        'did you mean "broadcom"?',
    ),
    "unknown workload": (
        SYSTEM,
        "  flux1:",
        "  flux2:",
        8,
        "workloads.flux2",
        'did you mean "flux1"?',
    ),
    "unknown round": (
        SYSTEM,
        '"6.0"',
        '"7.0"',
        9,
        "workloads.flux1.7.0",
        "flux1 has no round 7.0; it has: 6.0",
    ),
    "no round at all": (
        SYSTEM,
        '"6.0"',
        "six",
        9,
        "workloads.flux1.six",
        'two numbers such as "6.0"',
    ),
    "wrong global batch": (
        SYSTEM,
        "global_batch: 512",
        "global_batch: 500",
        11,
        "workloads.flux1.6.0.global_batch",
        "micro batch 32 x 16 ranks x accumulation 1 / parallel 1 = 512",
    ),
    "parallelism that does not divide": (
        SYSTEM,
        "global_batch: 512",
        "tensor_parallel: 3",
        9,
        "workloads.flux1.6.0",
        "16 ranks cannot be divided by",
    ),
    "number in env": (
        SYSTEM,
        '"0.1"',
        "0.1",
        13,
        "workloads.flux1.6.0.env.LR",
        "write it in quotes so that it is exported exactly as typed",
    ),
    "truth in env": (
        SYSTEM,
        '"0.1"',
        "True",
        13,
        "workloads.flux1.6.0.env.LR",
        "write it in quotes",
    ),
    "list in env": (
        SYSTEM,
        '"0.1"',
        "[1]",
        13,
        "workloads.flux1.6.0.env.LR",
        "accepted: text in quotes, null",
    ),
    "unknown form in env": (
        SYSTEM,
        '"0.1"',
        "{reff: nodes}",
        13,
        "workloads.flux1.6.0.env.LR",
        "{ref: NAME}",
    ),
    "unknown reference": (
        SYSTEM,
        '"0.1"',
        "{ref: node}",
        13,
        "workloads.flux1.6.0.env.LR",
        "accepted: system, ",
    ),
    "wrong minutes": (
        SYSTEM,
        '"0.1"',
        "{minutes: {fixed: 5}}",
        13,
        "workloads.flux1.6.0.env.LR",
        "exactly `fixed` and `per_run`",
    ),
    "wrong unique": (
        SYSTEM,
        '"0.1"',
        "{unique: 5}",
        13,
        "workloads.flux1.6.0.env.LR",
        "needs a text in quotes",
    ),
    "bad variable name": (
        SYSTEM,
        "LR:",
        "2LR:",
        13,
        "workloads.flux1.6.0.env.2LR",
        "is not a variable name",
    ),
    "variable of the loop": (
        SYSTEM,
        "LR:",
        "SEED:",
        13,
        "workloads.flux1.6.0.env.SEED",
        "belongs to the loop",
    ),
    "number of runs in env": (SYSTEM, "LR:", "NEXP:", 13, "workloads.flux1.6.0.env.NEXP", "--nexp"),
    "secret in env": (
        SYSTEM,
        "LR:",
        "HF_TOKEN: hf_secret #",
        13,
        "workloads.flux1.6.0.env.HF_TOKEN",
        "`pass_env` list",
    ),
    "NUL in env": (SYSTEM, '"0.1"', r'"a\0b"', 13, "workloads.flux1.6.0.env.LR", "NUL byte"),
    "env is a list": (
        SYSTEM,
        'LR: "0.1"',
        "- LR",
        12,
        "workloads.flux1.6.0.env",
        "must be a mapping, not a list",
    ),
    "relative image": (
        SYSTEM,
        "micro_batch: 32",
        'image: "a b"',
        10,
        "workloads.flux1.6.0.image",
        "is not an image reference",
    ),
    "relative device": (
        SYSTEM,
        "micro_batch: 32",
        "container: {devices: [dev/kfd]}",
        10,
        "workloads.flux1.6.0.container.devices[0]",
        "is not an absolute path",
    ),
    "ruleset that is none": (
        WORKLOAD,
        'ruleset: "6.0.0"',
        "ruleset: none",
        12,
        "rounds.6.0.ruleset",
        'accepted: the round whose MLPerf rules count, such as "6.0.0", or own for a workload',
    ),
    "too few runs for rules of its own": (
        OWN_WORKLOAD,
        "runs_required: 3",
        "runs_required: 2",
        5,
        "runs_required",
        "scored by the olympic mean of its runs (ruleset: own), which leaves out the fastest and the slowest",
    ),
    "logged by nothing": (
        WORKLOAD,
        "rounds:",
        "logged: {seed: {}}\nrounds:",
        10,
        "logged.seed",
        "needs `env` (a variable), `ref` (a fact), or both",
    ),
    "logged by an unknown fact": (
        WORKLOAD,
        "rounds:",
        "logged: {seed: {ref: globel_batch}}\nrounds:",
        10,
        "logged.seed.ref",
        'did you mean "global_batch"',
    ),
    "logged in a form without the value": (
        WORKLOAD,
        "rounds:",
        'logged: {seed: {env: SEED, form: "{nodes}x"}}\nrounds:',
        10,
        "logged.seed.form",
        "must have {} once",
    ),
    "logged in a form with an unknown fact": (
        WORKLOAD,
        "rounds:",
        'logged: {seed: {env: SEED, form: "{nods}x{}"}}\nrounds:',
        10,
        "logged.seed.form",
        "{nods} is no fact",
    ),
    "logged by a variable that is none": (
        WORKLOAD,
        "rounds:",
        "logged: {seed: {env: 2SEED}}\nrounds:",
        10,
        "logged.seed.env",
        "is not a variable name",
    ),
    "no workloads": (
        SYSTEM,
        SYSTEM[SYSTEM.index("workloads:") :],
        "workloads: {}\n",
        7,
        "workloads",
        "must not be empty",
    ),
    "workload without rounds": (
        SYSTEM,
        SYSTEM[SYSTEM.index('    "6.0"') :],
        "",
        8,
        "workloads.flux1",
        "must be a mapping, not nothing",
    ),
    "key twice": (
        SYSTEM,
        "nodes: 2",
        "nodes: 2\nnodes: 3",
        4,
        "nodes",
        "stands twice, again in line 5",
    ),
    "variable twice": (
        SYSTEM,
        'LR: "0.1"',
        'LR: "0.1"\n        LR: "0.2"',
        13,
        "workloads.flux1.6.0.env.LR",
        "again in line 14",
    ),
    "other kind": (
        SYSTEM,
        "kind: system",
        "kind: sytem",
        1,
        "kind",
        "accepted: system, workload, site",
    ),
    "alias": (
        SYSTEM,
        "nodes: 2",
        "nodes: &n 2",
        4,
        "nodes",
        "anchors (&name) and aliases (*name) are not accepted",
    ),
    "merge key": (SYSTEM, "nodes: 2", "<<: {a: 1}", 4, "<<", "merge keys are not accepted"),
    "tag": (
        SYSTEM,
        "nodes: 2",
        "nodes: !!python/object:os.system 2",
        4,
        "nodes",
        "is not accepted; write a plain",
    ),
    "key that is a list": (SYSTEM, "nodes: 2", "? [a]\n: 2", 4, "", "a key must be plain text"),
    "deep nesting": (
        SYSTEM,
        "nodes: 2",
        "nodes: " + "[" * 400 + "]" * 400,
        4,
        "nodes[0][0]",
        "nested deeper than 20",
    ),
    "site without log_dir": (
        SITE,
        "log_dir: /shared/results\n",
        "",
        1,
        "log_dir",
        "the folder of the sets",
    ),
    "relative log_dir": (
        SITE,
        "/shared/results",
        "results",
        4,
        "log_dir",
        "'results' is not an absolute path",
    ),
    "log_dir through ..": (
        SITE,
        "/shared/results",
        "/shared/../results",
        4,
        "log_dir",
        "goes through '..'",
    ),
    "unknown scheduler": (
        SITE,
        "scheduler: slurm",
        "scheduler: slurn",
        3,
        "scheduler",
        "'slurn' is not accepted; accepted: slurm, local; did you mean \"slurm\"?",
    ),
    "site check": (
        SITE,
        "exclude: [node7]",
        "preflight: {skip: [clok]}",
        14,
        "preflight.skip[0]",
        "'clok' is not accepted; accepted: engine, image",
    ),
    "site proxy with a password": (
        SITE,
        "  engine: docker",
        "  engine: docker\n  proxy: {http: 'http://me:hf_secret@proxy.example:3128'}",
        11,
        "container.proxy.http",
        "`pass_env` list",
    ),
    "site proxy with a user name": (
        SITE,
        "  engine: docker",
        "  engine: docker\n  proxy: {https: 'hf_secret@proxy.example:3128'}",
        11,
        "container.proxy.https",
        "user name or password",
    ),
    "site proxy without a scheme": (
        SITE,
        "  engine: docker",
        "  engine: docker\n  proxy: {http: 'proxy.example:3128'}",
        11,
        "container.proxy.http",
        "'proxy.example:3128' is not a proxy; accepted: http://HOST:PORT",
    ),
    "site no_proxy": (
        SITE,
        "  engine: docker",
        "  engine: docker\n  proxy: {no_proxy: [localhost, 'http://x y']}",
        11,
        "container.proxy.no_proxy",
        "'http://x y' is not a host",
    ),
    "a password in an address": (
        SITE,
        "exclude: [node7]",
        "env: {HTTPS_PROXY: 'http://me:hf_secret@proxy.example:3128'}",
        14,
        "env.HTTPS_PROXY",
        "`pass_env` list",
    ),
    "a password in a further option of sbatch": (
        SITE,
        '["--mem=0"]',
        "['--export=ALL,https_proxy=http://me:hf_secret@proxy.example']",
        13,
        "sbatch[0]",
        "user name or password in an address",
    ),
    "site check seconds": (
        SITE,
        "exclude: [node7]",
        "preflight: {check_seconds: 900}",
        14,
        "preflight.check_seconds",
        "900 is too large; accepted: at most 600",
    ),
    "site spares": (
        SITE,
        "exclude: [node7]",
        "spares: -1",
        14,
        "spares",
        "-1 is too small; accepted: at least 0",
    ),
    "unknown engine": (
        SITE,
        "engine: docker",
        "engine: dockr",
        10,
        "container.engine",
        "docker, podman, none",
    ),
    "data of an unknown workload": (
        SITE,
        "flux1:",
        "flux:",
        6,
        "data.flux",
        'did you mean "flux1"?',
    ),
    "unknown data folder": (
        SITE,
        "DATADIR",
        "DATDIR",
        6,
        "data.flux1.DATDIR",
        'did you mean "DATADIR"?',
    ),
    "relative data folder": (
        SITE,
        "/data/flux1",
        "data/flux1",
        6,
        "data.flux1.DATADIR",
        "not an absolute path",
    ),
    "data folder is a number": (
        SITE,
        "/data/flux1",
        "7",
        6,
        "data.flux1.DATADIR",
        "an absolute path in quotes",
    ),
    "wrong time limit": (
        SITE,
        "log_dir",
        "time_limit: two hours\nlog_dir",
        4,
        "time_limit",
        "D-HH:MM:SS",
    ),
    "time limit of no minutes": (
        SITE,
        "log_dir",
        "time_limit: 0\nlog_dir",
        4,
        "time_limit",
        "accepted: 1 to 525600",
    ),
    **{
        f"time limit {limit}": (
            SITE,
            "log_dir",
            f"time_limit: '{limit}'\nlog_dir",
            4,
            "time_limit",
            "is no limit to sbatch",
        )
        for limit in ("0", "00:00:00", "0-0")
    },
    "sbatch line with #SBATCH": (
        SITE,
        '"--mem=0"',
        '"#SBATCH --mem=0"',
        13,
        "sbatch[0]",
        "without #SBATCH",
    ),
    "sbatch line of two lines": (
        SITE,
        '"--mem=0"',
        r'"--mem=0\nrm -rf /"',
        13,
        "sbatch[0]",
        "line break",
    ),
    "sbatch line that is ours": (
        SITE,
        '"--mem=0"',
        '"--job-name=x"',
        13,
        "sbatch[0]",
        "is set by orchestrator",
    ),
    "sbatch line for another cluster": (
        SITE,
        '"--mem=0"',
        '"--clusters=x"',
        13,
        "sbatch[0]",
        "submit them on a login node of theirs",
    ),
    **{
        f"sbatch line {line}": (SITE, '["--mem=0"]', f"['{line}']", 13, "sbatch[0]", text)
        for line, text in (
            ("-Mother", "-M: jobs are looked for"),
            ("-Jx", "-J is set by orchestrator"),
            ("-HN3", "-N is set by orchestrator"),
            ("--sig=B:USR2", "--signal is set by orchestrator"),
            ("--tasks-per-node 2", "--tasks-per-node is set by orchestrator"),
            ('--mem=0 "--time"=5', "the next job `resume --time`"),
            ("--wait", "sbatch would return only when the job has ended"),
            ("-W", "sbatch would return only when the job has ended"),
            ("--test", "--test-only: sbatch would submit no job"),
        )
    },
    "sbatch line without option": (
        SITE,
        '"--mem=0"',
        '"mem=0"',
        13,
        "sbatch[0]",
        "is not an sbatch option",
    ),
    **{
        f"container option {option}": (
            SITE,
            "engine: docker",
            f"options: [{option}]",
            10,
            "container.options[0]",
            text,
        )
        for option, text in (
            ("--name=mine", "is part of how containers live"),
            ("-i", "is part of how containers live"),
            ("--env=A=b", "variables have keys of their own"),
            ("--cpus", "write it as one word: --cpus=VALUE"),
            ("cpus=3", "is not an option of the engine's `run`"),
            ("-e", "variables have keys of their own"),
            ("HF_TOKEN=hf_secret", "HF_TOKEN looks like a secret"),
            ("MY_LOGIN=hf_secret", "is not an option of the engine's `run`"),
            ("--label hf_secret", "--label has no value; write it as one word"),
        )
    },
    "backslash in log_dir": (
        SITE,
        "/shared/results",
        "/shared/a\\b",
        4,
        "log_dir",
        "backslash, which sbatch --output takes",
    ),
    "colon in a data folder": (
        SITE,
        "/data/flux1",
        "'/data:flux1'",
        6,
        "data.flux1.DATADIR",
        "ends a path for the engine's --volume",
    ),
    "too many attempts": (
        SITE,
        "attempts: 3",
        "attempts: 300",
        12,
        "limits.attempts",
        "at most 20",
    ),
    "yes is not true": (
        SITE,
        "engine: docker",
        "privileged: yes",
        10,
        "container.privileged",
        "must be true or false, not text ('yes')",
    ),
    "GID index": (
        SITE,
        "socket_ifname: eno0",
        "gid_index: 300",
        8,
        "network.gid_index",
        "at most 255",
    ),
    "empty interface": (
        SITE,
        "socket_ifname: eno0",
        'socket_ifname: ""',
        8,
        "network.socket_ifname",
        "not be empty",
    ),
    "secret in a site": (
        SITE,
        "exclude: [node7]",
        "env: {WANDB_API_KEY: x}",
        14,
        "env.WANDB_API_KEY",
        "`pass_env`",
    ),
    "value in pass_env": (
        SITE,
        "exclude: [node7]",
        "pass_env: [HF_TOKEN=hf_secret]",
        14,
        "pass_env[0]",
        "must be the name of a variable alone",
    ),
    "a value as pass_env": (
        SITE,
        "exclude: [node7]",
        "pass_env: HF_TOKEN=hf_secret",
        14,
        "pass_env",
        "must be a list, not text",
    ),
    "an address as the name of a webhook": (
        SITE,
        "exclude: [node7]",
        "notify: {webhook: 'https://hooks.example/hf_secret'}",
        14,
        "notify.webhook",
        "must be the name of a variable alone",
    ),
    "a variable as env": (
        SITE,
        "exclude: [node7]",
        "env: HF_TOKEN=hf_secret",
        14,
        "env",
        "must be a mapping, not text",
    ),
    "a variable of bash": (
        SITE,
        "exclude: [node7]",
        "env: {UID: '7'}",
        14,
        "env.UID",
        "UID belongs to bash",
    ),
    **{
        f"{key} that sbatch would split or cut": (
            SITE,
            "exclude: [node7]",
            f"{key}: {value}",
            14,
            key + "[0]" * (key == "exclude"),
            "holds a blank, a quote, # or a backslash",
        )
        for key, value in (
            ("partition", "a b"),
            ("constraint", "x & y"),
            ("account", "x#y"),
            ("qos", "'\"x\"'"),
            ("reservation", "x\\y"),
            ("exclude", "'node1, node2'"),
        )
    },
    "an address as site proxy": (
        SITE,
        "  engine: docker",
        "  engine: docker\n  proxy: 'http://me:hf_secret@proxy.example:3128'",
        11,
        "container.proxy",
        "must be a mapping, not text",
    ),
    **{
        f"a secret in {option}": (
            SITE,
            '["--mem=0"]',
            f"['{option}']",
            13,
            "sbatch[0]",
            "HF_TOKEN looks like a secret",
        )
        for option in (
            "--export=ALL,HF_TOKEN=hf_secret",
            "--export HF_TOKEN=hf_secret",
            "#SBATCH --export=X=1,HF_TOKEN=hf_secret",
        )
    },
    "a dot in a workload's name": (
        WORKLOAD,
        "name: tiny",
        "name: tiny3.1_x",
        2,
        "name",
        "'tiny3.1_x' holds a dot, which ends a part of a key such as data.WORKLOAD.VARIABLE; write it without, such as tiny31_x",
    ),
    "workload without rounds at all": (
        WORKLOAD,
        WORKLOAD[WORKLOAD.index("rounds:") :],
        "rounds: {}\n",
        10,
        "rounds",
        "must not be empty",
    ),
    "mount onto a relative path": (
        WORKLOAD,
        "container: /data",
        "container: data",
        9,
        "mounts[0].container",
        "is not an absolute path",
    ),
    "too many runs": (
        WORKLOAD,
        "runs_required: 3",
        "runs_required: 101",
        5,
        "runs_required",
        "at most 100",
    ),
    "command is text": (
        WORKLOAD,
        "[bash, run.sh]",
        "bash run.sh",
        7,
        "command",
        "must be a list, not text",
    ),
    "image is a number": (
        WORKLOAD,
        "    image: registry/tiny:1\n",
        "    image: 1\n",
        13,
        "rounds.6.0.image",
        "must be text",
    ),
}

NAMES = {
    SYSTEM: "MI300X_2x8x1.yaml",
    SITE: "site.yaml",
    WORKLOAD: "tiny.yaml",
    OWN_WORKLOAD: "tiny.yaml",
}


def problems_of(path: Path) -> list[str]:
    with pytest.raises(DescriptorError) as caught:
        validate_file(Catalogue(), path)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize("case", CASES)
def test_message(case: str, tmp_path: Path) -> None:
    text, old, new, line, key, part = CASES[case]
    assert text.count(old) >= 1
    path = tmp_path / NAMES[text]
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    problems = problems_of(path)
    start = f"{path}:{line}: " + (f"{key}: " if key else "")
    assert "hf_secret" not in "".join(problems)
    assert any(problem.startswith(start) and part in problem for problem in problems), problems


@pytest.mark.parametrize(
    "line",
    ["-p gpu", "-H", "-wn1", "--time-min=9", "--wait-all-nodes=1", "--no-kill", "--nodelist=n[1-2]",
     "--export=ALL", "--exclusive", '--comment="see --time"', "--mail-type END -D /tmp"],
)  # fmt: skip
def test_other_options_of_sbatch_are_accepted(line: str) -> None:
    assert sbatch_problem(line) == ""


@pytest.mark.parametrize("text", [SYSTEM, SITE, WORKLOAD], ids=["system", "site", "workload"])
def test_the_documents_of_these_cases_are_fine(text: str, tmp_path: Path) -> None:
    path = tmp_path / NAMES[text]
    path.write_text(text, encoding="utf-8")
    validate_file(Catalogue(), path)


FILES: dict[str, tuple[bytes, int, str]] = {
    "empty": (b"", 1, "the file is empty"),
    "comment only": (b"# nothing\n", 1, "the file is empty"),
    "list": (b"- a\n- b\n", 1, "the file holds a list"),
    "text": (b"hello\n", 1, "the file holds text"),
    "not UTF-8": (b"kind: system\nname: \xff\xfe\n", 2, "byte 0xff is not UTF-8"),
    "control character": (b"kind: system\nname: a\x07b\n", 2, "character U+0007 is not allowed"),
    "tab": (b"kind: system\nworkloads:\n\tflux1: 1\n", 3, "a tab stands in the indentation"),
    "open bracket": (b"kind: system\nname: [a\nnodes: 2\n", 2, "the list that starts here"),
    "open brace": (b"kind: system\nname: {a: b\nnodes: 2\n", 2, "the mapping that starts here"),
    "open quote": (b"kind: system\nname: 'a\nnodes: 2\n", 2, "lacks its closing quote"),
    "no colon": (b"kind: system\nname\nnodes: 2\n", 2, "the `:` is missing"),
    "indented too little": (b"kind: system\na:\n  b: 1\n c: 2\n", 4, "did not find expected key"),
    "two documents": (b"kind: system\n---\nkind: site\n", 2, "one file holds one descriptor"),
    "alias bomb": (
        b"a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n",
        1,
        "anchors (&name) and aliases",
    ),
    "self-reference": (b"a: &a [*a]\n", 1, "anchors (&name) and aliases"),
    "brackets without end": (b"kind: " + b"[" * 100_000, 1, "nested deeper"),
    "huge": (b"#" * 1_000_001, 1, "at most 1000000"),
    "no kind": (b"name: x\n", 1, "this key is required; accepted: system, workload, site"),
}


@pytest.mark.parametrize("case", FILES)
def test_unusable_file(case: str, tmp_path: Path) -> None:
    content, line, part = FILES[case]
    path = tmp_path / "doc.yaml"
    path.write_bytes(content)
    problems = problems_of(path)
    assert len(problems) == 1
    assert problems[0].startswith(f"{path}:{line}: ")
    assert part in problems[0]


def test_folder_and_missing_file(tmp_path: Path) -> None:
    assert "this is a folder" in problems_of(tmp_path)[0]
    (tmp_path / "site.yaml").write_text(SITE, encoding="utf-8")
    message = problems_of(tmp_path / "sitte.yaml")[0]
    assert "there is no such file" in message
    assert f'did you mean "{tmp_path / "site.yaml"}"?' in message


def test_all_problems_of_a_file_come_at_once_in_the_order_of_their_lines(tmp_path: Path) -> None:
    path = tmp_path / NAMES[SYSTEM]
    bad = (
        SYSTEM.replace("nodes: 2", "nodes: two")
        .replace("fabric:", "fabrik:")
        .replace('"0.1"', "0.1")
    )
    path.write_text(bad, encoding="utf-8")
    lines = [
        int(result[1])
        for problem in problems_of(path)
        if (result := re.search(r"\.yaml:(\d+): ", problem))
    ]
    assert lines == [4, 6, 13]


REPLACEMENTS = (
    "",
    "[]",
    "{}",
    "[{}]",
    "{a: {b: c}}",
    "3",
    "-1",
    "true",
    '""',
    "x",
    "/",
    "[[1]]",
    "1e9",
    "'\\n'",
)


@pytest.mark.parametrize("text", [SYSTEM, SITE, WORKLOAD], ids=["system", "site", "workload"])
def test_no_value_of_any_type_anywhere_gives_a_traceback(text: str, tmp_path: Path) -> None:
    path, catalogue = tmp_path / NAMES[text], Catalogue()
    lines = text.splitlines()
    for number, line in enumerate(lines):
        head = re.match(r" *(- )?[\w.\"]+:", line)
        for new in (
            [f"{head[0]} {value}" for value in REPLACEMENTS] + ["", line[:-1], line + "]"]
            if head
            else []
        ):
            path.write_text(
                "\n".join([*lines[:number], new, *lines[number + 1 :]]), encoding="utf-8"
            )
            problems: list[object] = []
            try:
                validate_file(_fresh(catalogue), path)
            except DescriptorError as error:
                problems = error.problems
            assert all(str(problem).startswith(str(path)) for problem in problems)


def _fresh(catalogue: Catalogue) -> Catalogue:
    """The same catalogue without what it remembers of the file that changes."""
    catalogue._systems.clear()
    catalogue._workloads.clear()
    return catalogue


NOT_THERE: dict[str, tuple[dict[str, object], str]] = {
    "system": (
        {"system": "MI325X_08x08x23", "workload": "flux1"},
        'did you mean "MI325X_08x08x32"?',
    ),
    "workload": ({"system": "MI325X_08x08x32", "workload": "flux"}, 'did you mean "flux1"?'),
    "workload of the system": (
        {"system": "MI325X_08x08x32", "workload": "llama31_8b"},
        "it has: flux1",
    ),
    "round": (
        {"system": "MI355X_1x8x1", "workload": "llama31_8b", "round": "5.0"},
        "it has: 5.1, 6.0",
    ),
    "folder": (
        {"system": "x", "workload": "y", "systems_dirs": [Path("/nowhere")]},
        "there is no folder /nowhere",
    ),
    "secret": (
        {"system": "local_2x2x8", "workload": "builtin", "env": {"HF_TOKEN": "x"}},
        "pass_env",
    ),
    "seed": (
        {"system": "local_2x2x8", "workload": "builtin", "env": {"SEED": "1"}},
        "belongs to the loop",
    ),
    "variable": (
        {"system": "local_2x2x8", "workload": "builtin", "env": {"A-B": "1"}},
        "not a variable name",
    ),
    "NUL": ({"system": "local_2x2x8", "workload": "builtin", "env": {"A": "\0"}}, "NUL byte"),
}


@pytest.mark.parametrize("case", NOT_THERE)
def test_request_that_cannot_be_met(case: str) -> None:
    arguments, part = NOT_THERE[case]
    with pytest.raises(UsageError) as caught:
        load_entry(**arguments)  # type: ignore[arg-type]
    assert part in str(caught.value)


def test_a_secret_never_appears_in_its_message() -> None:
    with pytest.raises(OrchestratorError) as caught:
        load_entry("local_2x2x8", "builtin", env={"HF_TOKEN": "hf_abcdef"})
    assert "hf_abcdef" not in str(caught.value)
    with pytest.raises(OrchestratorError, match="pass_env") as caught:
        load_entry("local_2x2x8", "builtin", env={"https_proxy": "https://hf_abcdef@proxy:1"})
    assert "hf_abcdef" not in str(caught.value)


@pytest.mark.parametrize("kind", ["system", "tuning_choice"])
def test_keys_of_another_kind_of_document_are_not_judged(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(f"kind: {kind}\nsurplus: 1\n", encoding="utf-8")
    with pytest.raises(DescriptorError) as caught:
        load_site(path)
    assert f"{path}:1: kind: {kind!r} instead of `kind: site`" in str(caught.value)
    assert "surplus" not in str(caught.value)


def test_problems_sort_by_place_and_not_by_their_text(tmp_path: Path) -> None:
    document = Document(tmp_path / "a.yaml", {}, {("late",): 10, ("early",): 9})
    document.add(("late",), "one")
    document.add(("early",), "two: 1: x")
    document.add(("late",), "one")
    with pytest.raises(DescriptorError) as caught:
        document.check()
    assert [(problem.line, problem.key, problem.text) for problem in caught.value.problems] == [
        (9, "early", "two: 1: x"),
        (10, "late", "one"),
    ]
    assert str(caught.value) == "\n".join(map(str, caught.value.problems))


def test_did_you_mean() -> None:
    assert did_you_mean("FLUX", ["flux1", "llama"]) == '; did you mean "flux1"?'
    assert did_you_mean("flux", ["flux1"], before="", after="") == "; did you mean flux1?"
    assert did_you_mean("zebra", ["flux1"]) == "" == did_you_mean("x", [])


@pytest.mark.parametrize(
    "name",
    [
        "SECRET_KEY",
        "PGPASSWORD",
        "GITHUB_PAT",
        "SSH_PRIVATE_KEY",
        "AUTH_HEADER",
        "AWS_SECRET_ACCESS_KEY",
        "HF_TOKEN",
        "MYSQL_PWD",
        "WANDB_API_KEY",
        "wandb_api_key",
        "AZURE_STORAGE_KEY",
        "SLACK_WEBHOOK_URL",
        "GPG_PASSPHRASE",
        "DB_PASS",
        "GCP_CREDENTIALS_BASE64",
        "NGC_APIKEY",
    ],
)
def test_a_name_of_a_secret_takes_no_value(name: str) -> None:
    assert "looks like a secret" in secret_problem(name)


@pytest.mark.parametrize(
    "name",
    [
        "PWD",
        "OLDPWD",
        "TOKENIZER_PATH",
        "MONKEY",
        "HOTKEY",
        "TOKENIZERS_PARALLELISM",
        "MAX_TOKENS",
        "PATH",
        "BYPASS_X",
        "COMPASS",
        "KEY_SIZE",
        "DATA_PATH",
        "NCCL_DEBUG",
        "SPLIT_PATTERN",
    ],
)
def test_other_names_are_no_secrets(name: str) -> None:
    assert secret_problem(name) == ""


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("http://me:pw@proxy:3128", True),
        ("https://token@host/x", True),
        ("socks5://a:b@h:1", True),
        ("postgresql://me:pw@db/x", True),
        ("redis://:pw@db", True),
        ("git+https://token@host/x", True),
        ("ssh://me@host/x", False),
        ("http://proxy:3128", False),
        ("file:///a:b/c@d", False),
        ("http://proxy:3128/x?mail=a@b", False),
    ],
)
def test_a_login_in_an_address_is_no_value(text: str, refused: bool) -> None:
    assert bool(value_problem(text)) == refused
    assert text not in value_problem(text)


def test_variables_that_bash_keeps_for_itself_take_no_value() -> None:
    script = r"""
        set -- "$(type -P env)"
        for name in $(compgen -v); do
            (export "$name=7x"; "$1") 2>/dev/null | grep -q "^$name=7x$" || echo "$name"
        done
    """
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    lost = set(done.stdout.split()) - {"OPTIND"}  # it takes numbers
    assert {"UID", "RANDOM", "BASHPID"} < lost
    assert [name for name in lost if "belongs to bash" not in name_problem(name)] == []
    assert name_problem("PATH") == name_problem("BASH_ENV") == ""


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (("gpu_request", "gpus"), "--override gpu_request: 'gpus' is not accepted; accepted: gres"),
        (("gpu_reqest", "gres"), '--override gpu_reqest: unknown key; did you mean "gpu_request"?'),
        (("container", "{pull: x}"), "--override container: container.pull: 'x' is not accepted"),
    ],
)
def test_a_value_of_the_command_line_is_no_line_of_the_file(
    tmp_path: Path, typed: tuple[str, str], said: str
) -> None:
    path = tmp_path / "site.yaml"
    path.write_text("kind: site\nlog_dir: /shared/results\nnodelist: 7\n")
    with pytest.raises(DescriptorError) as caught:
        load_site(path, overrides=[typed])
    first, other = sorted(str(caught.value).split("\n"))
    assert first.startswith(said) and other.startswith(f"{path}:3: nodelist: ")
    assert caught.value.fix and caught.value.fix.line([]) == "orchestrator docs keys"
