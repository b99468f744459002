"""Old name of `tests.helpers.enumeration` and of some of `tests.helpers.models`."""

from tests.helpers.enumeration import *  # noqa: F403
from tests.helpers.models import power, remembering, small_pair, tiny_gpt2  # noqa: F401
