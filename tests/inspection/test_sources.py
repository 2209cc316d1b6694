"""Reading an image's files from tars and folders."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import shlex
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from programs import need, zstd
from tars import tar_of

from orchestrator.errors import InputError
from orchestrator.inspection.archives import read_saved
from orchestrator.inspection.software import software
from orchestrator.inspection.sources import read_folder
from orchestrator.inspection.tree import ImageTree

CONFIG = {
    "config": {
        "User": "1000",
        "WorkingDir": "/workspace/code",
        "Env": ["PATH=/usr/bin", "A=b=c"],
        "Entrypoint": ["/entry"],
    },
    "history": [{"created_by": "FROM"}, {"created_by": "COPY"}],
}


def _layer(files: dict[str, bytes | str]) -> bytes:
    """Make a layer: bytes are a file, a text a symbolic link to it, `=PATH` a hard link."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.mode = 0o755
            if isinstance(content, bytes):
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
            else:
                hard = content.startswith("=")
                member.type = tarfile.LNKTYPE if hard else tarfile.SYMTYPE
                member.linkname = content.lstrip("=")
                tar.addfile(member)
    return out.getvalue()


LAYERS = [
    _layer(
        {
            "bin": "usr/bin",
            "usr/bin/tool": b"#!/bin/sh\n",
            "old/gone.sh": b"old",
            "old/kept.sh": b"kept",
        }
    ),
    _layer(
        {
            "old/.wh.gone.sh": b"",
            "workspace/code/run.sh": b"echo new\n",
            "workspace/code/same.sh": "=workspace/code/run.sh",
            "data.bin": b"\0" * 5000,
        }
    ),
]


def _tar(path: Path, files: dict[str, bytes]) -> Path:
    path.write_bytes(tar_of(files))
    return path


def _docker_archive(path: Path) -> Path:
    manifest = [
        {"Config": "abc.json", "RepoTags": ["x:1"], "Layers": ["0/layer.tar", "1/layer.tar"]}
    ]
    files = {
        "abc.json": json.dumps(CONFIG).encode(),
        "0/layer.tar": LAYERS[0],
        "1/layer.tar": gzip.compress(LAYERS[1]),
        "manifest.json": json.dumps(manifest).encode(),
    }
    return _tar(path, files)


def _root_archive(path: Path) -> Path:
    path.write_bytes(LAYERS[0])
    return path


def _oci_layout(path: Path) -> Path:
    blobs: dict[str, bytes] = {}

    def put(content: bytes) -> dict[str, str]:
        digits = hashlib.sha256(content).hexdigest()
        blobs[f"blobs/sha256/{digits}"] = content
        return {"digest": f"sha256:{digits}"}

    manifest = {"config": put(json.dumps(CONFIG).encode()), "layers": [put(one) for one in LAYERS]}
    index = {"manifests": [put(json.dumps(manifest).encode())]}
    return _tar(path, {**blobs, "index.json": json.dumps(index).encode()})


def _check(tree: ImageTree) -> None:
    _check_files(tree)
    assert tree.text("/bin/tool") == "#!/bin/sh\n"
    assert tree.program("tool", "/sbin:/bin") == "/bin/tool"
    assert tree.names("/old") == ["kept.sh"]
    assert tree.exists("/data.bin") and tree.text("/data.bin") is None
    assert tree.is_folder("/workspace") and not tree.exists("/nowhere")
    assert tree.complete


def _check_files(tree: ImageTree) -> None:
    assert tree.text("/workspace/code/run.sh") == "echo new\n"
    assert tree.text("/workspace/code/same.sh") == "echo new\n"


@pytest.mark.parametrize("make", [_docker_archive, _oci_layout])
def test_layers_of_a_tar(make: object, tmp_path: Path) -> None:
    tree = read_saved(make(tmp_path / "image.tar"))  # type: ignore[operator]
    _check(tree)
    config = tree.config
    assert (config.user, config.workdir, config.entrypoint) == (
        "1000",
        "/workspace/code",
        ("/entry",),
    )
    assert config.environment == {"PATH": "/usr/bin", "A": "b=c"}
    assert config.created_by == ("FROM", "COPY")
    assert config.id == f"sha256:{hashlib.sha256(json.dumps(CONFIG).encode()).hexdigest()}"


def test_a_tar_of_a_file_system(tmp_path: Path) -> None:
    path = tmp_path / "root.tar"
    path.write_bytes(_layer({"workspace/code/run.sh": b"echo\n"}))
    assert read_saved(path).text("/workspace/code/run.sh") == "echo\n"


