"""What is said to a client that cannot be served: OpenAI's error object with its status."""

from __future__ import annotations


class Refused(Exception):
    """A request that is answered with an error.

    message: one sentence, or two.  param: the field that is wrong, if it is one.  code: what a program may look for.
    headers: that go with the answer.  Answered with status; in a stream that has begun, as its last event.
    """

    def __init__(self, status: int, message: str, param: str | None = None, code: str | None = None, **headers: str):
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}

    def body(self) -> dict:
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        kind = "rate_limit_error" if self.status == 429 else kind
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


def busy(message: str, status: int = 429) -> Refused:
    """Not now: OpenAI's client waits for a second, as it is told, and asks again."""
    return Refused(status, message, code="overloaded", Retry_After="1")
