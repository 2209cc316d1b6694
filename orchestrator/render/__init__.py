"""From an Entry to the files of a bundle.

render_bundle(entry, nexp=10)   {"job.sh": b"...", ...}
write_bundle(files, directory)  all or nothing
diff_bundle(files, directory)   differences from a bundle on disk
manifest_hash(files)            identity of a bundle
"""

from __future__ import annotations

from orchestrator.render.bundle import manifest_hash, render_bundle
from orchestrator.render.files import diff_bundle, write_bundle

__all__ = ["diff_bundle", "manifest_hash", "render_bundle", "write_bundle"]
