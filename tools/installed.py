"""Prints which of the packages named to it, or needed by them, this Python lacks, one a line.

Run by the environment that is to be looked at: `python -I installed.py torch==2.13.0 ...`.
"""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, distribution

from pip._vendor.packaging.requirements import Requirement  # comes with pip, so it is there when nothing else is


def lacking(pins: list[str]) -> list[str]:
    """The requirements that are not met: these by version, those that they need in turn by name."""
    waiting = [Requirement(pin) for pin in pins]
    asked, seen, found = len(waiting), set(), []
    for i, need in enumerate(waiting):  # which grows while it is walked through
        if str(need) in seen:
            continue
        seen.add(str(need))
        try:
            package = distribution(need.name)
        except PackageNotFoundError:
            found.append(need.name)
            continue
        if i < asked and not need.specifier.contains(package.version, prereleases=True):
            found.append(f"{need} (there is {package.version})")
        for further in map(Requirement, package.requires or []):
            settings = [{"extra": extra} for extra in ("", *need.extras)]
            if further.marker is None or any(map(further.marker.evaluate, settings)):
                waiting.append(further)
    return list(dict.fromkeys(found))


if __name__ == "__main__":
    print("\n".join(lacking(sys.argv[1:])))
