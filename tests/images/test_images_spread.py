"""The image on every node, with two real engines whose image stores differ."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer

import pytest
from servers import on_a_thread
from sites import write_site
from until import now_ms

from orchestrator.container.engine import EngineReply
from orchestrator.container.image import Image, common, images_in, wanted_id
from orchestrator.container.image_nodes import keep, nodes_with
from orchestrator.container.local import split_reference
from orchestrator.container.spread import judge
from orchestrator.container.store import StoredImage, save, stored, tar_name
from orchestrator.errors import OrchestratorError, UsageError

REFERENCE = "orchestrator-test/tiny:1"
Run = Callable[..., subprocess.CompletedProcess[str]]


def an_image(digit: str, *digests: str) -> Image:
    return Image(f"sha256:{digit * 64}", digests)


def test_the_wanted_image_is_the_one_most_nodes_have() -> None:
    looks = [
        EngineReply("a", an_image("1")),
        EngineReply("b", an_image("2")),
        EngineReply("c", an_image("1")),
        EngineReply("d"),
        EngineReply("e", problem="no route", answered=False),
        EngineReply("f", problem="no space left on device"),
    ]
    report = judge(REFERENCE, looks, None)
    states = [node.state for node in report.nodes]
    assert states == ["present", "other", "present", "missing", "no answer", "failed"]
    assert (report.odd, report.silent, report.failed) == (["b", "d"], ["e"], ["f"])
    assert not report.equal
    assert report.summary.endswith("not on b, d; the engine failed on f; no answer from e"), (
        report.summary
    )


def test_a_tie_says_that_nothing_tells_which_is_right() -> None:
    report = judge(
        REFERENCE, [EngineReply("a", an_image("1")), EngineReply("b", an_image("2"))], None
    )
    assert report.wanted is None and not report.equal
    assert "the right image is unknown" in report.summary


def test_images_with_a_common_repository_digest_are_the_same() -> None:
    # The containerd image store has another id for the same image.
    first = an_image("1", "r/n@sha256:aa")
    second = an_image("2", "mirror/n@sha256:aa")
    assert first.same_as(second) and common([first, second]) is not None
    assert not an_image("1").same_as(an_image("2"))


@pytest.mark.parametrize(
    ("reference", "parts"),
    [
        ("a/b:1", ("a/b", "1")),
        ("host:5000/a", ("host:5000/a", "latest")),
        ("host:5000/a:x", ("host:5000/a", "x")),
        ("a@sha256:ff", ("a", "sha256:ff")),
        ("host:5000/a:1@sha256:ff", ("host:5000/a", "sha256:ff")),
    ],
)
def test_references_are_split(reference: str, parts: tuple[str, str]) -> None:
    assert split_reference(reference) == parts


@pytest.mark.parametrize("text", ["", "latest", "sha256:xyz", "1234", "f" * 65])
def test_what_is_no_image_id_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        wanted_id(text)


@pytest.mark.parametrize("text", ["", "{}", "[1]", '[{"Id": 3}]', "nonsense"])
def test_an_answer_that_is_not_understood_is_an_error(text: str) -> None:
    with pytest.raises(OrchestratorError):
        images_in(text)


def test_a_tar_that_does_not_hold_the_image_is_not_kept(tmp_path: Path) -> None:
    with pytest.raises(OrchestratorError):
        save(tmp_path, REFERENCE, an_image("1"), [b"this is no tar"])
    assert list(tmp_path.iterdir()) == []


def test_a_tar_for_which_there_is_no_room_is_refused_before_it_is_written(tmp_path: Path) -> None:
    with pytest.raises(OrchestratorError, match="GB free"):
        save(tmp_path, REFERENCE, Image("sha256:" + "1" * 64, size=10**18), iter([]))


def test_the_tar_is_named_after_its_digest(tmp_path: Path) -> None:
    name = tar_name("rocm/amd-mlperf:flux1", an_image("a"))
    assert name == f"rocm_amd-mlperf_flux1.{'a' * 64}.tar"
    assert stored(tmp_path, REFERENCE) is None


def kept_tar(folder: Path, image: Image, text: str, created_ms: int) -> Path:
    """A tar of REFERENCE in `folder`, with its JSON file."""
    tar = folder / tar_name(REFERENCE, image)
    tar.write_text(text)
    kept = StoredImage(tar, REFERENCE, image, len(text), created_ms)
    tar.with_name(f"{tar.name}.json").write_text(json.dumps(kept.to_json()))
    return tar


def test_the_newest_tar_counts_unless_it_is_damaged_from_the_future_or_of_others(
    tmp_path: Path,
) -> None:
    now = now_ms()
    for digit, created_ms in (("1", now - 9000), ("2", now - 5000), ("3", now + 10**9)):
        kept_tar(tmp_path, an_image(digit), "x", created_ms)
    os.mkfifo(tmp_path / "a.tar.json")
    (tmp_path / "b.tar.json").write_text("[" * 100_000)
    kept = stored(tmp_path, REFERENCE)
    assert kept is not None and kept.image.id == an_image("2").id
    if os.getuid() == 0:  # only root can give a file away
        os.chown(kept.tar, 12345, -1)
        kept = stored(tmp_path, REFERENCE)
        assert kept is not None and kept.image.id == an_image("1").id


# ---- with a stand-in for the engine's command line ----

STAND_IN = """\
#!{python}
import json, pathlib, sys
option, host, *words = sys.argv[1:]
assert option == ("--url" if sys.argv[0].endswith("podman") else "--host")
store = pathlib.Path(host.removeprefix("unix://"))
if not store.exists():
    sys.exit("Cannot connect to the engine")
