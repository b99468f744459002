"""Old name of `tests.helpers.promises`."""

from tests.helpers.models import *  # noqa: F403
from tests.helpers.promises import *  # noqa: F403
