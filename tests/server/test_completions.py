"""Completions over HTTP: streamed = whole = `speculative` alone with that seed, counted as its rounds are.

The pair is in float64, where a text is the same to the last bit alone and in a batch.
"""

import json
import threading

import pytest
import torch

import spec_lib as sl
from spec_lib.checks.chi_squared import goodness_of_fit
from spec_lib.pairs import ends
from tests.helpers.models import tiny_gpt2
from tests.helpers.served import PATH, PATIENCE, Scripted, read_until, serving, until
from tests.helpers.tokenizers import Numbers, tokenizer_of

ONCE = "Once upon a time"


@pytest.fixture(scope="module")
def pair():
    return sl.load_pair("tiny", dtype=torch.float64).fast()


@pytest.fixture(scope="module")
def server(pair):
    with serving(pair, slots=4, waiting=28) as server:
        yield server


def alone(pair, prompt: str | list[int], new: int, seed: int, **sampling) -> tuple[str, sl.Generation]:
    """The text of `speculative`, and how it came about."""
    ids = pair.encode(prompt) if isinstance(prompt, str) else torch.tensor([prompt])
    options = {"sampling": sl.Sampling(**sampling), "eos_token_id": ends(pair), "generator": seed}
    g = sl.speculative(pair.target, pair.draft, ids, new, **options)
    return pair.decode(g.ids).removeprefix(pair.decode(ids)), g


def joined(chunks: list[dict], index: int = 0) -> str:
    return "".join(c["text"] for chunk in chunks for c in chunk["choices"] if c["index"] == index)


@pytest.mark.parametrize(
    "sampling",
    [{}, {"temperature": 0}, {"temperature": 0.7, "top_p": 0.9}, {"top_k": 5}, {"temperature": 1.3, "top_k": 40}],
    ids=str,
)
def test_streamed_is_whole_is_the_library_alone(server, pair, sampling):
    """Text, tokens, and how many were accepted and rejected; several texts beside each other in the slots."""
    for seed, new in ((1, 40), (2, 7), (3, 1)):
        want, g = alone(pair, ONCE, new, seed, **sampling)
        fields = {"prompt": ONCE, "max_tokens": new, "seed": seed, **sampling}
        chunks = server.stream(**fields, stream_options={"include_usage": True})
        status, answer = server.post(**fields)
        assert status == 200
        [choice] = answer["choices"]
        assert joined(chunks) == choice["text"] == want
        s, details = sl.summarize(g), answer["usage"]["completion_tokens_details"]
        assert answer["usage"]["completion_tokens"] == len(g.tokens)
        assert (details["accepted_prediction_tokens"], details["rejected_prediction_tokens"]) == (
            s.accepted,
            s.rejected,
        )
        assert chunks[-1]["choices"] == [] and chunks[-1]["usage"] == answer["usage"]
        assert [c["choices"][0]["finish_reason"] for c in chunks[:-1]][-1] == choice["finish_reason"]
        assert all(c["choices"][0]["finish_reason"] is None for c in chunks[:-2])
        spec = [piece for chunk in chunks[:-1] for piece in chunk["choices"][0]["spec"]]
        assert spec == choice["spec"] and "".join(text for text, _ in spec) == want
        assert [o for _, o in spec] == sl.plots.origins(g.rounds)[: len(spec)]


