"""What a request may say: what is read out of it, and what is refused."""

import json

import pytest

from spec_lib.sampling import Sampling
from spec_lib.server.asked import MOST_TEXTS, NEUTRAL, Limits, asked
from spec_lib.server.refusals import Refused

LIMITS = Limits("tiny", 64, 100, 24)


class Lengths:
    """A tokenizer with one token a character, its code modulo 100."""

    def token_ids(self, text):
        if any("\ud800" <= c <= "\udfff" for c in text):
            raise ValueError("the text holds bytes that are not UTF-8: type it anew, or set a UTF-8 locale.")
        return [ord(c) % 100 for c in text] or [0]


def read(limits=LIMITS, **fields):
    return asked(json.dumps({"prompt": "ab", **fields}).encode(), Lengths(), limits)


def refused(status=400, limits=LIMITS, **fields) -> Refused:
    with pytest.raises(Refused) as error:
        read(limits, **fields)
    assert error.value.status == status
    return error.value


def test_what_is_not_said_is_as_in_openais_api():
    found = read()
    assert found.prompts == [[97, 98]] and found.max_tokens == 16 and found.n == 1 and found.stop == ()
    assert found.sampling == Sampling(1.0, 0, 1.0) and not found.stream
    assert not found.include_usage and not found.continuous_usage
    everything = dict.fromkeys(["max_tokens", "n", "seed", "stop", "stream", "temperature", "top_p", "top_k"])
    nothing = read(**everything, **dict.fromkeys(NEUTRAL))
    assert (nothing.max_tokens, nothing.sampling, nothing.stop) == (16, found.sampling, ())


def test_a_seed_is_made_up_where_none_is_given():
    assert len({read().seed for _ in range(20)}) == 20
    assert read(seed=7).seed == 7 and read(seed=-(2**63)).seed == -(2**63) and read(seed=2**64 - 1).seed == 2**64 - 1


@pytest.mark.parametrize(
    "prompt, ids",
    [
        ("ab", [[97, 98]]),
        ("", [[0]]),
        (["a", "b"], [[97], [98]]),
        ([5, 6], [[5, 6]]),
        ([[5, 6], [7]], [[5, 6], [7]]),
        (["a", [5]], [[97], [5]]),
        ("\0", [[0]]),
    ],
)
def test_prompts(prompt, ids):
    assert read(prompt=prompt).prompts == ids


@pytest.mark.parametrize(
    "prompt, words",
    [
        (None, "prompt must be a text"),
        ([], "none empty"),
        ([[]], "none empty"),
        (["a", None], "prompt must be a text"),
        ([1.0], "prompt must be a text"),
        ([True], "prompt must be a text"),
        ({}, "prompt must be a text"),
        ([1, "a"], "prompt must be a text"),
        ([100], "token id 100 is outside the vocabulary of 100"),
        ([-1], "token id -1 is outside"),
        ([10**99], "token id a number of more than 30 digits is outside"),
        ("\ud800", "not UTF-8"),
        (["a"] * 17, "at most 16 prompts"),
    ],
)
def test_prompts_that_are_none(prompt, words):
    assert words in refused(prompt=prompt).message


@pytest.mark.parametrize(
    "field, values",
    [
        ("max_tokens", [0, -1, 1.5, 16.0, "16", True, [], 10**400]),
        ("n", [0, 17, 1.5, "1", True]),
        ("temperature", [-0.1, 2.1, "1", True, [], 10**400]),
        ("top_p", [0, -0.5, 1.1, "1", False]),
        ("top_k", [-1, 1.5, "1", True]),
        ("seed", [2**64, -(2**63) - 1, 1.5, "1", True, 10**400]),
        ("stop", ["", [""], ["a", ""], 5, [5], {}, ["a"] * 5]),
        ("stream", [1, "true", []]),
    ],
)
def test_values_that_are_out_of_range(field, values):
    for value in values:
        error = refused(**{field: value})
        assert error.param == field and error.message.startswith(field) and "\n" not in error.message
        assert "got " in error.message and "None" not in error.message, "what was sent, in words of JSON's"
        assert len(error.message) < 250


def test_options_of_a_stream_without_a_stream_are_told_what_came():
    for given in ({"stream_options": {"include_usage": True}}, {"stream": True, "stream_options": [1]}):
        assert refused(**given).message.endswith(f"got {given['stream_options']}")


def test_values_at_the_edge_of_the_range():
    found = read(temperature=0, top_p=1e-9, top_k=5, n=16, stop=["a", "b", "c", "d"], max_tokens=63)
    assert found.sampling == Sampling(0, 5, 1e-9) and found.n == 16 and found.stop == ("a", "b", "c", "d")
    assert read(temperature=2, stop="x").stop == ("x",)
    assert read(stream=True, stream_options={"include_usage": True}).include_usage
    assert read(stream=True, stream_options={"continuous_usage_stats": True}).continuous_usage


@pytest.mark.parametrize("field", NEUTRAL)
def test_what_is_not_supported_is_never_ignored(field):
    for neutral in NEUTRAL[field]:
        read(**{field: neutral})
    for value in [0.5, {"5": 1}, "x", 3, True] if True not in NEUTRAL[field] else [False]:
        error = refused(**{field: value})
        assert error.param == field and f"{field} is not supported" in error.message
    others = [x for x in (0, 1, False, True) if not any(x == y and type(x) is type(y) for y in NEUTRAL[field])]
    for value in others:  # 0 is not False here, nor 1 True
        assert refused(**{field: value}).param == field


