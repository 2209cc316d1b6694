"""Hosts that runs reach while they start, tried directly and through real proxies of this machine."""

from __future__ import annotations

import multiprocessing
import socket
import threading
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress

import pytest
from preflight_parts import Node
from until import LIMIT_S

from orchestrator.onnode.agent.pull import pull
from orchestrator.onnode.agent.reach import reach, registry_of
from orchestrator.onnode.kernel.client import proxy_of, with_proxy
from orchestrator.onnode.kernel.waiting import Failed, Waiting

OUTSIDE = "hub.invalid"
"""No name service knows it: only a proxy could reach it."""


@contextmanager
def listening(reply: bytes | None = None) -> Iterator[tuple[int, list[bytes]]]:
    """A server on a port of this machine, and the requests that it got. Without a reply it never answers."""
    requests: list[bytes] = []
    held: list[socket.socket] = []

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = server.accept()
                held.append(connection)
                if reply is not None:
                    request = b""
                    while b"\r\n\r\n" not in request and (piece := connection.recv(4096)):
                        request += piece
                    requests.append(request)
                    connection.sendall(reply)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1], requests
        server.shutdown(socket.SHUT_RDWR)
    thread.join()
    for connection in held:
        connection.close()


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    return int(port)


TUNNEL = b"HTTP/1.1 200 Connection established\r\n\r\n"


def test_without_hosts_nothing_is_tried(node: Node) -> None:
    assert node.check().rows["reach"].line == "skip: runs reach no host outside"


def test_a_host_that_is_reached(node: Node) -> None:
    with listening() as (port, _):
        row = node.check(REACHES=[f"127.0.0.1:{port}\tpackages"]).rows["reach"]
    assert row.line == f"pass: 127.0.0.1:{port} reached"


def test_a_host_that_is_not_reached_is_a_warning_with_its_use(node: Node) -> None:
    port = closed_port()
    row = node.check(REACHES=[f"127.0.0.1:{port}\tPython packages"]).rows["reach"]
    why = f"127.0.0.1:{port} (Python packages): Connection refused"
    assert row.line == f"warn: hosts not reached: {why}"
    assert "container.proxy" in row.remedy


def test_a_host_behind_a_proxy(node: Node) -> None:
    with listening(TUNNEL) as (port, requests):
        proxy = [f"https_proxy=http://127.0.0.1:{port}", "no_proxy=localhost,127.0.0.1"]
        row = node.check(REACHES=[f"{OUTSIDE}\ttokenizer"], PROXY=proxy).rows["reach"]
    assert row.line == f"pass: {OUTSIDE} reached through the proxy 127.0.0.1:{port}"
    assert requests[0].startswith(f"CONNECT {OUTSIDE}:443 HTTP/1.1\r\n".encode())


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", "the proxy answers 403 Forbidden"),
        (b"SSH-2.0-OpenSSH\x1b[2J\r\n\r\n", "the proxy answers SSH-2.0-OpenSSH [2J"),
        (b"", "no answer"),
        (None, "no answer"),
    ],
    ids=["refused", "no proxy", "nothing", "silent"],
)
def test_a_proxy_that_does_not_let_a_host_through(
    node: Node, reply: bytes | None, why: str
) -> None:
    with listening(reply) as (port, _):
        proxy = [f"https_proxy=http://127.0.0.1:{port}"]
        node.settings |= {"REACHES": [f"{OUTSIDE}\ttokenizer"], "PROXY": proxy}
        row = node.check(PREFLIGHT_CHECK_S=LIMIT_S if reply else 2).rows["reach"]
    through = f"through the proxy 127.0.0.1:{port}"
    assert row.line == f"warn: hosts not reached {through}: {OUTSIDE} (tokenizer): {why}"
    assert "what the proxy allows" in row.remedy


