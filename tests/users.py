"""Several users of this machine, for tests of root."""

from __future__ import annotations

import grp
import os
import sys
from pathlib import Path

import pytest

OWNER, MEMBER, STRANGER, OTHERS = 4242, 4243, 4244, 4245
"""Users, and the group of all of them."""
GROUP = grp.getgrall()[-1].gr_name
GID = grp.getgrnam(GROUP).gr_gid
PYTHON = "/usr/bin/python3"
needs_root = pytest.mark.skipif(
    os.getuid() != 0 or sys.platform != "linux" or not Path(PYTHON).exists(),
    reason="only root can be several people",
)
