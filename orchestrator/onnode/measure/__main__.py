"""Entry: `python3 measure` serves the loop, `python3 measure WAY INDEX FD` measures in one way."""

import os
import sys

if __name__ == "__main__":
    # Python has put this folder first; the package is found in its parent.
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    service = __import__("measure.service", fromlist=["main"])
    service.work(*sys.argv[1:]) if sys.argv[1:] else service.main()
