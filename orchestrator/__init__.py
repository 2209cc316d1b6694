"""From a system descriptor to a scored set of MLPerf Training runs on AMD Instinct clusters.

The names of __all__ are for use from Python (docs/api.md), each imported on first use.
"""

__version__ = "0.1.0"

TYPE_CHECKING = False  # `orchestrator --help` loads this file and nothing heavier
if TYPE_CHECKING:
    from orchestrator.errors import OrchestratorError
    from orchestrator.mllog.score import score_dir
    from orchestrator.model import load_entry, load_site
    from orchestrator.render import render_bundle, write_bundle
    from orchestrator.sets import compare_sets, open_set, submit_set, wait_for_set

_HOMES = {
    "OrchestratorError": "errors",
    "compare_sets": "sets",
    "load_entry": "model",
    "load_site": "model",
    "open_set": "sets",
    "render_bundle": "render",
    "score_dir": "mllog.score",
    "submit_set": "sets",
    "wait_for_set": "sets",
    "write_bundle": "render",
}

__all__ = [
    "OrchestratorError",
    "__version__",
    "compare_sets",
    "load_entry",
    "load_site",
    "open_set",
    "render_bundle",
    "score_dir",
    "submit_set",
    "wait_for_set",
    "write_bundle",
]


def __getattr__(name: str) -> object:
    from orchestrator.lazy import public_name

    return public_name(__name__, _HOMES, name)


def __dir__() -> list[str]:
    return __all__
