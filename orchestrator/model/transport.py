"""Network variables that the site names, and those that make RCCL name its network."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from orchestrator.model.fields import NAME
from orchestrator.model.shared_documents import Fabric
from orchestrator.model.site_documents import Site, SiteNetwork

_QUIET = ("", "NONE", "VERSION", "WARN")
"""NCCL_DEBUG levels at which RCCL does not name its network."""
_SETTINGS = {
    "NCCL_DEBUG": "INFO",
    "NCCL_DEBUG_SUBSYS": "INIT,NET",
    "NCCL_DEBUG_FILE": "/results/nccl_%h_%p.log",  # as in Oracle's job of 64 nodes
}


def transport_settings(
    env: Mapping[str, object], given: Collection[str], nodes: int, fabric: Fabric, site: Site
) -> dict[str, str]:
    """Return variables that make quiet runs over RDMA name their network; {} if not needed.

    `given`: variables set or removed by the site or the user, who win.
    """
    is_given = any(name in given or name in site.pass_env for name in _SETTINGS)
    over_rdma = nodes > 1 and fabric.kind not in ("none", "ethernet") and site.network.rdma != "off"
    has_results = site.container.engine != "none"
    is_quiet = str(env.get("NCCL_DEBUG", "")).upper() in _QUIET
    if is_given or not (over_rdma and has_results and is_quiet):
        return {}
    kept = {"NCCL_DEBUG_FILE"} & set(env)
    return {name: value for name, value in _SETTINGS.items() if name not in kept}


def site_variables(network: SiteNetwork) -> dict[str, tuple[str, str]]:
    """Return variable -> value, and its key in `network`."""
    one_name = network.socket_ifname if NAME.fullmatch(network.socket_ifname or "") else None
    # Gloo takes a single name; from a list each node takes its first existing interface.
    gloo = (
        ("gloo_socket_ifname", network.gloo_socket_ifname)
        if network.gloo_socket_ifname
        else ("socket_ifname", one_name)
    )
    given = {
        "NCCL_SOCKET_IFNAME": ("socket_ifname", network.socket_ifname),
        "GLOO_SOCKET_IFNAME": gloo,
        "NCCL_IB_HCA": ("ib_hca", network.ib_hca),
        "NCCL_IB_GID_INDEX": ("gid_index", network.gid_index),
        "NCCL_IB_DISABLE": ("rdma", "1" if network.rdma == "off" else None),
    }
    return {name: (str(value), key) for name, (key, value) in given.items() if value is not None}
