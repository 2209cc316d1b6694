"""Reading an image's files from tars and folders."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest

from orchestrator.errors import InputError
from orchestrator.inspection.software import software
from orchestrator.inspection.sources import read_folder, read_tar
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
    with tarfile.open(path, "w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
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
    assert tree.text("/workspace/code/run.sh") == "echo new\n"
    assert tree.text("/workspace/code/same.sh") == "echo new\n"
    assert tree.text("/bin/tool") == "#!/bin/sh\n"
    assert tree.program("tool", "/sbin:/bin") == "/bin/tool"
    assert tree.names("/old") == ["kept.sh"]
    assert tree.exists("/data.bin") and tree.text("/data.bin") is None
    assert tree.is_folder("/workspace") and not tree.exists("/nowhere")
    assert tree.complete


@pytest.mark.parametrize("make", [_docker_archive, _oci_layout])
def test_layers_of_a_tar(make: object, tmp_path: Path) -> None:
    tree = read_tar(make(tmp_path / "image.tar"))  # type: ignore[operator]
    _check(tree)
    config = tree.config
    assert (config.user, config.workdir, config.entrypoint) == (
        "1000",
        "/workspace/code",
        ("/entry",),
    )
    assert config.environment == {"PATH": "/usr/bin", "A": "b=c"}
    assert config.created_by == ("FROM", "COPY")


def test_a_tar_of_a_file_system(tmp_path: Path) -> None:
    path = tmp_path / "root.tar"
    path.write_bytes(_layer({"workspace/code/run.sh": b"echo\n"}))
    assert read_tar(path).text("/workspace/code/run.sh") == "echo\n"


@pytest.mark.parametrize(
    "content",
    [b"", b"no tar", b"\1" * 2000],
)
def test_other_files_are_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(content)
    with pytest.raises(InputError, match="cannot be read as an image"):
        read_tar(path)


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
        read_tar(_tar(tmp_path / "x.tar", {name: content}))


def test_a_layer_that_python_cannot_unpack(tmp_path: Path) -> None:
    manifest = [{"Config": "c.json", "Layers": ["l"]}]
    files = {
        "c.json": b"{}",
        "l": b"\x28\xb5\x2f\xfd" + b"x" * 100,
        "manifest.json": json.dumps(manifest).encode(),
    }
    with pytest.raises(InputError, match="zstd"):
        read_tar(_tar(tmp_path / "x.tar", files))


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
