"""Entry: `python3 measure` serves the loop, `python3 measure WAY INDEX FD ...` measures in one way."""

import os
import sys

PARTS = {"": "service", "tcp": "ring", "torch": "torch_rccl", "rccl-tests": "rccl_tests"}

if __name__ == "__main__":
    # Python has put this folder first; the package is found in the one above.
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    __import__("measure." + PARTS["".join(sys.argv[1:2])], fromlist=["main"]).main()