@pytest.mark.parametrize(
    "content",
    [b"", b"no tar", b"\1" * 2000],
)
def test_other_files_are_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(content)
    with pytest.raises(InputError, match="cannot be read as an image"):
        read_saved(path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("manifest.json", b"[]"),
        ("manifest.json", b"{"),
        ("manifest.json", b'[{"Config": "x"}]'),
        ("index.json", b'{"manifests": []}'),
        ("index.json", b'{"manifests": [{"digest": "../../etc/passwd"}]}'),
    ],
)
def test_damaged_descriptions_are_refused(name: str, content: bytes, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read as an image"):
        read_saved(_tar(tmp_path / "x.tar", {name: content}))


def _saved(layers: list[bytes]) -> dict[str, bytes]:
    names = [f"layer{number}" for number in range(len(layers))]
    manifest = [{"Config": "c.json", "Layers": names}]
    described = {"c.json": b"{}", "manifest.json": json.dumps(manifest).encode()}
    return {**dict(zip(names, layers, strict=True)), **described}


def test_layers_compressed_with_zstd(tmp_path: Path) -> None:
    """As BuildKit makes them on request."""
    _check_files(read_saved(_tar(tmp_path / "x.tar", _saved([zstd(one) for one in LAYERS]))))


@pytest.mark.parametrize("damage", ["not zstd", "cut off"])
def test_a_damaged_layer_is_refused(damage: str, tmp_path: Path) -> None:
    layer = b"\x28\xb5\x2f\xfd" + b"x" * 100
    if damage == "not zstd":
        need("zstd")  # which refuses it
    else:
        layer = gzip.compress(os.urandom(100_000))[:5000]
    with pytest.raises(InputError, match="cannot be read as an image"):
        read_saved(_tar(tmp_path / "x.tar", _saved([layer])))


@pytest.mark.parametrize("make", [_docker_archive, _root_archive])
def test_a_damaged_header_is_refused(make: Callable[[Path], Path], tmp_path: Path) -> None:
    path = make(tmp_path / "x.tar")
    content = bytearray(path.read_bytes())
    at = content.index(b"usr/bin/tool\0")
    assert at % 512 == 0 and content[at - 512 :].startswith(b"bin\0")  # not the first of its layer
    content[at] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match="a header is damaged: bad checksum"):
        read_saved(path)


@pytest.mark.parametrize("make", [_docker_archive, _root_archive])
def test_an_archive_compressed_with_zstd_is_unpacked_first(
    make: Callable[[Path], Path], tmp_path: Path
) -> None:
    path = tmp_path / "an image.tar.zst"
    path.write_bytes(zstd(make(tmp_path / "x.tar").read_bytes()))
    with pytest.raises(InputError, match="compressed with zstd") as refused:
        read_saved(path)
    command = refused.value.hint.partition(",")[0]
    subprocess.run(shlex.split(command), cwd=tmp_path, check=True, capture_output=True)
    assert read_saved(tmp_path / "image.tar").text("/bin/tool") == "#!/bin/sh\n"


def test_a_layer_that_zstd_refuses_at_its_end_is_refused(tmp_path: Path) -> None:
    layer = zstd(LAYERS[0]) + b"x" * 100
    with pytest.raises(InputError, match="zstd cannot unpack layer0"):
        read_saved(_tar(tmp_path / "x.tar", _saved([layer])))


def test_a_pipe_is_no_layer_and_no_archive(tmp_path: Path) -> None:
    for name, content in _saved([b""]).items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "layer0").unlink()
    os.mkfifo(tmp_path / "layer0")
    for path in (tmp_path, tmp_path / "layer0"):
        with pytest.raises(InputError, match="no regular file"):
            read_saved(path)


def test_a_layer_may_be_a_link_in_the_archive(tmp_path: Path) -> None:
    """As `docker save` makes it for several images."""
    files = _saved([LAYERS[0]])
    out = io.BytesIO(tar_of({"a/layer.tar": files.pop("layer0"), **files}))
    with tarfile.open(fileobj=out, mode="a") as tar:
        link = tarfile.TarInfo("layer0")
        link.type, link.linkname = tarfile.SYMTYPE, "./a/layer.tar"
        tar.addfile(link)
    (tmp_path / "x.tar").write_bytes(out.getvalue())
    assert read_saved(tmp_path / "x.tar").text("/bin/tool") == "#!/bin/sh\n"