def test_a_password_that_is_passed_by_name_reaches_the_proxy_and_nothing_else(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    with listening(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n") as (port, requests):
        monkeypatch.setenv("HTTPS_PROXY", f"http://me:se%40cret@127.0.0.1:{port}")
        node.settings |= {"REACHES": [f"{OUTSIDE}\tmodel"], "PASS_ENV": ["HTTPS_PROXY"]}
        with node.environment():
            (row,) = reach(node.real(), node.engine)
    header = b"Proxy-Authorization: Basic " + b64encode(b"me:se@cret") + b"\r\n"
    assert header in requests[0]
    assert row[1] == "warn" and "407" in row[2] and f"proxy 127.0.0.1:{port}:" in row[2]
    assert "cret" not in str(row) and "me:" not in str(row)


def test_a_docker_without_a_proxy_is_named_before_it_pulls(node: Node) -> None:
    proxy = ["https_proxy=http://proxy.example:3128"]
    node.tool("docker", "exit 0")
    row = node.check(IMAGE_ID="", PULL="missing", PROXY=proxy).rows["image"]
    assert row.verdict == "warn" and "Docker's daemon has no proxy" in row.remedy
    node.tool("docker", "[ $1 != info ] || echo http://me:secret@proxy.example:3128")
    answer = node.check()
    assert "daemon" not in answer.rows["image"].remedy
    assert "secret" not in "".join(answer.lines) + answer.errors


PULLS = """case "$1 $2" in
    "image inspect") [ -f {top}/pulled ] && echo 0123 ;;
    pull*) echo "$https_proxy $NO_PROXY" >{top}/pulled ;;
esac"""


def pulled(node: Node) -> str:
    """Pull as the agent does, in a process whose signals are its own."""
    with node.environment():
        return pull(node.real(), Waiting()).image_id


def test_podman_pulls_through_the_proxy(node: Node) -> None:
    node.tool("podman", PULLS.format(top=node.top))
    node.settings |= {
        "ENGINE": "podman",
        "ENGINE_COMMAND": [str(node.top / "bin/podman")],
        "PULL_MINUTES": 1,
        "PROXY": ["https_proxy=http://proxy.example:3128", "NO_PROXY=.cluster"],
    }
    with ProcessPoolExecutor(1, multiprocessing.get_context("forkserver")) as process:
        assert process.submit(pulled, node).result() == "sha256:0123"
    assert (node.top / "pulled").read_text() == "http://proxy.example:3128 .cluster\n"


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        (["podman"], ["env", "A=1", "podman"]),
        (["/usr/bin/podman", "--root=/x"], ["env", "A=1", "/usr/bin/podman", "--root=/x"]),
        (["sudo", "-n", "podman"], ["sudo", "-n", "podman"]),
        (["docker"], ["docker"]),
    ],
)  # fmt: skip
def test_the_proxy_of_an_engine(command: list[str], wanted: list[str]) -> None:
    assert with_proxy(command, ["A=1"]) == wanted
    assert with_proxy(command, []) == command


def test_the_registry_is_asked_for_the_size_of_the_image_through_the_proxy(node: Node) -> None:
    node.tool("docker", f'[ "$1" != manifest ] || echo "$2 $https_proxy" >>{node.top}/asked')
    node.settings |= {"IMAGE_ID": "", "PULL": "missing", "ORCH_ENGINE_STORAGE": "/proc"}
    node.check(PROXY=["https_proxy=http://proxy.example:3128"])
    assert (node.top / "asked").read_text() == "inspect http://proxy.example:3128\n"


@pytest.mark.parametrize(
    ("host", "exceptions", "direct"),
    [
        ("pypi.org", "", False),
        ("pypi.org", "*", True),
        ("hub.cluster", "localhost,.cluster", True),
        ("hub.cluster", " Cluster ", True),
        ("hub.cluster", "*.cluster", True),
        ("hubcluster", "cluster", False),
        ("10.1.2.3", "10.0.0.0/8", True),
        ("11.1.2.3", "10.0.0.0/8,11.1.2.4", False),
        ("pypi.org", ",,/", False),
    ],
)
def test_hosts_without_the_proxy(host: str, exceptions: str, direct: bool) -> None:
    variables = {"HTTPS_PROXY": "http://p:1", "no_proxy": exceptions}
    assert proxy_of(host, variables) == ("" if direct else "http://p:1")


MISSING: dict[str, object] = {"IMAGE_ID": "", "PULL": "missing", "ENGINE_STATE": "up"}


def daemon(node: Node, *lines: str) -> None:
    """A docker whose daemon has these facts: default registry, proxy, exceptions, mirrors."""
    told = node.write("told", "".join(f"{line}\n" for line in lines))
    node.tool("docker", f"[ $1 != info ] || cat {told}")


