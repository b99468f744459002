"""What a request for completions may say: its fields, and what is refused, each in one sentence and before any work.

OpenAI's fields, with `top_k` beside them.  What would change the answer and is not supported is refused, never ignored,
and so is what is not known here: it might be such a field, or one with a slip of the pen.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from numbers import Real

from ..numbers import as_int
from ..sampling import Sampling
from .refusals import Refused

MOST_TEXTS, MOST_STOPS = 16, 4  # in one request
# Fields of OpenAI, vLLM and llama.cpp that would change the answer, with the values that change nothing.  null never
# does.
NEUTRAL = {
    "logprobs": (), "prompt_logprobs": (), "echo": (False,), "suffix": ("",), "best_of": (1,),
    "presence_penalty": (0,), "frequency_penalty": (0,), "repetition_penalty": (1,), "length_penalty": (1,),
    "logit_bias": ({},), "min_p": (0,), "typical_p": (1,), "min_tokens": (0,), "ignore_eos": (False,),
    "stop_token_ids": ([],), "bad_words": ([],), "allowed_token_ids": (), "use_beam_search": (False,),
    "include_stop_str_in_output": (False,), "skip_special_tokens": (True,), "add_special_tokens": (True,),
    "truncate_prompt_tokens": (), "response_format": ({"type": "text"},), "structured_outputs": (), "guided_json": (),
    "guided_regex": (), "guided_choice": (), "guided_grammar": (), "grammar": (), "json_schema": (), "samplers": (),
    "mirostat": (0,), "xtc_probability": (0,), "repeat_penalty": (1,), "n_predict": (), "messages": (), "tools": ([],),
}  # fmt: skip

HANDLED = {
    "model",
    "prompt",
    "max_tokens",
    "n",
    "seed",
    "stop",
    "stream",
    "stream_options",
    "temperature",
    "top_p",
    "top_k",
}
# Fields for the operator's books, which change no answer.
HARMLESS = {"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "request_id"}


@dataclass(frozen=True)
class Limits:
    """What this server can write.  name: of the model.  context: positions of the target, None where nothing limits it.
    vocab: of the target.  texts: the most that are ever in work and waiting."""

    name: str
    context: int | None
    vocab: int
    texts: int


@dataclass(frozen=True)
class Asked:
    """A request for `n` texts after each of the prompts, which are lists of ids; text k is written with seed + k."""

    prompts: list[list[int]]
    max_tokens: int
    sampling: Sampling
    seed: int
    stop: tuple[str, ...]
    n: int
    stream: bool
    include_usage: bool
    continuous_usage: bool  # vLLM's: the counts so far in every chunk


def asked(body: bytes, pair, limits: Limits) -> Asked:
    """The request in a body of JSON.  Raises Refused, 400, or 404 for a model that is not here."""
    given = _an_object(body)
    for field, neutral in NEUTRAL.items():
        value = given.get(field)
        if value is not None and not any(
            value == x and isinstance(value, bool) == isinstance(x, bool) for x in neutral
        ):
            raise Refused(400, f"{field} is not supported here: leave it out (it would change the answer)", field)
    unknown = [
        field for field in given if field not in HANDLED | HARMLESS | NEUTRAL.keys() and given[field] is not None
    ]
    if unknown:
        raise Refused(400, f"{_short(unknown[0])} is no field known here, and might change the answer: leave it out",
                      unknown[0][:100])  # fmt: skip
    model = given.get("model")
    if model is not None and model != limits.name:
        raise Refused(404, f"the model {_short(model)} is not here: ask for {limits.name}", "model", "model_not_found")

    n, new = _whole(given, "n", 1, 1, MOST_TEXTS), _whole(given, "max_tokens", 16, 1, 10**9)
    prompts = _prompts(given.get("prompt"), pair, limits.vocab)
    texts = n * len(prompts)
    if texts > min(MOST_TEXTS, limits.texts):
        most = min(MOST_TEXTS, limits.texts)
        raise Refused(400, f"n * prompts, the texts of one request, can be {most} at most, got {texts}", "n")
    longest = max(map(len, prompts)) + new - 1  # the last token is drawn, never read
    if limits.context is not None and longest > limits.context:
        room = new - (longest - limits.context)
        advice = f"ask for {room} at most" if room > 0 else "shorten the prompt"
        raise Refused(
            400,
            f"max_tokens {new} after the prompt's {longest - new + 1} need {longest} positions, and the model has "
            f"{limits.context}: {advice}",
            "max_tokens",
            "context_length_exceeded",
        )
    seed = given.get("seed")
    seed = secrets.randbelow(2**63) if seed is None else as_int(seed)
    if seed is None or not -(2**63) <= seed <= 2**64 - texts:
        raise Refused(
            400, f"seed must be a whole number of 64 bits (text k uses seed + k), got {_short(given['seed'])}", "seed"
        )
    stream, options = _flag(given, "stream"), given.get("stream_options")
    if options is not None and not (stream and isinstance(options, dict)):
        raise Refused(400, f"stream_options must be an object, beside \"stream\": true, got {_short(options)}",
                      "stream_options")  # fmt: skip
    told = [_flag(options or {}, name) for name in ("include_usage", "continuous_usage_stats")]
    return Asked(prompts, new, _sampling(given), seed, _stops(given.get("stop")), n, stream, *told)


def _an_object(body: bytes) -> dict:
    def constant(name: str):
        raise ValueError(f"{name} is not JSON")

    try:
        given = json.loads(body, parse_constant=constant)
    except RecursionError:
        raise Refused(400, "the body is nested too deeply") from None
    except ValueError as error:  # what is not UTF-8, and numbers of thousands of digits, too
        raise Refused(400, f"the body is not JSON: {str(error)[:200]}") from None
    if not isinstance(given, dict):
        raise Refused(400, f"the body must be a JSON object, got a {type(given).__name__}")
    return given


def _prompts(prompt, pair, vocab: int) -> list[list[int]]:
    several = isinstance(prompt, list) and any(isinstance(x, (str, list)) for x in prompt)
    found = [_ids(x, pair, vocab) for x in (prompt if several else [prompt])[: MOST_TEXTS + 1]]
    if several and len(prompt) > MOST_TEXTS:
        raise Refused(400, f"at most {MOST_TEXTS} prompts can be given at once, got {len(prompt)}", "prompt")
    return found


def _ids(prompt, pair, vocab: int) -> list[int]:
    if isinstance(prompt, str):
        try:
            return pair.token_ids(prompt)
        except ValueError as error:
            raise Refused(400, f"prompt: {error}", "prompt") from None
    ids = [as_int(x) for x in prompt] if isinstance(prompt, list) else []
    if not ids or None in ids:
        raise Refused(
            400,
            "prompt must be a text, a list of texts, a list of token ids, or a list of such lists, none empty, got "
            f"{_short(prompt)}",
            "prompt",
        )
    wrong = next((x for x in ids if not 0 <= x < vocab), None)
    if wrong is not None:
        raise Refused(400, f"prompt: token id {_short(wrong)} is outside the vocabulary of {vocab}", "prompt")
    return ids


def _sampling(given: dict) -> Sampling:
    values = {}
    for name, default, low, high in (("temperature", 1.0, 0, 2), ("top_p", 1.0, 0, 1), ("top_k", 0, 0, None)):
        value = given.get(name)
        value = default if value is None else value
        if (
            isinstance(value, bool)
            or not isinstance(value, Real)
            or not low <= value <= (value if high is None else high)
        ):
            upper = "on (0: no limit)" if high is None else f"to {high}"
            raise Refused(400, f"{name} must be a number from {low} {upper}, got {_short(value)}", name)
        values[name] = value
    try:
        return Sampling(**values)
    except ValueError as error:
        raise Refused(400, str(error).replace("None", "null"), str(error).split(" ")[0]) from None


def _stops(stop) -> tuple[str, ...]:
    stops = [] if stop is None else stop if isinstance(stop, list) else [stop]
    if len(stops) > MOST_STOPS or not all(isinstance(s, str) and s for s in stops):
        raise Refused(400, f"stop must be a text or a list of at most {MOST_STOPS}, none empty, got {_short(stop)}",
                      "stop")  # fmt: skip
    return tuple(stops)


def _whole(given: dict, name: str, default: int, low: int, high: int) -> int:
    value = given.get(name)
    number = default if value is None else as_int(value)
    if number is None or not low <= number <= high:
        raise Refused(400, f"{name} must be a whole number from {low} to {high}, got {_short(value)}", name)
    return number


def _flag(given: dict, name: str) -> bool:
    value = given.get(name)
    if value is not None and not isinstance(value, bool):
        raise Refused(400, f"{name} must be true or false, got {_short(value)}", name)
    return bool(value)


def _short(value) -> str:
    text = repr(value) if not isinstance(value, int) or abs(value) < 10**30 else "a number of more than 30 digits"
    return text if len(text) < 100 else f"{text[:97]}..."
