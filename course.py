#!/usr/bin/env python3
"""The course in one command: `python3 course.py --help` says what it can do. Needs Python 3.11 to 3.13, nothing else.

This file is read by any Python since 2.7, so that an old one can say what it lacks; the rest stands in `tools`.
"""

import os
import sys

if sys.version_info < (3, 11):  # noqa: UP036
    sys.exit(
        "The course needs Python 3.11, 3.12 or 3.13, and this is Python %s: start it with one of those, for example "  # noqa: UP031
        "`python3.12 course.py` (Windows: `py -3.12 course.py`)." % ".".join(map(str, sys.version_info[:2]))
    )

# The course's files and Python's own come before those that PYTHONPATH names, and need no folder put there by Python.
sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), os.path.dirname(os.__file__)]

try:
    from tools.commands import main
except KeyboardInterrupt:
    sys.exit(130)

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