def test_an_answer_has_what_openais_have(server, pair):
    status, answer = server.post(prompt=[5, 6, 7], max_tokens=3, model="tiny")
    assert status == 200 and set(answer) == {"id", "object", "created", "model", "choices", "usage"}
    assert answer["object"] == "text_completion" and answer["model"] == "tiny" and answer["id"].startswith("cmpl-")
    [choice] = answer["choices"]
    assert choice["index"] == 0 and choice["logprobs"] is None and choice["finish_reason"] == "length"
    usage = answer["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (3, 3, 6)
    chunks = server.stream(prompt="a", max_tokens=9)
    assert len({chunk["id"] for chunk in chunks}) == 1 and "usage" not in chunks[0]
    assert all(chunk["object"] == "text_completion" and len(chunk["choices"]) == 1 for chunk in chunks)
    counts = [
        chunk["usage"]["completion_tokens"]
        for chunk in server.stream(prompt="a", max_tokens=9, stream_options={"continuous_usage_stats": True})
    ]
    assert counts == sorted(set(counts)) and counts[-1] == 9


@pytest.mark.parametrize("stream", [False, True])
def test_text_k_of_a_request_uses_seed_plus_k(server, pair, stream):
    """n > 1 gave n equal texts, with the seed taken once."""
    prompts, n, new = [ONCE, "The old woman"], 3, 12
    fields = {"prompt": prompts, "n": n, "seed": 50, "max_tokens": new}
    want = [alone(pair, prompts[k // n], new, 50 + k) for k in range(6)]
    if stream:
        chunks = server.stream(**fields, stream_options={"include_usage": True})
        found, usage = [joined(chunks, k) for k in range(6)], chunks[-1]["usage"]
    else:
        answer = server.post(**fields)[1]
        assert [c["index"] for c in answer["choices"]] == list(range(6))
        found, usage = [c["text"] for c in answer["choices"]], answer["usage"]
    assert found == [text for text, _ in want] and len(set(found)) == 6
    assert usage["completion_tokens"] == sum(len(g.tokens) for _, g in want)
    assert usage["prompt_tokens"] == sum(pair.encode(p).shape[1] for p in prompts)


def test_without_a_seed_each_text_is_another(server):
    assert len({server.text(prompt=ONCE, max_tokens=20) for _ in range(4)}) == 4


def test_ids_and_texts_are_the_same_prompt(server, pair):
    ids = pair.token_ids(ONCE)
    same = [server.text(prompt=p, seed=4, max_tokens=10) for p in (ONCE, ids, [ONCE], [ids])]
    assert len(set(same)) == 1
    assert server.text(prompt="", seed=4, max_tokens=10) == alone(pair, "", 10, 4)[0]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("stop", [" the", "\n", ["nothing", "e t", " of"], "a"])
def test_a_stop_string_cuts_the_text_that_would_have_been(server, pair, stop, stream):
    stops = [stop] if isinstance(stop, str) else stop
    for seed in (1, 2, 3):
        whole, g = alone(pair, ONCE, 60, seed)
        fields = {"prompt": ONCE, "max_tokens": 60, "seed": seed, "stop": stop}
        if stream:
            chunks = server.stream(**fields, stream_options={"include_usage": True})
            found, usage = joined(chunks), chunks[-1]["usage"]
            reason = chunks[-2]["choices"][0]["finish_reason"]
        else:
            answer = server.post(**fields)[1]
            found, usage = answer["choices"][0]["text"], answer["usage"]
            reason = answer["choices"][0]["finish_reason"]
        first = min((whole.find(s) + len(s), whole.find(s)) for s in [*stops, whole + "."] if s in whole + ".")
        assert found == whole[: first[1]] if any(s in whole for s in stops) else found == whole
        assert reason == ("stop" if any(s in whole for s in stops) else "length")
        start = len(pair.decode(pair.encode(ONCE)))
        size = pair.encode(ONCE).shape[1]
        texts = (pair.decode(g.ids[:, : size + n])[start:] for n in range(1, 61))
        needed = next((n for n, text in enumerate(texts, 1) if any(s in text for s in stops)), 60)
        assert usage["completion_tokens"] == needed  # none behind the stop


def test_an_eos_ends_a_text_and_is_counted_once():
    """The target's, which is no special token of the tokenizer: it is counted, and is no part of the text."""
    models = tiny_gpt2(0, initializer_range=0.5, tie_word_embeddings=False), tiny_gpt2(1)
    pair = sl.Pair(*(m.double() for m in models), Numbers())
    greedy = sl.autoregressive(pair.target, pair.encode("1 2"), 20, sampling=sl.Sampling(0)).tokens.tolist()
    third = next(i for i in range(2, 20) if greedy[i] not in greedy[:i] and greedy[i] != 30)
    pair.target.generation_config.eos_token_id = [greedy[third]]
    with serving(pair) as server:
        fields = {"prompt": [1, 2], "max_tokens": 20, "temperature": 0}
        answer = server.post(**fields)[1]
        text, g = alone(pair, [1, 2], 20, 0, temperature=0)
        assert g.stop_reason == "eos" and answer["usage"]["completion_tokens"] == len(g.tokens) == third + 1
        assert answer["choices"][0]["finish_reason"] == "stop"
        assert answer["choices"][0]["text"].split() == [str(t) for t in greedy[:third] if t != 30]
        assert joined(server.stream(**fields)) == answer["choices"][0]["text"]
        assert server.counted("request_success_total", finished_reason="stop") == 2


@pytest.mark.reported
def test_an_eos_that_is_the_last_token_that_was_asked_for():
    """The bound on tokens was looked at before the end of the text, whose token was then shown, and the reason was
    "length" (sgl-project/sglang pull request 17487); a second final chunk came (vllm-project/vllm issue 2266).

    Right: "stop", once; the token is counted and not shown.  With one token less it is "length".
    """
    pair = sl.Pair(tiny_gpt2(0), tiny_gpt2(1), Numbers())
    with serving(pair, engine=lambda: Scripted([5, 6, 7, 9], 3, eos=True)) as server:
        for most, reason, said in ((4, "stop", " 5 6 7"), (3, "length", " 5 6 7"), (9, "stop", " 5 6 7")):
            fields = {"prompt": [1, 2], "max_tokens": most}
            answer = server.post(**fields)[1]
            assert answer["choices"][0]["finish_reason"] == reason and answer["choices"][0]["text"] == said
            assert answer["usage"]["completion_tokens"] == min(most, 4)
            chunks = server.stream(**fields)
            reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
            assert joined(chunks) == said and reasons[-1] == reason and set(reasons[:-1]) <= {None}


def test_characters_of_several_bytes_come_whole():
    said = "na\u00efve \u2615 and \U0001f409, \u6f22\u5b57 \u0441\u043a\u0430\u0437\u043a\u0430"
    tokenizer = tokenizer_of(eos_token="<|endoftext|>")
    models = tiny_gpt2(0, vocab=258), tiny_gpt2(1, vocab=258)
    pair, ids = sl.Pair(*models, tokenizer), tokenizer(said)["input_ids"]
    for size in (1, 2, 3, 5):
        with serving(pair, engine=lambda size=size: Scripted(ids, size)) as server:
            chunks = server.stream(prompt="a", max_tokens=len(ids))
            texts = [chunk["choices"][0]["text"] for chunk in chunks]
            assert "".join(texts) == server.text(prompt="a", max_tokens=len(ids)) == said
            assert not any("\ufffd" in text for text in texts)
            broken = server.text(prompt="a", max_tokens=said.encode().index("\u2615".encode()) + 2)
            assert broken.startswith("na\u00efve ") and broken.endswith("\ufffd")  # the text ends within a character


@pytest.mark.reported
def test_a_stream_gets_through_proxies_and_parsers():
    """Behind nginx a stream came as one piece at its end (LostRuins/koboldcpp pull request 1168, xorbitsai/xagent issue
    1358); a line or paragraph separator within a text broke events in two (modelcontextprotocol/typescript-sdk pull
    request 1926, florimondmanca/httpx-sse issue 34).

    Right: the header that nginx heeds; events in ASCII, where nothing but a line feed is a line's end.
    """
    said = "a\u2028b\u2029c\u0085d \U0001f409"
    tokenizer = tokenizer_of(eos_token="<|endoftext|>")
    pair, ids = sl.Pair(tiny_gpt2(0, vocab=258), tiny_gpt2(1, vocab=258), tokenizer), tokenizer(said)["input_ids"]
    with serving(pair, engine=lambda: Scripted(ids, 2)) as server:
        fields = {"prompt": "a", "max_tokens": len(ids)}
        assert joined(server.stream(**fields)) == said
        _, headers, text = server.ask("POST", PATH, json.dumps({**fields, "stream": True}))
        assert headers["x-accel-buffering"] == "no" and headers["cache-control"] == "no-cache"
        assert text.isascii() and text.splitlines() == text.split("\n")[:-1]
        assert "x-accel-buffering" not in server.ask("POST", PATH, json.dumps(fields))[1]


def test_metrics_are_those_of_the_rounds(pair):
    """vLLM's names; alpha from them is that of `summarize`, which accepted / drafted is not."""
    with serving(pair, slots=2) as server:
        rounds, new, read = [], 0, 0
        for seed in range(4):
            usage = server.post(prompt=ONCE, max_tokens=33, seed=seed)[1]["usage"]
            g = alone(pair, ONCE, 33, seed)[1]
            rounds += g.rounds
            new, read = new + usage["completion_tokens"], read + usage["prompt_tokens"]
        s = sl.summarize(rounds)
        assert 0.5 < s.alpha < 0.95 and abs(s.alpha - s.share) > 0.1
        decode = {name: server.counted(f"spec_decode_num_{name}_total") for name in
                  ("drafts", "draft_tokens", "accepted_tokens", "rejected_tokens")}  # fmt: skip
        assert decode["accepted_tokens"] == s.accepted and decode["rejected_tokens"] == s.rejected
        assert decode["accepted_tokens"] / (decode["accepted_tokens"] + decode["rejected_tokens"]) == s.alpha
        assert decode["draft_tokens"] == s.drafted and decode["drafts"] == s.passes - s.plain
        for i in range(4):
            counted = server.counted("spec_decode_num_accepted_tokens_per_pos_total", position=str(i))
            assert counted == sum(r.accepted > i for r in rounds)
        assert server.counted("generation_tokens_total") == s.emitted == new
        assert server.counted("prompt_tokens_total") == read
        assert server.counted("request_success_total", finished_reason="length") == 4
        assert server.counted("request_success_total", finished_reason="abort") == 0
        found = server.metrics()
        for name, count in (("time_to_first_token", 4), ("e2e_request_latency", 4)):
            buckets = [v for k, v in found.items() if k.startswith(f"spec_lib_{name}_seconds_bucket")]
            assert buckets == sorted(buckets) and buckets[-1] == count == found[f"spec_lib_{name}_seconds_count"]
        first = sum(len(r.tokens) for i, r in enumerate(rounds) if i in _firsts(rounds, 33))
        assert found["spec_lib_inter_token_latency_seconds_count"] == s.emitted - first
        assert 0 < found["spec_lib_time_to_first_token_seconds_sum"] < found["spec_lib_e2e_request_latency_seconds_sum"]


def _firsts(rounds: list[sl.Round], new: int) -> set[int]:
    """The indices of the first round of each text of `new` tokens."""
    found, left = set(), 0
    for i, r in enumerate(rounds):
        if left == 0:
            found.add(i)
            left = new
        left -= len(r.tokens)
    return found


def test_metrics_count_a_text_that_a_stop_string_cut_as_its_answer_does(pair):
    with serving(pair, slots=2) as server:
        counts = []
        for seed in range(6):
            usage = server.post(prompt=ONCE, max_tokens=60, seed=seed, stop=["a", "o"])[1]["usage"]
            counts.append([usage["completion_tokens"], *usage["completion_tokens_details"].values()])
        names = ("generation_tokens_total", "spec_decode_num_accepted_tokens_total",
                 "spec_decode_num_rejected_tokens_total")  # fmt: skip
        assert [server.counted(name) for name in names] == [sum(column) for column in zip(*counts, strict=True)]
        assert server.counted("request_success_total", finished_reason="stop") == 6


def test_temperature_1_is_the_models_own_distribution():
    """A server's own defaults (top-k 40, top-p .95, what generation_config.json says) were taken for the model's.

    Right: with only the temperature given, two tokens after a prompt are those of the target; a control that has to
    fail, at temperature .8, does.
    """
    models = tiny_gpt2(3, initializer_range=0.5, tie_word_embeddings=False), tiny_gpt2(4, initializer_range=0.5)
    pair = sl.Pair(*models, Numbers())
    pair.target.generation_config.update(top_k=3, top_p=0.5, temperature=0.2, do_sample=True)
    counts, firsts = {}, [1, 2, 3]
    with serving(pair, slots=16) as server:
        for seed in range(0, 1600, 16):
            answer = server.post(prompt=[firsts], max_tokens=2, n=16, seed=seed, temperature=1)[1]
            for choice in answer["choices"]:
                two = tuple(choice["text"].split())
                counts[two] = counts.get(two, 0) + 1
    assert sum(counts.values()) == 1600

    def exact(temperature: float) -> dict[tuple[str, ...], float]:
        with torch.no_grad():
            first = (pair.target(torch.tensor([firsts])).logits[0, -1].double() / temperature).softmax(-1)
            after = pair.target(torch.tensor([[*firsts, x] for x in range(31)])).logits[:, -1].double()
        both = first[:, None] * (after / temperature).softmax(-1)
        weights = {}
        for x in range(31):
            for y in range(31):
                shown = tuple(str(t) for t in (x, y) if t != 30)  # a special token, and the end of a text
                key = shown if x != 30 else ()
                weights[key] = weights.get(key, 0.0) + float(both[x, y])
        return weights

    right, control = goodness_of_fit(counts, exact(1.0)), goodness_of_fit(counts, exact(0.8))
    assert right.d > 20 and right.p_value > 0.001
    assert control.p_value < 1e-6


def test_all_else_is_answered_while_a_step_lasts(pair):
    """The generation ran in the event loop, and nothing else was answered meanwhile."""
    go = threading.Event()
    engine = lambda: Scripted([1, 2, 3], turn=lambda: go.wait(PATIENCE))  # noqa: E731
    with serving(pair, engine=engine) as server, server.asking(prompt="a", max_tokens=3, stream=True) as opened:
        until(lambda: server.counted("num_requests_running"), "the text is not begun")
        assert server.ask("GET", "/health")[0] == 200 and server.post(prompt="a", n=99)[0] == 400
        assert server.ask("GET", "/v1/models")[0] == server.ask("GET", "/")[0] == 200
        go.set()
        assert read_until(opened, "[DONE]")