def test_the_registry_of_a_missing_image_is_tried(node: Node) -> None:
    daemon(node, "", "", "", "0")
    with listening() as (port, _):
        row = node.check(CONT=f"127.0.0.1:{port}/rocm/image:1", **MISSING).rows["reach"]
        assert row.line == f"pass: 127.0.0.1:{port} reached"
    row = node.check().rows["reach"]  # its server has ended
    use = "the image, which is not on this node"
    why = f"127.0.0.1:{port} ({use}): Connection refused"
    assert row.line == f"warn: hosts not reached: {why}"
    assert "orchestrator images distribute" in row.remedy
    assert node.check(IMAGE_ID="sha256:1").rows["reach"].verdict == "skip"
    assert node.check(IMAGE_ID="", PULL="never").rows["reach"].verdict == "skip"


def test_docker_goes_to_a_registry_by_the_proxy_of_its_daemon(node: Node) -> None:
    with listening(TUNNEL) as (port, requests):
        daemon(node, f"https://{OUTSIDE}/v1/", f"http://127.0.0.1:{port}", "localhost", "0")
        site = ["https_proxy=http://127.0.0.1:1"]  # of the runs alone
        row = node.check(**MISSING, PROXY=site).rows["reach"]
    assert row.line == f"pass: {OUTSIDE} reached through the proxy 127.0.0.1:{port}"
    assert requests[0].startswith(f"CONNECT {OUTSIDE}:443 ".encode())


@pytest.mark.parametrize(
    ("settings", "facts", "wanted"),
    [
        ({"CONT": "registry.example/a/b:1"}, ("https://hub.invalid/v1/",), "registry.example"),
        ({"CONT": "localhost/a:1"}, ("https://hub.invalid/v1/",), "localhost"),
        ({"CONT": "a/b:1"}, ("https://hub.invalid/v1/", "", "", "0"), "hub.invalid"),
        ({"CONT": "a/b:1"}, ("https://hub.invalid/v1/", "", "", "2"), ""),
        ({"CONT": "registry.example/a:1"}, ("", "", "", "2"), "registry.example"),
        ({"CONT": "registry.example/a:1"}, ("", "http://xxxxx:xxxxx@proxy:1"), ""),
        ({"CONT": "a/b:1"}, (), ""),
        ({"CONT": "r.example:5000/a:1", "ENGINE": "podman"}, (), "r.example:5000"),
        ({"CONT": "r.example/a:1", "ENGINE": "none", "ENGINE_STATE": "none"}, (), ""),
    ],
)  # fmt: skip
def test_the_registry_of_an_image(
    node: Node, settings: dict[str, object], facts: tuple[str, ...], wanted: str
) -> None:
    daemon(node, *facts)
    node.settings |= {**MISSING, **settings}
    with node.environment():
        assert registry_of(node.real(), node.engine)[0] == wanted


def test_many_silent_hosts_are_tried_at_once(node: Node) -> None:
    with listening(None) as (port, _):
        proxy = [f"https_proxy=http://127.0.0.1:{port}"]
        hosts = [f"h{k}.invalid\tx" for k in range(8)]
        row = node.check(REACHES=hosts, PROXY=proxy, PREFLIGHT_CHECK_S=2).rows["reach"]
    assert row.text.count("no answer") == 6 and "and 2 more" in row.text


def why_not_pulled(node: Node) -> str:
    try:
        return pulled(node)
    except Failed as error:
        return error.text


def test_a_pull_of_an_image_that_no_registry_has_says_how_to_build_it(node: Node) -> None:
    node.tool("docker", "[ $1 != pull ] || echo manifest unknown; exit 1")
    advice = "build it from the published tree (Oracle): orchestrator images build S W --tree DIR"
    node.settings |= {
        "ENGINE": "docker",
        "ENGINE_COMMAND": [str(node.top / "bin/docker")],
        "PULL_MINUTES": 1,
        "BUILT": advice,
    }
    with ProcessPoolExecutor(1, multiprocessing.get_context("forkserver")) as process:
        reason = process.submit(why_not_pulled, node).result()
    assert reason.endswith(f"manifest unknown; {advice}")