def test_an_archive_with_long_headers_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.tar.gz"
    with tarfile.open(path, "w:gz", compresslevel=1) as tar:
        tar.addfile(tarfile.TarInfo("a" * (9 << 20)))
    with pytest.raises(InputError, match="a name or attribute has 943"):
        read_saved(path)


def test_without_zstd_the_way_out_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tar = _tar(tmp_path / "x.tar", _saved([zstd(LAYERS[0])]))
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(InputError, match="there is no zstd on this host") as refused:
        read_saved(tar)
    assert "apt-get install zstd" in refused.value.hint


def test_a_mark_that_empties_a_folder_leaves_its_own_layer(tmp_path: Path) -> None:
    """The mark may come after the layer's own files in the tar."""
    first = _layer({"code/old.sh": b"old", "code/sub/old.sh": b"old", "kept.sh": b"1"})
    second = _layer({"code/new.sh": b"new", "code/.wh..wh..opq": b"", ".wh..wh.plnk": b""})
    tree = read_saved(_tar(tmp_path / "x.tar", _saved([first, second])))
    assert tree.names("/code") == ["new.sh"]
    assert tree.text("/kept.sh") == "1"


@pytest.mark.parametrize("over", [b"a file", "elsewhere"])
def test_a_file_over_a_folder_hides_its_content(over: bytes | str, tmp_path: Path) -> None:
    first = _layer({"code/old.sh": b"old", "elsewhere/new.sh": b"new"})
    tree = read_saved(_tar(tmp_path / "x.tar", _saved([first, _layer({"code": over})])))
    assert "/code/old.sh" not in {file.path for file in tree}
    assert tree.text("/code/new.sh") == (None if isinstance(over, bytes) else "new")


def test_a_hard_link_to_a_file_of_a_lower_layer(tmp_path: Path) -> None:
    layers = [_layer({"a.sh": b"text"}), _layer({"b.sh": "=a.sh"})]
    assert read_saved(_tar(tmp_path / "x.tar", _saved(layers))).text("/b.sh") == "text"


def test_absolute_names_are_those_without_the_slash(tmp_path: Path) -> None:
    """As `tar -P` makes them."""
    first = _layer({"/etc/a.sh": b"text", "//etc/gone.sh": b"old", "/b.sh": "=/etc/a.sh"})
    second = _layer({"/etc/.wh.gone.sh": b""})
    tree = read_saved(_tar(tmp_path / "x.tar", _saved([first, second])))
    assert tree.text("/b.sh") == tree.text("/etc/a.sh") == "text"
    assert tree.names("/etc") == ["a.sh"]


@pytest.mark.parametrize(
    "files",
    [{"a" * 5000: b""}, {"a/" * 250 + "x": b""}, {"a": "b/" * 9000}, {"a": "=" + "b/" * 250 + "x"}],
    ids=["long", "deep", "long link", "deep hard link"],
)
def test_paths_that_no_image_needs_are_refused(
    files: dict[str, bytes | str], tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="a path has more than 4096 characters or 200 folders"):
        read_saved(_tar(tmp_path / "x.tar", _saved([_layer(files)])))


def test_a_folder_that_is_too_deep_is_not_read_to_its_end(tmp_path: Path) -> None:
    (tmp_path / ("a/" * 250)).mkdir(parents=True)
    tree = read_folder(tmp_path)
    assert tree.is_folder("/" + "a/" * 150) and not tree.complete


class OciLayout:
    """An OCI layout that is put together blob by blob."""

    def __init__(self) -> None:
        self.files = {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}'}

    def put(self, content: bytes | dict[str, Any], **more: Any) -> dict[str, Any]:
        content = content if isinstance(content, bytes) else json.dumps(content).encode()
        digits = hashlib.sha256(content).hexdigest()
        self.files[f"blobs/sha256/{digits}"] = content
        return {"digest": f"sha256:{digits}", **more}

    def image(self, text: str, **more: Any) -> dict[str, Any]:
        layer = self.put(_layer({"run.sh": text.encode()}))
        config = self.put({**CONFIG, "architecture": text})
        return self.put({"config": config, "layers": [layer]}, **more)

    def index(self, *manifests: dict[str, Any]) -> dict[str, Any]:
        self.files["index.json"] = json.dumps({"manifests": manifests}).encode()
        return {"manifests": list(manifests)}


def _platform(name: str) -> dict[str, str]:
    return {"os": "linux", "architecture": name}


