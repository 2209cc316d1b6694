"""What runs was read at the start: files that change on storage later are never executed, whoever changed them."""

from __future__ import annotations

import os
import subprocess

import pytest
from bundle_parts import Bundles
from run_sets import Set
from users import GID, MEMBER, OTHERS, OWNER, PYTHON, needs_root

SWAP = """
cp -rp "$1" "$1.new" && chmod -R a+rwX "$1.new"
for file in $(find "$1.new/bundle" -name '*.py'); do
  printf 'import os\\nopen("%s/ran_%%d" %% os.getuid(), "a").close()\\n' "$2" >"$file"
done
for file in $(find "$1.new/bundle" -name '*.sh') $3; do
  [ ! -e "$1.new/$file" ] || file=$1.new/$file
  echo "touch $2/ran_\\$UID" >"$file"
done
mv "$1" "$1.old" && mv "$1.new" "$1"
"""
"""$1: the set; $2: where what runs leaves a file; $3: more of its scripts."""


def as_user(user: int, groups: str = f"--groups={GID}") -> list[str]:
    return ["setpriv", f"--reuid={user}", f"--regid={OTHERS}", groups]


@pytest.fixture
def bundles(open_bundles: Bundles) -> Bundles:
    os.chown(open_bundles.log_dir, OWNER, GID)
    open_bundles.log_dir.chmod(0o2775)  # without the sticky bit: members may rename what is in it
    (open_bundles.folder / "tmp").chmod(0o1777)
    (open_bundles.folder / "seen").mkdir()
    (open_bundles.folder / "seen").chmod(0o1777)
    return open_bundles


@needs_root
@pytest.mark.parametrize("environment", ["", "environment.sh"])
def test_a_set_that_is_replaced_while_it_runs(bundles: Bundles, environment: str) -> None:
    """A member of the group puts another folder in place of the set of somebody else: the loop goes on, starts nodes
    anew and sends notifications, and none of it is the member's."""
    seen, told = bundles.folder / "seen", bundles.folder / "tell"
    told.write_text(f"#!/bin/sh\ncat >>{seen}/told\n")
    told.chmod(0o755)
    plan = (
        f"[[ $me != 1.1.0 ]] || {{ until [[ -e {seen}/swapped ]]; do sleep 0.02; done; exit 3; }}"
    )
    bundles.make(plan, notify={"command": [str(told)], "events": ["complete", "paused"]}, nexp=1)
    argv = [*as_user(OWNER), "bash", str(bundles.bundle / "run_with_docker.sh")]
    loop = subprocess.Popen(
        argv,
        env=bundles.environment(PYTHON=PYTHON),
        cwd="/",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    root = bundles.running(1, 1, "run_start").root
    words = ["bash", "-c", SWAP, "swap", str(root), str(seen), environment]
    subprocess.run([*as_user(MEMBER), *words], check=True)
    (seen / "swapped").touch()
    out, _ = loop.communicate()
    assert sorted(path.name for path in seen.iterdir() if path.name.startswith("ran")) == [], out
    assert (root.with_name(f"{root.name}.old")).is_dir()
    if environment:
        assert loop.returncode == 1 and "environment.sh: it was changed" in out, out
    else:
        assert loop.returncode == 0 and Set(root).outcomes(1)[-1] == "success", out
    assert (seen / "told").exists(), out
