"""What `course.py` does: make the environment, run the tests, stamp the notebooks. Needs nothing but Python."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


class Stop(Exception):
    """Ends the program with one sentence and an exit code."""

    def __init__(self, sentence: str, code: int = 1):
        super().__init__(sentence)
        self.code = code