def test_of_several_platforms_that_of_the_hosts_is_read(tmp_path: Path) -> None:
    """What buildx makes: an index in the index, with an attestation and a platform not fetched."""
    oci = OciLayout()
    parts = [
        oci.put(b"{}", annotations={"vnd.docker.reference.type": "attestation-manifest"}),
        oci.image("arm64", platform=_platform("arm64")),
        {"digest": "sha256:" + "0" * 64, "platform": _platform("amd64")},
        oci.image("amd64", platform=_platform("amd64")),
    ]
    oci.index(oci.put(oci.index(*parts)))
    tree = read_saved(_tar(tmp_path / "x.tar", oci.files))
    assert (tree.text("/run.sh"), tree.config.architecture) == ("amd64", "amd64")


def test_a_layout_may_be_a_folder(tmp_path: Path) -> None:
    oci = OciLayout()
    oci.index(oci.image("amd64"))
    for name, content in oci.files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    assert read_saved(tmp_path).text("/run.sh") == "amd64"


def test_of_several_images_one_is_named(tmp_path: Path) -> None:
    oci = OciLayout()
    key = "io.containerd.image.name"
    oci.index(*(oci.image(one, annotations={key: f"own/{one}:1"}) for one in ("a", "b")))
    path = _tar(tmp_path / "x.tar", oci.files)
    tree = read_saved(path, reference="own/b:1")
    assert (tree.text("/run.sh"), tree.config.reference) == ("b", "own/b:1")
    with pytest.raises(InputError, match=r"it has 2 images \(own/a:1, own/b:1\)"):
        read_saved(path)


def test_an_index_in_itself_ends(tmp_path: Path) -> None:
    """A digest is believed, so an index can name itself."""
    oci = OciLayout()
    itself = {"digest": "sha256:" + "1" * 64}
    oci.files["blobs/sha256/" + "1" * 64] = json.dumps({"manifests": [itself]}).encode()
    oci.index(itself)
    with pytest.raises(InputError, match="names no image"):
        read_saved(_tar(tmp_path / "x.tar", oci.files))


def test_odd_files_of_a_folder(tmp_path: Path) -> None:
    """Pipes are not read, names may be any bytes, and an unreadable folder is no missing one."""
    os.mkfifo(tmp_path / "pipe.sh")
    (tmp_path / os.fsdecode(b"\xff\xfe.sh")).write_bytes(b"echo \xff\n")
    (tmp_path / "nul.sh").write_bytes(b"echo a\0b\n")
    tree = read_folder(tmp_path)
    assert tree.exists("/pipe.sh") and tree.text("/pipe.sh") is None
    assert tree.text("/" + os.fsdecode(b"\xff\xfe.sh")) == "echo \ufffd\n"
    assert tree.complete


def test_a_circle_of_links_ends(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    tree = read_folder(tmp_path)
    assert tree.text("/a/x") is None


def test_variables_in_libraries_are_noted(tmp_path: Path) -> None:
    package = tmp_path / "usr/lib/python3/dist-packages/engine"
    package.mkdir(parents=True)
    (package / "env.py").write_text('os.environ.get("HEALING_ITER")\n')
    tree = read_folder(tmp_path, {"HEALING_ITER", "OTHER"})
    assert set(tree.mentions) == {"HEALING_ITER"}
    assert tree.text("/usr/lib/python3/dist-packages/engine/env.py") is None


def test_versions_of_software(tmp_path: Path) -> None:
    for name in (
        "opt/rocm-7.2.2/lib/librccl.so.1.0.70202",
        "usr/lib/x86_64-linux-gnu/libibverbs/libionic-rdmav34.so",
        "usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.50.0",
        "usr/lib/python3.10/site-packages/torch-2.10.0+rocm7.2.dist-info/METADATA",
        "usr/lib/python3.10/site-packages/transformer_engine-2.4.0.dist-info/METADATA",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/os-release").write_text('PRETTY_NAME="Ubuntu 22.04.5 LTS"\n')
    versions = software(read_folder(tmp_path))
    assert (versions.os, versions.python, versions.torch) == (
        "Ubuntu 22.04.5 LTS",
        "3.10",
        "2.10.0+rocm7.2",
    )
    assert (versions.rocm, versions.rccl, versions.verbs) == ("7.2.2", "1.0.70202", "1.14.50.0")
    assert versions.providers == {"ionic": "34"}
    assert versions.packages["transformer-engine"] == "2.4.0"
