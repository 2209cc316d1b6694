from __future__ import annotations

from pathlib import Path

import pytest
from deep_parts import Bundle


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    """The scripts of a bundle, with settings for the deep step."""
    return Bundle(tmp_path)