@pytest.mark.parametrize(
    "neutral, other, fields",
    [
        (1, 0, ["repetition_penalty", "repeat_penalty", "length_penalty", "typical_p", "best_of"]),  # factors, shares
        (0, 1, ["presence_penalty", "frequency_penalty", "min_p", "min_tokens", "mirostat", "xtc_probability"]),
        (False, True, ["echo", "ignore_eos", "use_beam_search", "include_stop_str_in_output"]),
        (True, False, ["skip_special_tokens", "add_special_tokens"]),
    ],
)
def test_what_changes_nothing(neutral, other, fields):
    """By what each field means, and not by the table of those that are let through."""
    for field in fields:
        read(**{field: neutral})
        assert refused(**{field: other}).param == field


def test_logprobs_of_zero_would_change_the_answer_too():
    assert refused(logprobs=0).param == "logprobs"


def test_unknown_fields_are_refused_and_those_for_the_books_ignored():
    assert read(user="somebody", metadata={"ever": 1}, what=None).max_tokens == 16
    for field in ("temperatur", "regex", "top_n_sigma", "dry_multiplier"):
        error = refused(**{field: 0})
        assert error.param == field and f"'{field}' is no field known here" in error.message


def test_another_model_is_not_found():
    error = refused(404, model="other")
    assert error.code == "model_not_found" and error.param == "model" and "tiny" in error.message
    assert read(model="tiny").n == 1 and refused(404, model="\ud800").status == 404


def test_a_text_beyond_the_context_is_refused_to_the_token():
    assert read(max_tokens=63).max_tokens == 63  # the last token is drawn, never read
    error = refused(max_tokens=64)
    assert error.code == "context_length_exceeded" and "need 65 positions" in error.message
    assert error.message.endswith("has 64: ask for 63 at most") and read(prompt="aa", max_tokens=63).max_tokens == 63
    assert refused(prompt="a" * 65, max_tokens=2).message.endswith("has 64: shorten the prompt")
    assert refused(prompt=["a", "a" * 64], max_tokens=2).code == "context_length_exceeded"
    assert read(Limits("tiny", None, 100, 24), max_tokens=10**6).max_tokens == 10**6


def test_texts_of_one_request_are_bounded_by_the_server_too():
    assert "16 at most, got 18" in refused(n=9, prompt=["a", "b"]).message
    assert read(n=8, prompt=["a", "b"]).n == 8 and MOST_TEXTS == 16
    assert "5 at most, got 6" in refused(limits=Limits("tiny", 64, 100, 5), n=6).message  # it would never have room


def test_the_seeds_of_all_texts_fit_into_64_bits():
    assert read(n=2, seed=2**64 - 2).seed == 2**64 - 2
    assert refused(n=2, seed=2**64 - 1).param == "seed"


def test_options_of_a_stream_that_is_none():
    assert refused(stream_options={}).param == "stream_options"
    assert refused(stream=True, stream_options=[]).param == "stream_options"
    assert refused(stream=True, stream_options={"include_usage": 1}).param == "include_usage"


BODIES = {
    "not UTF-8": b'{"prompt": "\xff"}',
    "not JSON": b"prompt=ab",
    "empty": b"",
    "a list": b"[]",
    "a text": b'"ab"',
    "null": b"null",
    "cut off": b'{"prompt": "a',
    "30,000 nested brackets": b"[" * 30_000,
    "nested in a field": b'{"prompt": ' + b"[" * 10_000 + b"]" * 10_000 + b"}",
    "NaN": b'{"prompt": "a", "temperature": NaN}',
    "Infinity": b'{"prompt": "a", "temperature": Infinity}',
    "a number beyond floats": b'{"prompt": "a", "temperature": 1e999}',
    "a number of 5,000 digits": b'{"prompt": "a", "seed": ' + b"1" * 5000 + b"}",
    "two objects": b'{"prompt": "a"}{}',
}


@pytest.mark.parametrize("name", BODIES)
def test_bodies_that_are_no_request(name):
    with pytest.raises(Refused) as error:
        asked(BODIES[name], Lengths(), LIMITS)
    assert error.value.status == 400 and len(error.value.message) < 300


@pytest.mark.parametrize(
    "body", [b'{"prompt": "a", "prompt": "ab"}', b'\xef\xbb\xbf{"prompt": "ab"}', '{"prompt": "ab"}'.encode("utf-16")]
)
def test_bodies_that_are_odd_and_harmless(body):
    assert asked(body, Lengths(), LIMITS).prompts == [[97, 98]]


@pytest.mark.reported
def test_a_model_that_is_null_is_none_that_was_asked_for():
    """A client whose model is null was told that no such model is here (vllm-project/vllm pull requests 13568, 24663).

    Right: null is as good as nothing, and a name that is not here stays 404, the empty one too.
    """
    assert read(model=None, seed=5) == read(model="tiny", seed=5) == read(seed=5)
    assert refused(404, model="").param == "model"


@pytest.mark.reported
def test_what_lifts_the_limit_of_top_k_is_said():
    """-1 or 0 for "no limit": what one server takes the other refuses (vllm-project/vllm issue 17553, SillyTavern
    issue 1823).

    Right: 0 and null lift it, and whoever sends -1 is told so.
    """
    assert read(top_k=0).sampling == read(top_k=None).sampling == Sampling(1.0, 0, 1.0)
    assert "(0: no limit), got -1" in refused(top_k=-1).message
