"""Starts the `orchestrator` command, and notices when Python finds another package of that name.

The import name `orchestrator` is not ours alone: PyPI has an unrelated distribution that uses it,
and many a checkout has a folder of that name. This module's name is ours.
"""

import sys


def main() -> int:
    """Run the command line and return its exit code; 2 when `orchestrator` is somebody else's
    package."""
    try:
        from orchestrator.cli import main as run
    except KeyboardInterrupt:  # the command itself handles it from here on
        print(file=sys.stderr)
        return 130
    except ModuleNotFoundError as error:
        if not str(error.name).startswith("orchestrator"):
            raise
        found = sys.modules.get("orchestrator")
        places = [getattr(found, "__file__", None), *getattr(found, "__path__", [])]
        where = next((place for place in places if place), "sys.path")
        print(
            f"orchestrator: Python finds another package called orchestrator: {where}\n"
            "  hint: unset PYTHONPATH, or install mlperf-orchestrator into an environment of its "
            "own",
            file=sys.stderr,
        )
        return 2
    try:
        return run()
    finally:
        # An interrupt can only disturb what is left: Python's own end. (`signal` costs 4 ms, for
        # its
        # enumerations.)
        import _signal

        _signal.signal(_signal.SIGINT, _signal.SIG_IGN)


if __name__ == "__main__":
    sys.exit(main())
