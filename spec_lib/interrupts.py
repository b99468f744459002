"""Ctrl-C while a command is still importing the library (seconds, most of them PyTorch's): it ends as it does later.

`python -m spec_lib` imports the package before the first line of `__main__`, which cannot catch it there.
"""

from __future__ import annotations

import os
import sys


def end_quietly() -> None:
    """Where this process is that command: no traceback at Ctrl-C, and exit code 130.  Elsewhere nothing."""
    if sys.argv[:1] != ["-m"] or __package__ not in sys.orig_argv:  # -m stands there until the command begins
        return
    said = sys.excepthook

    def hook(kind, error, trace):
        if not issubclass(kind, KeyboardInterrupt):
            return said(kind, error, trace)
        os._exit(130)  # nothing is written yet, and threads of a half-imported library might not end

    sys.excepthook = hook


end_quietly()
