"""The token: its sources, and that it is nowhere to be seen while a preparation runs."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import docker
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prepare_parts import TOKEN, WAITING, Data, gate

from orchestrator.errors import UsageError
from orchestrator.prepare.secret import HIDDEN, Redactor, Secret, read_secret


@given(
    st.lists(
        st.binary(max_size=20) | st.sampled_from([b"abcdabce", b"abcd", b"ab", b"abce"]),
        max_size=30,
    ),
    st.integers(1, 7),
)
def test_the_secret_never_passes_however_the_stream_is_cut(pieces: list[bytes], width: int) -> None:
    stream = b"".join(pieces)
    redactor = Redactor(Secret("T", "abcdabce"))
    cuts = range(0, len(stream), width)
    shown = b"".join(redactor.feed(stream[start : start + width]) for start in cuts)
    shown += redactor.rest()
    assert b"abcdabce" not in shown
    assert shown == stream.replace(b"abcdabce", HIDDEN)


def test_a_token_shows_itself_in_no_text() -> None:
    assert TOKEN not in f"{Secret('HF_TOKEN', TOKEN)} {Secret('HF_TOKEN', TOKEN)!r}"


@pytest.mark.parametrize(
    ("mode", "content", "says"),
    [
        (0o644, TOKEN, "others may read"),
        (0o640, TOKEN, "others may read"),
        (0o600, "", "no token"),
        (0o600, "two words", "no token"),
        (0o600, "x" * 100_000, "no token"),  # the beginning of one is not it
        (0o600, "line\nline-two", "no token"),
        (0o600, "tökentöken", "other characters"),
    ],
)
def test_a_token_file_that_is_no_good_is_refused(
    tmp_path: Path, mode: int, content: str, says: str
) -> None:
    path = tmp_path / "token"
    path.write_text(content)
    path.chmod(mode)
    with pytest.raises(UsageError, match=says) as caught:
        read_secret("HF_TOKEN", str(path), {})
    assert content == "" or content not in str(caught.value)


def test_the_file_wins_over_the_environment_and_none_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(TOKEN + "\n")
    path.chmod(0o600)
    env = {"HF_TOKEN": "another-token"}
    assert read_secret("HF_TOKEN", str(path), env).reveal() == TOKEN.encode()
    assert read_secret("HF_TOKEN", None, {"HF_TOKEN": TOKEN}).reveal() == TOKEN.encode()
    with pytest.raises(UsageError, match="needs HF_TOKEN"):
        read_secret("HF_TOKEN", None, {})


def command_lines() -> list[bytes]:
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(path.read_bytes())
        except OSError:
            continue  # it ended meanwhile
    return lines


@pytest.mark.lab
def test_the_token_is_nowhere_while_a_preparation_runs(data: Data, lab: object) -> None:
    folder = data.folder("llama2")
    folder.mkdir(parents=True)
    token_file = data.top / "token"
    token_file.write_text(TOKEN)
    token_file.chmod(0o600)
    options = ("--force-space", "--verbose", "--hf-token-file", str(token_file))
    process = data.start("llama2_70b_lora", *options, *WAITING)
    with gate(folder, process), closing(docker.DockerClient(base_url=data.engine)) as client:
        (running,) = data.containers(client)
        lines = command_lines()
        # The step itself can be seen.
        assert any(b"prepare_data_and_model.sh" in line for line in lines)
        assert not [line for line in lines if TOKEN.encode() in line]
        inspected = json.dumps(client.api.inspect_container(running))
        assert TOKEN not in inspected and "prepare_data_and_model" in inspected
        assert files_with(TOKEN, data.top) == [token_file]
        containers = lab.state / "docker/data/containers"  # type: ignore[attr-defined]
        assert files_with(TOKEN, containers) == []
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert TOKEN not in out + err
    assert files_with(TOKEN, data.top) == [token_file]
    log = (folder / ".orchestrator-prepare/llama2_70b_lora/6.0/data-and-model.log").read_text()
    # The script had the token, and printed it: once in two pieces with a pause in between.
    assert log.count(HIDDEN.decode()) >= 5 and "token is [hidden]" in log and TOKEN[9:] not in log
    checkpoint = folder / "data/megatron_checkpoints/Llama-2-70b-hf/iter_0000000"
    assert (checkpoint / "__0_0.distcp").is_file()


def files_with(text: str, folder: Path) -> list[Path]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path for path in files if text.encode() in path.read_bytes()]
