"""Old name of `tests.helpers.wrong_rules`."""

from tests.helpers.wrong_rules import *  # noqa: F403
