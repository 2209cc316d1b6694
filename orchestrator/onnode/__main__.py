"""Entry of a bundle's lib/: `python3 -I -S -B lib loop|node|preflight ...`."""

import os
import sys

if sys.version_info < (3, 9):  # before anything is imported that an older one could not read
    sys.exit(
        "orchestrator: %s on %s is Python %d.%d; the bundle needs 3.9 or newer: install python3, or name another "
        "interpreter (`python:` in the site file, PYTHON=... for this bundle)"
        % (sys.executable, os.uname()[1], sys.version_info[0], sys.version_info[1])
    )

if __name__ == "__main__":
    HERE = os.path.dirname(os.path.abspath(__file__))
    # Python has put this folder first; the package is found in the one above, behind all of the standard library.
    sys.path[0:1] = []
    sys.path.append(os.path.dirname(HERE))
    main = __import__(os.path.basename(HERE) + ".main", fromlist=["main"]).main
    sys.exit(main(sys.argv[1:]))
