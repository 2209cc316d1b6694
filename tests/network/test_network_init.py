"""What `orchestrator init` makes of a node's devices and interfaces: the same detection as a job's."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_sys import Port, broadcom, build_proc, build_sys, mellanox_with_front_end

from orchestrator.cli import main
from orchestrator.model import load_site


@pytest.mark.parametrize(
    ("ports", "hca", "gid"),
    [
        (broadcom(), ",".join(f"bnxt_re{n}" for n in range(8)), 3),
        (mellanox_with_front_end(), ",".join(f"mlx5_{n}" for n in range(10) if n not in (1, 6)), 3),
        ([], None, None),
    ],
    ids=["broadcom", "front end", "none"],
)
def test_the_devices_of_a_node(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ports: list[Port],
    hca: str | None,
    gid: int | None,
) -> None:
    monkeypatch.setenv("ORCH_SYS_ROOT", str(build_sys(tmp_path / "sys", ports)))
    monkeypatch.setenv("ORCH_PROC_ROOT", str(build_proc(tmp_path / "proc")))
    monkeypatch.chdir(tmp_path)
    assert main(["init", "--yes", "--scheduler", "local", "--log-dir", str(tmp_path / "sets")]) == 0
    network = load_site("site.yaml").network
    assert (network.ib_hca, network.gid_index, network.socket_ifname) == (hca, gid, "eno0")
