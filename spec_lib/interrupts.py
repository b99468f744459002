"""What ends a command while it is still importing the library: Ctrl-C, as it does later, and a package that is missing.

`python -m spec_lib` imports the package before the first line of `__main__`, which cannot catch either there.  (The
import takes seconds, most of them PyTorch's.)
"""

from __future__ import annotations

import os
import sys

NEEDED = ("torch", "transformers", "tokenizers", "safetensors", "numpy", "matplotlib", "ipywidgets")


def end_in_a_sentence() -> None:
    """Where this process is that command: no traceback for these two, and exit code 130 or 2.  Elsewhere nothing."""
    if sys.argv[:1] != ["-m"] or __package__ not in sys.orig_argv:  # -m stands there until the command begins
        return
    said = sys.excepthook

    def hook(kind, error, trace):
        if issubclass(kind, KeyboardInterrupt):
            os._exit(130)  # nothing is written yet, and threads of a half-imported library might not end
        if not issubclass(kind, ModuleNotFoundError) or error.name not in NEEDED:
            return said(kind, error, trace)
        activate = r".venv\Scripts\activate" if os.name == "nt" else "source .venv/bin/activate"
        print(
            f"python -m spec_lib: this Python ({sys.executable}) has no {error.name}: in the course's folder run "
            f"`python3 course.py` once and then `{activate}`, and start again.",
            file=sys.stderr,
            flush=True,
        )
        os._exit(2)

    sys.excepthook = hook


end_in_a_sentence()
