"""`images inspect --registry`: Debian's docker-registry, and registries that misbehave."""

from __future__ import annotations

import base64
import gc
import gzip
import io
import json
import socket
import tarfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import outputs
import pytest
import registries
from command_line import call
from programs import zstd
from registries import INDEX, MANIFEST, answering, descriptor, digest_of, manifest_of, send
from standin_images import STAND_INS, make_root
from tars import tar_of

from orchestrator.container import registry as registry_module
from orchestrator.container.code import Pieces
from orchestrator.container.image import EngineError
from orchestrator.container.pull import Login
from orchestrator.container.registry import Registry
from orchestrator.errors import InputError, OrchestratorError
from orchestrator.inspection import archives
from orchestrator.inspection.archives import read_registry

RUN = "/workspace/code/run_and_time.sh"
CONFIG = json.dumps({"config": {"WorkingDir": "/workspace/code"}, "architecture": "amd64"}).encode()


BASE = tar_of({"a.sh": "old\n", "gone.sh": "gone\n", "../../out.sh": "inside\n"})
TOP = tar_of({"a.sh": "new\n", ".wh.gone.sh": ""})
PACKED = gzip.compress(BASE[: len(BASE) // 2]) + gzip.compress(BASE[len(BASE) // 2 :])
"""Two members, as lazily pulled images have them."""


# ---- a real one ----


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The storage of a registry: own/image:1 with an index of two platforms, own/standin:1."""
    folder = tmp_path_factory.mktemp("registry") / "data"
    with registries.real_registry(folder) as address:
        platforms = []
        for architecture, layers in (("arm64", [TOP]), ("amd64", [PACKED, zstd(TOP)])):
            manifest = manifest_of(CONFIG, layers)
            registries.push(address, "own/image", [CONFIG, *layers])
            registries.push_manifest(address, "own/image", digest_of(manifest), manifest, MANIFEST)
            platform = {"os": "linux", "architecture": architecture}
            platforms.append({**descriptor(manifest, MANIFEST), "platform": platform})
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": platforms}
        registries.push_manifest(address, "own/image", "1", json.dumps(index).encode(), INDEX)

        root = make_root(STAND_INS["llama31-nemo"], folder.parent / "root")
        layer = io.BytesIO()
        with tarfile.open(fileobj=layer, mode="w:gz") as tar:
            tar.add(root, ".")
        manifest = manifest_of(CONFIG, [layer.getvalue()])
        registries.push(address, "own/standin", [CONFIG, layer.getvalue()])
        registries.push_manifest(address, "own/standin", "1", manifest, MANIFEST)
    return folder


def test_layers_of_an_index_from_a_registry(store: Path) -> None:
    lines: list[str] = []
    with registries.real_registry(store) as address:
        tree = read_registry(Registry(f"{address}/own/image:1"), progress=lines.append)
        digest = tree.config.digests[0].partition("@")[2]
        assert read_registry(Registry(f"{address}/own/image@{digest}")).text("/a.sh") == "new\n"
    assert (tree.text("/a.sh"), tree.text("/gone.sh")) == ("new\n", None)
    assert tree.text("/out.sh") == "inside\n", "no name leaves the image"
    assert (tree.config.id, tree.config.workdir) == (digest_of(CONFIG), "/workspace/code")
    assert tree.config.size == sum(map(len, (b"old\n", b"gone\n", b"inside\n", b"new\n")))
    assert tree.complete
    assert [line.partition(":")[0] for line in lines] == ["layer 1 of 2", "layer 2 of 2"]


def test_the_contract_is_that_of_the_files(store: Path, tmp_path: Path) -> None:
    config = {"DOCKER_HOST": "unix:///nowhere", "HTTPS_PROXY": "http://127.0.0.1:1"}
    with registries.real_registry(store) as address:
        asked = ("images", "inspect", "--image", f"{address}/own/standin:1")
        assert call(asked, config).stderr.rstrip().endswith("--registry")
        done = call((*asked, "--registry", "--json"), config)
    assert done.returncode == 0, done.stderr
    answer = outputs.checked(done.stdout)
    assert (answer["id"], answer["workdir"]) == (digest_of(CONFIG), "/workspace/code")
    script = make_root(STAND_INS["llama31-nemo"], tmp_path / "root") / RUN.lstrip("/")
    assert answer["scripts"] == {RUN: digest_of(script.read_bytes()).partition(":")[2]}
    assert answer["complete"]


def test_a_token_server_wants_the_login_of_dockers_configuration(
    store: Path, tmp_path: Path
) -> None:
    with (
        registries.token_server(tmp_path, "me:pass word") as (settings, seen),
        registries.real_registry(store, settings) as address,
    ):
        config = tmp_path / "config.json"
        asked = ("images", "inspect", "--image", f"{address}/own/image:1", "--registry")
        environment = {"DOCKER_CONFIG": str(tmp_path)}

        done = call(asked, environment)
        assert (done.returncode, seen) == (3, [""])
        assert "wrong login" in done.stderr and "--login USER --password-stdin" in done.stderr

        auth = base64.b64encode(b"me:pass word").decode()
        config.write_text(json.dumps({"auths": {address: {"auth": auth}}}))
        done = call(asked, environment)
        assert done.returncode == 0, done.stderr
        assert seen[1:] == [f"Basic {auth}"], "one token is enough for all parts"

        config.write_text(json.dumps({"auths": {address: {"auth": "?"}}}))
        login = ("--login", "me", "--password-stdin")
        done = call((*asked, *login), environment, stdin="pass word\n")
        assert done.returncode == 0, done.stderr
        done = call((*asked, *login), environment, stdin="wrong\n")
        assert done.returncode == 3 and "wrong\n" not in done.stderr
        assert call(asked, environment).returncode == 3


def test_what_a_registry_does_not_have(store: Path) -> None:
    missing = pytest.raises(EngineError, match="has no such image .HTTP 404 manifest unknown")
    with registries.real_registry(store) as address, missing:
        read_registry(Registry(f"{address}/own/image:2"))
    with pytest.raises(EngineError, match="not reached: .*refused") as caught:
        read_registry(Registry(f"{address}/own/image:1"))
    assert "HTTPS_PROXY" in caught.value.hint


# ---- those that misbehave ----


class Hostile:
    """A registry with one image, whose answers a test replaces: path -> status, body, headers."""

    def __init__(self, layers: list[bytes]) -> None:
        self.manifest = manifest_of(CONFIG, layers)
        self.blobs = {digest_of(one): one for one in (CONFIG, *layers)}
        self.instead: dict[str, tuple[int, bytes, dict[str, str]]] = {}
        self.requests: list[tuple[str, str, str]] = []
        """Path, Authorization, Range."""

    def __call__(self, to: BaseHTTPRequestHandler) -> None:
        given = (to.headers.get("Authorization", ""), to.headers.get("Range", ""))
        self.requests.append((to.path, *given))
        last = to.path.rpartition("/")[2]
        if last in self.instead:
            status, body, headers = self.instead[last]
            send(to, status, body, **headers)
        elif last in self.blobs:
            send(to, 200, self.blobs[last])
        else:
            send(to, 200, self.manifest)


@pytest.fixture
def hostile() -> Iterator[tuple[Hostile, str]]:
    it = Hostile([BASE, TOP])
    with answering(it) as address:
        yield it, f"{address}/own/image:1"


def _error(reference: str, kind: type[OrchestratorError] = EngineError) -> str:
    with pytest.raises(kind) as caught:
        read_registry(Registry(reference, login=Login("me", "secret")))
    text = str(caught.value)
    assert caught.value.hint and "secret" not in text
    return text


LAYER = digest_of(TOP)


@pytest.mark.parametrize(
    ("path", "answer", "words"),
    [
        ("1", (401, b"", {"WWW_Authenticate": 'Basic realm="x"'}), "only after a login"),
        ("1", (401, b"", {}), "it asks for a login"),
        ("1", (401, b"", {"WWW_Authenticate": 'Bearer realm="file:///etc/passwd"'}), "token server"),
        ("1", (401, b"", {"WWW_Authenticate": 'Bearer realm="http://[::"'}), "token server"),
        ("1", (401, b"", {"WWW_Authenticate": 'Bearer realm="http://h.invalid/"'}), "token server"),
        ("1", (302, b"", {"Location": "file:///etc/passwd"}), "redirects to file:///etc/passwd"),
        ("1", (307, b"", {"Location": "http://elsewhere.invalid/"}), "redirects to http://elsew"),
        ("1", (302, b"", {"Location": "1"}), "redirects more than 5 times"),
        ("1", (200, b"[" * 100_000, {}), "cannot be read as an image"),
        ("1", (200, b"{}", {}), "cannot be read as an image"),
        ("1", (200, b"{}", {"Docker_Content_Digest": f"sha256:{'0' * 64}"}), "have the digest"),
        ("1", (200, b"{}", {"Docker_Content_Digest": "md5:\x1b[2J"}), "have the digest"),
        ("1", (429, b'{"errors": [{"message": "slow\\u001b[2J down"}]}', {}), "your limit"),
        ("1", (500, b"[]", {}), "HTTP 500"),
        ("1", (503, b'{"errors": {}}', {}), "HTTP 503"),
        (LAYER, (404, b"", {}), "HTTP 404"),
        (LAYER, (200, b"x" * len(TOP), {}), "cannot be read as an image"),
        (LAYER, (200, TOP.replace(b"new", b"bad"), {}), "does not have its digest"),
        (LAYER, (200, TOP + b"more", {}), ""),
    ],
)  # fmt: skip
def test_answers_that_are_not_to_be_trusted(
    hostile: tuple[Hostile, str],
    path: str,
    answer: tuple[int, bytes, dict[str, str]],
    words: str,
) -> None:
    it, reference = hostile
    it.instead[path] = answer
    if not words:
        assert read_registry(Registry(reference)).text("/a.sh") == "new\n"
        return
    is_unreadable = words.startswith("cannot")
    text = _error(reference, InputError if is_unreadable else EngineError)
    assert words in text
    assert "\x1b" not in text
    assert len(it.requests) < 10


def test_a_description_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(to: BaseHTTPRequestHandler) -> None:
        to.send_response(200)
        to.end_headers()
        try:
            while True:
                to.wfile.write(b" " * 65_536)
        except OSError:
            pass

    with answering(endless) as address:
        assert "more than 8388608 bytes" in _error(f"{address}/own/image:1")


@pytest.mark.parametrize("has_ranges", [True, False])
def test_a_layer_whose_transfer_breaks_goes_on(
    monkeypatch: pytest.MonkeyPatch, has_ranges: bool
) -> None:
    monkeypatch.setattr(registry_module, "PAUSES_S", (0,))
    it = Hostile([BASE, TOP])

    def answer(to: BaseHTTPRequestHandler) -> None:
        start = int((to.headers.get("Range") or "bytes=0-")[6:-1])
        if not to.path.endswith(LAYER):
            it(to)
            return
        it.requests.append((to.path, "", to.headers.get("Range", "")))
        to.send_response(206 if start and has_ranges else 200)
        to.send_header("Content-Length", str(len(TOP) - (start if has_ranges else 0)))
        to.end_headers()
        to.wfile.write(TOP[start if has_ranges else 0 : start + 1000])  # and ends the connection

    with answering(answer) as address:
        tree = read_registry(Registry(f"{address}/own/image:1"))
    assert tree.text("/a.sh") == "new\n"
    asked = [range_ for path, _, range_ in it.requests if path.endswith(LAYER)]
    assert asked == ["", *(f"bytes={at}-" for at in range(1000, len(TOP), 1000))]


def test_a_layer_that_never_comes_is_given_up(
    hostile: tuple[Hostile, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_module, "PAUSES_S", (0, 0))
    it, reference = hostile
    it.instead[LAYER] = (200, b"", {})
    assert f"it ends after 0 of {len(TOP)} bytes" in _error(reference)
    assert [path for path, *_ in it.requests].count(f"/v2/own/image/blobs/{LAYER}") == 3


def test_a_login_is_not_carried_along_a_redirect(hostile: tuple[Hostile, str]) -> None:
    it, _ = hostile
    other = Hostile([BASE, TOP])
    basic = {"WWW_Authenticate": 'Basic realm="x"'}

    def asking(to: BaseHTTPRequestHandler) -> None:
        if to.headers.get("Authorization") or not to.path.endswith("manifests/1"):
            it(to)
        else:
            send(to, 401, b"", **basic)

    with answering(other) as elsewhere, answering(asking) as address:
        it.instead[LAYER] = (307, b"", {"Location": f"http://{elsewhere}/{LAYER}"})
        login = Login("me", "secret")
        tree = read_registry(Registry(f"{address}/own/image:1", login=login))
    assert tree.text("/a.sh") == "new\n"
    assert other.requests == [(f"/{LAYER}", "", "")]
    assert it.requests[-1][1].startswith("Basic ")


def test_the_target_of_a_redirect_cannot_ask_for_the_login(hostile: tuple[Hostile, str]) -> None:
    it, reference = hostile
    seen: list[str] = []

    def asks(to: BaseHTTPRequestHandler) -> None:
        seen.append(to.headers.get("Authorization", ""))
        realm = f'Bearer realm="http://{to.headers["Host"]}/token"'
        send(to, 401, b"", WWW_Authenticate=realm)

    with answering(asks) as elsewhere:
        it.instead[LAYER] = (307, b"", {"Location": f"http://{elsewhere}/{LAYER}"})
        assert "only after a login" in _error(reference)
    assert seen == [""]


@pytest.mark.parametrize("size", ["1e999", "9" * 4000, "1.5"], ids=["inf", "long", "part"])
def test_a_size_that_is_none(hostile: tuple[Hostile, str], size: str) -> None:
    it, reference = hostile
    it.manifest = it.manifest.replace(f'"size": {len(TOP)}'.encode(), f'"size": {size}'.encode())
    assert "cannot be read as an image" in _error(reference, InputError)


def test_a_stream_that_is_left_early_ends_its_connection() -> None:
    """Else the garbage collector finds an open socket some time later, in another test."""
    ended = []

    def connection() -> Iterator[bytes]:
        try:
            yield b"one"
            yield b"two"
        finally:
            ended.append(True)

    pieces = connection()
    with Pieces.buffered(pieces) as stream:
        assert stream.read(1) == b"o"
        assert not ended
    assert ended


def _connections() -> set[int]:
    """The open sockets of clients."""
    found = (one for one in gc.get_objects() if isinstance(one, socket.socket))
    return {id(one) for one in found if one.proto == socket.IPPROTO_TCP and one.fileno() >= 0}


def test_a_proxy_gets_its_own_password_and_no_login(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heads, before = list[str](), _connections()

    def refuse(to: BaseHTTPRequestHandler) -> None:
        heads.append(f"{to.requestline}\n{to.headers}")
        send(to, 407)

    with answering(refuse) as address:
        monkeypatch.setenv("HTTPS_PROXY", f"http://me:se%40cret@{address}")
        monkeypatch.setenv("NO_PROXY", "10.0.0.0/8")
        registry = Registry("registry.invalid/own/image:1", login=Login("me", "login"))
        with pytest.raises(EngineError, match="Tunnel connection failed: 407") as caught:
            registry.manifest()
        with pytest.raises(EngineError, match="not reached"):  # not by the proxy
            Registry("10.255.255.255:1/own/image:1").manifest()
    assert "cret" not in str(caught.value)
    assert not _connections() - before, "the error keeps none open"
    (head,) = heads
    assert head.startswith("CONNECT registry.invalid:443")
    assert base64.b64encode(b"me:se@cret").decode() in head
    assert "\nAuthorization" not in head


# ---- layers ----


def test_a_layer_that_grows_without_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "LEAST_LIMIT", 1 << 20)
    layer = gzip.compress(tar_of({"zeros": bytes(64 << 20)}))
    with answering(Hostile([layer])) as address:
        assert "grows to more than" in _error(f"{address}/own/image:1", InputError)


def test_a_name_of_a_gigabyte_is_not_kept() -> None:
    member = tarfile.TarInfo("././@LongLink")
    member.type, member.size = tarfile.GNUTYPE_LONGNAME, 1 << 30
    with answering(Hostile([member.tobuf() + bytes(10_240)])) as address:
        assert "a name or attribute has 1073741824 bytes" in _error(
            f"{address}/own/image:1", InputError
        )


def test_a_wrong_digest_behind_zstd() -> None:
    packed = zstd(BASE)
    it = Hostile([packed])
    it.blobs[digest_of(packed)] = packed[:-1] + bytes([packed[-1] ^ 1])
    with answering(it) as address:
        assert "does not have its digest" in _error(f"{address}/own/image:1")
