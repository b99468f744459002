"""A server that OpenAI's clients can use, and a page: `python -m spec_lib serve`.

asked      what a request may say, and what is refused
refusals   the words of a refusal, with its status
text       one text on its way to a client: pieces, characters that are not whole yet, stop strings
worker     the engine's thread, and how what it writes reaches the event loop
replies    the answers, whole and streamed
app        routes and errors
metrics    counters for Prometheus
serving    uvicorn with bounds on its connections
command    the command

starlette and uvicorn are needed by `replies`, `app` and `serving` alone, so that the command can say what is missing.
"""