images = json.loads(store.read_text())
match words:
    case ["image", "inspect", name]:
        if name not in images:
            sys.exit("Error: No such image: " + name)
        print(json.dumps([{{"Id": images[name]}}]))
    case ["load", "--quiet", "--input", tar]:
        loaded = pathlib.Path(tar).read_text()
        store.write_text(json.dumps(images | {{loaded: loaded}}))
    case ["tag", loaded, name]:
        store.write_text(json.dumps(images | {{name: images[loaded]}}))
    case _:
        sys.exit(2)
"""


@pytest.mark.parametrize("command", ["docker", "podman"])
def test_nodes_with_a_socket_are_checked_and_made_equal(
    tmp_path: Path, orchestrator: Run, command: str
) -> None:
    program = tmp_path / "bin" / command
    program.parent.mkdir()
    program.write_text(STAND_IN.format(python=sys.executable))
    program.chmod(0o755)
    image = an_image("a")
    stores = {"n1": {}, "n2": {REFERENCE: an_image("b").id}, "n3": {image.id: image.id}}
    for name, images in stores.items():
        (tmp_path / name).write_text(json.dumps(images))
    kept_tar(tmp_path, image, image.id, now_ms())
    env = {"PATH": f"{program.parent}:{os.environ['PATH']}"}

    def images(action: str, names: str) -> subprocess.CompletedProcess[str]:
        addresses = ",".join(f"{name}=unix://{tmp_path}/{name}" for name in names.split())
        options = ("--engine-command", command, "--image", REFERENCE, "--tar", tmp_path)
        return orchestrator("images", action, *options, "--nodes", addresses, "--json", env=env)

    before = images("check", "n1 n2 n3")
    assert before.returncode == 1, before.stderr
    assert states(before) == {"n1": "missing", "n2": "other", "n3": "missing"}
    done = images("distribute", "n1 n2 n3 away")
    assert done.returncode == 4, done.stderr
    assert states(done) == {"n1": "present", "n2": "present", "n3": "present", "away": "no answer"}
    assert "on 3 of 4 nodes" in done.stderr and "n2: done" in done.stderr
    assert images("check", "n1 n2 n3").returncode == 0
    # With a site, `submit` learns which nodes have it.
    site = write_site(tmp_path / "site.yaml", tmp_path / "shared/sets")
    found = tmp_path / "shared/images"
    env["ORCHESTRATOR_SITE"] = str(site)
    (tmp_path / "n2").write_text("{}")
    assert states(images("check", "n1 n2 n3"))["n2"] == "missing"
    assert nodes_with(found, REFERENCE) == ["n1", "n3"]
    assert images("distribute", "n1 n2 n3").returncode == 0
    assert sorted(nodes_with(found, REFERENCE)) == ["n1", "n2", "n3"]


@pytest.mark.parametrize(
    ("command", "complaint", "state", "code"),
    [
        ("docker", "write /var/lib/docker/x: no space left on device", "failed", 3),
        ("docker", "permission denied while trying to connect to the docker API", "failed", 3),
        ("podman", "Error: unable to connect to Podman socket: connect: permission denied",
         "failed", 3),
        ("nothing", "there is no `nothing` on PATH", "failed", 3),
        ("docker", "failed to connect to the docker API at tcp://n1:2375", "no answer", 4),
    ],
)  # fmt: skip
def test_an_engine_that_fails_is_no_silent_node(
    tmp_path: Path, orchestrator: Run, command: str, complaint: str, state: str, code: int
) -> None:
    for name in ("docker", "podman"):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\necho '{complaint}' >&2\nexit 1\n")
        program.chmod(0o755)
    nodes = f"n1=unix://{tmp_path}/sock"
    options = ("--engine-command", command, "--image", REFERENCE, "--nodes", nodes, "--json")
    done = orchestrator(
        "images", "check", *options, env={"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    )
    assert done.returncode == code, done.stderr
    [node] = json.loads(done.stdout)["nodes"]
    assert (node["state"], node["problem"]) == (state, complaint)


class Server(ThreadingMixIn, UnixStreamServer):
    daemon_threads = True


class CutOff(BaseHTTPRequestHandler):
    """An engine that ends in the middle of a tar."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.close_connection = True
        if self.path.endswith("/get"):
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"1000\r\nshort")
            return
        answer = {"ApiVersion": "1.41", "Id": an_image("1").id, "Size": 5}
        body = json.dumps(answer).encode()
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Quiet."""


def test_an_engine_that_ends_while_it_gives_the_tar_has_failed(
    tmp_path: Path, orchestrator: Run
) -> None:
    socket = tmp_path / "sock"
    options = ("--image", REFERENCE, "--tar", tmp_path / "tars", "--engine", f"unix://{socket}")
    with on_a_thread(Server(str(socket), CutOff)):
        done = orchestrator("images", "pull", *options)
    assert done.returncode == 3, done.stderr
    assert "the container engine at" in done.stderr and "cannot be written" not in done.stderr
    assert list((tmp_path / "tars").iterdir()) == []


def test_nodes_of_an_image_are_read_from_its_own_file(tmp_path: Path) -> None:
    assert nodes_with(tmp_path, REFERENCE) == []
    keep(tmp_path, REFERENCE, ["n1", "n2"], [])
    assert nodes_with(tmp_path, REFERENCE) == ["n1", "n2"]
    assert nodes_with(tmp_path, f"{REFERENCE}x") == []
    (file,) = tmp_path.iterdir()
    for text in ("[]", "{", '{"reference": "other", "nodes": ["n1"]}', "[" * 99_999):
        file.write_text(text)
        assert nodes_with(tmp_path, REFERENCE) == []


# ---- with engines ----


@pytest.fixture
def tar(lab: object, nodes: object, orchestrator: Run, tmp_path: Path) -> object:
    """The folder with the tar of the right image, made by `pull` from the lab's engine."""
    from images_parts import lab_image

    with lab_image(lab, REFERENCE, "the right one") as image_id:
        options = ("--image", REFERENCE, "--tar", tmp_path, "--json")
        engine = f"unix://{lab.docker_socket}"
        done = orchestrator("images", "pull", *options, "--engine", engine)
        assert done.returncode == 0, done.stderr
        answer = json.loads(done.stdout)
        assert (answer["image"]["id"], answer["pulled"], answer["saved"]) == (image_id, False, True)
        digits = image_id.removeprefix("sha256:")
        assert Path(answer["tar"]).name == f"orchestrator-test_tiny_1.{digits}.tar"
        yield tmp_path


