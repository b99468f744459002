"""The official `openai` client, unchanged: completions, streams, models, and errors as it raises them."""

import openai
import pytest
import torch

import spec_lib as sl
from tests.helpers.served import Scripted, serving
from tests.server.test_completions import alone

ONCE = "Once upon a time"


@pytest.fixture(scope="module")
def pair():
    return sl.load_pair("tiny", dtype=torch.float64).fast()


def client_of(server, **options) -> openai.OpenAI:
    direct = openai.DefaultHttpxClient(trust_env=False)  # a company's proxy is not for this machine
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", http_client=direct, **options)


@pytest.fixture(scope="module")
def client(pair):
    with serving(pair, waiting=28) as server, client_of(server, max_retries=0) as client:
        yield client


def test_a_completion(client, pair):
    answer = client.completions.create(model="tiny", prompt=ONCE, max_tokens=24, seed=3, temperature=0.8, top_p=0.95)
    want, g = alone(pair, ONCE, 24, 3, temperature=0.8, top_p=0.95)
    assert answer.choices[0].text == want and answer.choices[0].finish_reason == "length"
    s, usage = sl.summarize(g), answer.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (4, 24, 28)
    a = usage.completion_tokens_details.accepted_prediction_tokens
    r = usage.completion_tokens_details.rejected_prediction_tokens
    assert (a, r) == (s.accepted, s.rejected) and a / (a + r) == s.alpha
    spec = answer.choices[0].model_extra["spec"]
    assert "".join(text for text, _ in spec) == want
    assert {origin for _, origin in spec} <= {"accepted", "resampled", "bonus", "plain"}


def test_a_stream(client, pair):
    options = {"model": "tiny", "prompt": [ONCE, "The king"], "max_tokens": 16, "seed": 5, "n": 2}
    chunks = list(client.completions.create(**options, stream=True, stream_options={"include_usage": True}))
    texts = {i: "" for i in range(4)}
    for chunk in chunks:
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    want = [alone(pair, prompt, 16, 5 + k)[0] for k, prompt in enumerate([ONCE, ONCE, "The king", "The king"])]
    assert [texts[i] for i in range(4)] == want
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == 64
    ends = [choice.finish_reason for chunk in chunks for choice in chunk.choices if choice.finish_reason]
    assert ends == ["length"] * 4


def test_what_the_client_sends_besides(client):
    options = {"echo": False, "best_of": 1, "logprobs": None, "suffix": None, "user": "somebody", "logit_bias": {}}
    options |= {"frequency_penalty": 0, "presence_penalty": 0, "extra_body": {"top_k": 5}}
    assert client.completions.create(model="tiny", prompt=ONCE, max_tokens=2, **options).choices[0].text


def test_models(client):
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").owned_by == "spec_lib"
    with pytest.raises(openai.NotFoundError, match="ask for tiny"):
        client.models.retrieve("openai-community/gpt2")


@pytest.mark.parametrize(
    "options, kind, code",
    [
        ({"model": "gpt-4"}, openai.NotFoundError, "model_not_found"),
        ({"logprobs": 3}, openai.BadRequestError, None),
        ({"max_tokens": 5000}, openai.BadRequestError, "context_length_exceeded"),
        ({"temperature": -1}, openai.BadRequestError, None),
    ],
)
def test_errors(client, options, kind, code):
    with pytest.raises(kind) as error:
        client.completions.create(**{"model": "tiny", "prompt": ONCE, **options})
    assert error.value.code == code and error.value.param in options
    assert error.value.body["message"] in str(error.value)


def test_chat_is_refused_with_a_sentence(client):
    with pytest.raises(openai.NotFoundError, match="no chat template"):
        client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "hello"}])


def test_the_client_comes_again_where_it_is_told_to(pair):
    """429 with Retry-After: the client waits and asks again by itself."""
    with serving(pair, slots=1, waiting=0, engine=lambda: Scripted([5, 6, 7], slots=1)) as server:
        server.worker.texts = 0  # until the client has been told to come again
        with client_of(server, max_retries=0) as once, pytest.raises(openai.RateLimitError) as error:
            once.completions.create(model="tiny", prompt=ONCE)
        assert error.value.response.headers["retry-after"] == "1"
        with client_of(server, max_retries=2) as again:
            again._client.event_hooks["response"] = [lambda response: setattr(server.worker, "texts", 1)]
            assert again.completions.create(model="tiny", prompt=ONCE, max_tokens=3).choices[0].text


@pytest.mark.parametrize("stream", [False, True])
def test_an_engine_that_fails_is_an_error_of_the_client(pair, stream):
    """A stream that breaks off looks complete to the client: it must be told, and the server goes on."""
    made = []

    def engine():
        def turn():
            if len(made) == 1 and engine.rows and len(engine.rows[0].rounds) == 2:
                raise RuntimeError("the device is lost")

        engine = Scripted(pair.token_ids(ONCE) * 5, 2, turn=turn)
        made.append(engine)
        return engine

    options = {"model": "tiny", "prompt": ONCE, "max_tokens": 20}
    with serving(pair, engine=engine) as server, client_of(server, max_retries=0) as client:
        with pytest.raises(openai.APIError, match="the engine failed while this text was written"):
            if stream:
                for chunk in client.completions.create(**options, stream=True):
                    assert chunk.choices[0].text and chunk.choices[0].finish_reason is None
            else:
                client.completions.create(**options)
        assert client.completions.create(**options).choices[0].finish_reason == "length"
        assert len(made) == 2 and server.counted("request_success_total", finished_reason="error") == 1
