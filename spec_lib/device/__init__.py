"""`python -m spec_lib check`: is the sampler exact on this device, and should it pay there?  Minutes, no network.

`exact` tries exactness on small random pairs and counts the work of a round, `own` does the same on our own forward
pass, `speed` times pairs of GPT-2's shapes, and `check` does all of it and says what follows.
"""

from .check import recording, run

__all__ = ["recording", "run"]