def states(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    return {node["node"]: node["state"] for node in json.loads(done.stdout)["nodes"]}


@pytest.mark.lab
def test_check_names_both_nodes_and_distribute_mends_both(
    nodes: object, tar: Path, orchestrator: Run, tmp_path: Path
) -> None:
    first, second = nodes
    wrong = second.add_image(REFERENCE, "another one under the same tag")
    where = f"n1={first.address},n2={second.address}"
    arguments = ("--image", REFERENCE, "--tar", tar, "--nodes")

    result = orchestrator("images", "check", *arguments, where)
    assert result.returncode == 1
    assert "not on n1, n2" in result.stdout and wrong.removeprefix("sha256:")[:12] in result.stdout

    # A node that does not answer has its own exit code, and the others are served all the same.
    away = f"{where},away=unix://{tmp_path}/nothing.sock"
    mended = orchestrator("images", "distribute", *arguments, away)
    assert mended.returncode == 4, mended.stdout + mended.stderr
    assert "no answer from away" in mended.stdout and "nothing.sock" in mended.stdout
    assert "n1: done" in mended.stderr and "n2: done" in mended.stderr
    assert first.image_id(REFERENCE) == second.image_id(REFERENCE) != wrong
    # Nothing is loaded twice.
    again = orchestrator("images", "distribute", *arguments, where, "--json")
    assert again.returncode == 0 and "loading" not in again.stderr

    # An image that lost its tag is tagged and not loaded.
    right = first.image_id(REFERENCE)
    with first.client() as client:
        client.api.tag(right, "kept", "1")
    first.add_image(REFERENCE, "somebody built another one")
    next(tar.glob("*.tar")).write_bytes(b"")  # a load would fail now
    (tar_json,) = tar.glob("*.json")
    tar_json.write_text(json.dumps({**json.loads(tar_json.read_text()), "bytes": 0}))
    mended = orchestrator("images", "distribute", *arguments, where)
    assert mended.returncode == 0, mended.stderr
    assert first.image_id(REFERENCE) == right
    after = orchestrator("images", "check", *arguments, where, "--json")
    assert after.returncode == 0 and json.loads(after.stdout)["equal"] is True


@pytest.mark.long
@pytest.mark.lab
def test_the_same_over_ssh(
    nodes: object, tar: Path, orchestrator: Run, start_ssh: Callable[..., object]
) -> None:
    first, second = nodes
    second.add_image(REFERENCE, "another one under the same tag")
    hosts = start_ssh({node.name: f"DOCKER_HOST={node.address}" for node in nodes})
    arguments = ("--image", REFERENCE, "--nodes", "n[1-2]", "--ssh-config", hosts.config)
    result = states(orchestrator("images", "check", *arguments, "--tar", tar, "--json"))
    assert result == {"n1": "missing", "n2": "other"}
    mended = orchestrator("images", "distribute", *arguments, "--tar", tar)
    assert mended.returncode == 0, mended.stdout + mended.stderr
    assert first.image_id(REFERENCE) == second.image_id(REFERENCE)
    # Without a tar the nodes are only compared with each other.
    assert orchestrator("images", "check", *arguments).returncode == 0


def allocated(lab: object, nodes: int, *argv: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the command line inside an allocation of so many nodes."""
    command = ("salloc", f"--nodes={nodes}", f"--ntasks={nodes}")
    orchestrator = (sys.executable, "-m", "orchestrator", *argv)
    return lab.run(*command, *orchestrator, timeout=300, check=False)  # type: ignore[attr-defined, no-any-return]


@pytest.mark.lab
def test_inside_an_allocation_every_node_loads_the_tar_itself(lab: object, tar: Path) -> None:
    lab.run("docker", "image", "rm", REFERENCE)
    arguments = ("--image", REFERENCE, "--tar", tar)
    before = allocated(lab, 2, "images", "check", *arguments, "--json")
    assert (before.returncode, list(states(before).values())) == (1, ["missing"] * 2), before.stderr
    done = allocated(lab, 2, "images", "distribute", *arguments)
    assert done.returncode == 0, done.stderr
    assert "on 2 of 2 nodes" in done.stderr and "(2 of 2, " in done.stderr
    alike = allocated(lab, 2, "images", "check", "--image", REFERENCE, "--json")
    assert (alike.returncode, list(states(alike).values())) == (0, ["present"] * 2), alike.stderr
    assert json.loads(alike.stdout)["wanted"]["why"] == "it is on 2 of 2 nodes"


@pytest.mark.lab
def test_a_pull_that_needs_a_login_takes_the_password_from_standard_input(
    nodes: object, orchestrator: Run, tmp_path: Path
) -> None:
    from images_parts import registry

    engine = nodes[0]
    with registry("somebody", "the-password-of-somebody") as host:
        options = ("--image", f"{host}/team/tiny:1", "--tar", tmp_path, "--engine", engine.address)
        refused = orchestrator("images", "pull", *options)
        assert refused.returncode == 3 and "--password-stdin" in refused.stderr
        login = ("--login", "somebody", "--password-stdin")
        stdin = "the-password-of-somebody\n"
        done = orchestrator("images", "pull", *options, *login, stdin=stdin)
        assert done.returncode == 0, done.stderr
        assert "(was in the local engine" not in done.stdout
    files = [path.read_text(errors="replace") for path in tmp_path.iterdir()]
    assert not any(stdin.strip() in text for text in (done.stdout, done.stderr, *files))
    kept = stored(tmp_path, f"{host}/team/tiny:1")
    assert kept is not None and kept.image.digests[0].startswith(f"{host}/team/tiny@sha256:")


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("check",), "which image"),
        (("check", "--image", "a b:1", "--nodes", "a"), "not an image reference"),
        (("check", "--image", "a:1", "--nodes", "n[3-1]"), "runs backwards"),
        (("check", "--image", "a:1"), "which nodes"),
        (
            ("distribute", "--image", "a:1", "--nodes", "a", "--tar", "/nonexistent"),
            "there is no tar",
        ),
        (("pull", "--image", "a:1", "--tar", "/tmp", "--login", "me"), "belong together"),
    ],
)
def test_bad_input_is_refused_with_a_hint(
    orchestrator: Run, tmp_path: Path, argv: tuple[str, ...], says: str
) -> None:
    done = orchestrator(
        "images", *argv, env={"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    )
    assert done.returncode == 2
    assert says in done.stderr and "Traceback" not in done.stderr


def containers(lab: object) -> set[str]:
    """Return those of the whole lab; earlier tests' containers may still end."""
    return set(lab.run("docker", "ps", "--all", "--quiet").stdout.split())


@pytest.mark.lab
def test_the_code_comes_out_of_the_image(lab: object, orchestrator: Run, tmp_path: Path) -> None:
    engine = f"unix://{lab.docker_socket}"
    before = containers(lab)
    done = orchestrator(
        "code", "MI325X_08x08x32", "flux1", "-o", tmp_path / "code", "--engine", engine, "--json"
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    script = Path("lab/standins/quick/flux1/run_and_time.sh")
    assert (tmp_path / "code/run_and_time.sh").read_bytes() == script.read_bytes()
    assert answer["files"] == sum(path.is_file() for path in (tmp_path / "code").rglob("*"))
    again = orchestrator(
        "code", "MI325X_08x08x32", "flux1", "-o", tmp_path / "code", "--engine", engine
    )
    assert again.returncode == 2 and "not empty" in again.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["code"]
    assert not containers(lab) - before


@pytest.mark.lab
def test_an_image_is_inspected_without_a_start(
    lab: object, orchestrator: Run, tmp_path: Path
) -> None:
    engine = f"unix://{lab.docker_socket}"
    before = containers(lab)
    options = ("MI325X_08x08x32", "flux1", "--engine", engine, "--tar", tmp_path, "--json")
    done = orchestrator("images", "inspect", *options)
    assert done.returncode in (0, 1), done.stderr
    answer = json.loads(done.stdout)
    assert answer["started_by"].startswith("/workspace/code/run_and_time.sh:")
    assert answer["id"].startswith("sha256:") and answer["complete"] and answer["bytes"]
    assert answer["exit_after_failure"] is not None
    assert [path.suffixes[-2:] for path in tmp_path.iterdir()] == [[".contract", ".json"]]
    assert not containers(lab) - before
    missing = orchestrator("images", "inspect", "--image", "no/such:1", "--engine", engine)
    assert missing.returncode == 3 and "does not have no/such:1" in missing.stderr


@pytest.mark.lab
def test_links_out_of_the_code_are_left_out_and_a_missing_folder_leaves_nothing(
    nodes: object, tmp_path: Path
) -> None:
    import tarfile

    from orchestrator.container.code import copy_code

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, kind, target in (
            ("w", tarfile.DIRTYPE, ""),
            ("w/good", tarfile.REGTYPE, ""),
            ("w/inside", tarfile.SYMTYPE, "good"),
            ("w/out", tarfile.SYMTYPE, "../../etc/passwd"),
            ("w/root", tarfile.SYMTYPE, "/etc/passwd"),
            ("w/device", tarfile.CHRTYPE, ""),
        ):
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.mode = kind, target, 0o4755
            member.devmajor, member.devminor = 1, 3
            tar.addfile(member)
    with nodes[0].client() as client:
        client.api.import_image_from_data(buffer.getvalue(), repository="links", tag="1")
    copied = copy_code("links:1", "/w", tmp_path / "w", address=nodes[0].address)
    assert sorted(copied.content.left_out) == ["w/device", "w/out", "w/root"]
    assert sorted(path.name for path in (tmp_path / "w").iterdir()) == ["good", "inside"]
    assert (tmp_path / "w/good").stat().st_mode & 0o7000 == 0
    with pytest.raises(OrchestratorError, match="there is no /elsewhere"):
        copy_code("links:1", "/elsewhere", tmp_path / "x", address=nodes[0].address)
    assert [path.name for path in tmp_path.iterdir()] == ["w"]
    with nodes[0].client() as client:
        assert client.api.containers(all=True) == []
