"""Logits to probabilities, probabilities to a token, and where the randomness comes from."""

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from spec_lib import Randomness, Sampling, draw, probabilities
from spec_lib.numbers import as_int
from spec_lib.sampling import as_randomness

LOGITS = torch.tensor([2.0, 1.0, 0.0])
LARGEST = 1 - 2.0**-24  # the largest float32 that torch.rand can return


def distribution_of(*weights: float, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Logits whose softmax is these weights."""
    return torch.tensor(weights, dtype=dtype).log()


def random_logits(rows: int, vocab: int, seed: int = 0) -> torch.Tensor:
    return 3 * torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed))


# --- the options -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("temperature", v) for v in (-1, -1e-9, math.nan, math.inf, -math.inf, "inf", "1", None, True, False, [1.0])],
        *[("top_k", v) for v in (-1, 1.5, 2.0, "3", True, False, math.nan)],
        *[("top_p", v) for v in (0, 0.0, -0.1, 1.0001, 2, math.nan, math.inf, "0.9", True, False)],
    ],
)
def test_bad_options_are_refused_in_one_sentence_that_names_the_value(name, value):
    with pytest.raises(ValueError) as error:
        Sampling(**{name: value})
    text = str(error.value)
    assert name in text
    assert repr(value) in text
    assert "\n" not in text
    assert len(text) < 200


def test_good_options():
    for options in (
        {},
        {"temperature": 0},
        {"temperature": 0.0},
        {"temperature": 1e-300},
        {"temperature": 100},
        {"top_k": None},
        {"top_k": 0},
        {"top_k": 1},
        {"top_k": 10**6},
        {"top_p": None},
        {"top_p": 1},
        {"top_p": 1.0},
        {"top_p": 1e-9},
        {"top_p": 1e-300},
    ):
        assert Sampling(**options).probabilities(LOGITS).sum().item() == pytest.approx(1, abs=1e-6)


def test_options_cannot_be_changed_behind_the_check():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Sampling().temperature = -1


# --- probabilities ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"temperature": 0.5}, [0.867, 0.117, 0.016]),
        ({"temperature": 1.0}, [0.665, 0.245, 0.090]),
        ({"temperature": 2.0}, [0.506, 0.307, 0.186]),
        ({"temperature": 0}, [1, 0, 0]),
        ({"top_k": 2}, [0.731, 0.269, 0]),
        ({"top_k": 1}, [1, 0, 0]),
        ({"top_p": 0.7}, [0.731, 0.269, 0]),
        ({"top_p": 0.6}, [1, 0, 0]),
        ({"temperature": 2.0, "top_k": 2}, [0.622, 0.378, 0]),
    ],
)
def test_worked_values(options, expected):
    assert probabilities(LOGITS, Sampling(**options)).tolist() == pytest.approx(expected, abs=5.1e-4)


def test_temperature_comes_before_top_p():
    # At temperature 2 the distribution is [.506, .307, .186]: .6 needs two tokens.  Top-p first would have kept one.
    p = probabilities(LOGITS, Sampling(temperature=2.0, top_p=0.6))
    assert (p > 0).tolist() == [True, True, False]


def test_top_k_comes_before_top_p():
    # Among the three likeliest of [.3, .25, .2, .15, .1] the first two hold .733: top-p .7 keeps two.
    # Top-p first would have kept three ([.3, .25, .2] hold .75), and top-k 3 all of those.
    p = probabilities(distribution_of(0.3, 0.25, 0.2, 0.15, 0.1), Sampling(top_k=3, top_p=0.7))
    assert p.tolist() == pytest.approx([0.3 / 0.55, 0.25 / 0.55, 0, 0, 0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_top_k_keeps_exactly_k_when_tokens_tie(dtype, k):
    p = probabilities(torch.tensor([1.0, 2.0, 2.0, 2.0, 2.0, 1.0], dtype=dtype), Sampling(top_k=k))
    assert (p > 0).sum().item() == k
    assert p.sum().item() == pytest.approx(1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_top_k_keeps_exactly_k_among_half_precision_logits_far_from_zero(dtype):
    # GPT-2's logits lie near -65, where 16 bit has steps of .03 (float16) and .5 (bfloat16): ties everywhere.
    logits = (-65 + random_logits(20, 500)).to(dtype)
    assert max(len(row.unique()) for row in logits) < 500
    p = probabilities(logits, Sampling(top_k=40))
    assert (p > 0).sum(-1).eq(40).all()


@pytest.mark.parametrize(("top_p", "kept"), [(0.25, 1), (0.26, 2), (0.5, 2), (0.75, 3), (0.76, 4), (1.0, 4)])
def test_top_p_stops_where_the_mass_is_exactly_reached(top_p, kept):
    p = probabilities(torch.zeros(4), Sampling(top_p=top_p))  # four times .25: no rounding anywhere
    assert (p > 0).sum().item() == kept
    assert p[p > 0].tolist() == pytest.approx([1 / kept] * kept)


@pytest.mark.reported
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("weights", "options", "kept"),
    [
        ((2, 1, 1, 4), {"top_p": 0.75}, [0, 3]),
        ((4, 2, 1, 1), {"top_p": 0.875}, [0, 1, 2]),
        ((4, 2, 2, 0), {"top_p": 0.75}, [0, 1]),
        ((4, 2, 2, 0), {"top_k": 2}, [0, 1]),
        ((7, 1), {"top_p": 0.5}, [0]),
        ((2, 6), {"top_k": 2}, [0, 1]),
    ],
    ids=str,
)
def test_neither_one_token_too_many_nor_one_too_few(weights, options, kept, dtype):
    """A token too many where the mass is reached exactly (huggingface/transformers issue 18976), all that tie for the
    last place (flashinfer-ai/flashinfer pull request 3774), none where the first has more than top-p (skyzh/tiny-llm
    issue 32), an error where top-k is the whole vocabulary (ml-explore/mlx-lm pull request 1377).

    Right: by rank, the earlier of equals first, until the mass is reached.  In eighths, which no sum rounds: in tenths
    what was reached exactly may be missed by the last bit.
    """
    logits = torch.tensor(weights, dtype=dtype).log2() * math.log(2)
    p = probabilities(logits, Sampling(**options))
    assert p.nonzero().flatten().tolist() == kept
    assert p.sum().item() == pytest.approx(1)


def test_top_p_keeps_the_likeliest_token_however_small_it_is():
    assert probabilities(LOGITS, Sampling(top_p=1e-12)).tolist() == [1, 0, 0]


def test_top_p_of_one_leaves_the_distribution_untouched():
    logits = random_logits(3, 1000)
    assert torch.equal(probabilities(logits, Sampling(top_p=1.0)), logits.softmax(-1))


def test_top_k_above_the_vocabulary_leaves_the_distribution_untouched():
    assert torch.equal(probabilities(LOGITS, Sampling(top_k=99)), LOGITS.softmax(-1))


@pytest.mark.parametrize("temperature", [0.3, 0.7, 1.0, 1.7])
@pytest.mark.parametrize("top_k", [None, 1, 7, 60])
@pytest.mark.parametrize("top_p", [None, 0.1, 0.6, 0.95])
def test_equal_to_the_warpers_of_transformers(temperature, top_k, top_p):
    from transformers.generation.logits_process import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    logits = random_logits(16, 97, seed=top_k or 0)
    theirs = logits
    if temperature != 1:
        theirs = TemperatureLogitsWarper(temperature)(None, theirs)
    if top_k is not None:
        theirs = TopKLogitsWarper(top_k)(None, theirs)
    if top_p is not None:
        theirs = TopPLogitsWarper(top_p)(None, theirs)
    theirs, ours = theirs.softmax(-1), probabilities(logits, Sampling(temperature, top_k, top_p))
    assert torch.equal(ours > 0, theirs > 0)
    torch.testing.assert_close(ours, theirs, atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_temperature_zero_is_one_token_also_on_a_tie(dtype):
    logits = torch.tensor([[1.0, 3.0, 3.0, 0.0], [5.0, 5.0, 5.0, 5.0], [-9.0, -8.0, -7.0, -6.0]], dtype=dtype)
    p = probabilities(logits, Sampling(temperature=0))
    assert sorted(p.unique().tolist()) == [0, 1]
    assert p.sum(-1).tolist() == [1, 1, 1]
    assert p.argmax(-1).tolist() == logits.argmax(-1).tolist()


@pytest.mark.parametrize("options", [{"top_k": 1}, {"top_k": 5}, {"top_p": 0.1}, {"top_k": 3, "top_p": 0.9}])
def test_temperature_zero_ignores_the_other_knobs(options):
    logits = random_logits(5, 50)
    greedy = probabilities(logits, Sampling(temperature=0))
    assert torch.equal(probabilities(logits, Sampling(temperature=0.0, **options)), greedy)


@pytest.mark.parametrize("temperature", [1e-3, 1e-10, 1e-45, 1e-300, 5e-324])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("options", [{}, {"top_k": 3}, {"top_p": 0.9}])
def test_a_tiny_temperature_is_greedy_without_nan(temperature, dtype, options):
    logits = torch.tensor([[-65.0, -60.0, -70.0, -61.0], [300.0, -300.0, 0.0, 290.0]], dtype=dtype)
    p = probabilities(logits, Sampling(temperature, **options))
    assert p.tolist() == [[0, 1, 0, 0], [1, 0, 0, 0]]


@pytest.mark.parametrize("temperature", [1e-300, 1e-3])
def test_a_tiny_temperature_shares_an_exact_tie(temperature):
    p = probabilities(torch.tensor([4.0, 4.0, 1.0]), Sampling(temperature))
    assert p.tolist() == [0.5, 0.5, 0]


@pytest.mark.parametrize("temperature", [100, 1e30, 1e300])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_huge_temperature_is_uniform_over_what_is_possible(temperature, dtype):
    p = probabilities(torch.tensor([2.0, 1.0, 0.0, -math.inf], dtype=dtype), Sampling(temperature))
    assert p.tolist() == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0], abs=0.01)


@pytest.mark.parametrize("temperature", [0, 1e-300, 0.5, 1, 2])
def test_impossible_tokens_stay_impossible(temperature):
    p = probabilities(torch.tensor([0.0, -math.inf, 1.0, -math.inf]), Sampling(temperature))
    assert p[[1, 3]].tolist() == [0, 0]
    assert p.sum().item() == pytest.approx(1)


@pytest.mark.parametrize(
    "options", [{}, {"temperature": 0}, {"temperature": 0.7}, {"top_k": 2}, {"top_p": 0.8}, {"temperature": 3}]
)
def test_dtypes_shapes_and_inputs(options):
    for dtype, out in (
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ):
        for shape in ((7,), (3, 7), (2, 3, 7)):
            logits = random_logits(6, 7)[: math.prod(shape[:-1])].reshape(shape).to(dtype)
            before = logits.clone()
            p = probabilities(logits, Sampling(**options))
            assert p.dtype == out
            assert p.shape == shape
            assert torch.equal(logits, before)
            assert p.data_ptr() != logits.data_ptr()
            assert (p >= 0).all()
            assert p.sum(-1).sub(1).abs().max() < 1e-6


def test_half_precision_is_widened_before_the_softmax():
    logits = (-65 + random_logits(4, 300)).half()
    assert torch.equal(probabilities(logits, Sampling()), logits.float().softmax(-1))


@pytest.mark.parametrize("options", [{}, {"temperature": 0}, {"temperature": 1e-9}, {"top_k": 2}, {"top_p": 0.5}])
@pytest.mark.parametrize("position", [0, 2])
def test_nan_is_passed_on_and_never_becomes_a_distribution(options, position):
    logits = torch.tensor([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]])
    logits[0, position] = math.nan
    p = probabilities(logits, Sampling(**options))
    assert p[0].sum().isnan()
    assert p[1].sum().item() == pytest.approx(1)  # the other row is not touched


# --- draw ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "eighths", [[8], [1, 7], [0, 8], [8, 0], [2, 0, 1, 5], [0, 0, 3, 0, 4, 1, 0], [1] * 8, [0, 1, 1, 6, 0, 0]]
)
def test_draw_is_the_inverse_cdf_exactly(eighths, dtype):
    # u runs over k/64 and p over eighths: all exact, so that each token must come exactly 8 times its eighths.
    p = torch.tensor(eighths, dtype=dtype) / 8
    drawn = [draw(p, torch.tensor(k / 64)) for k in range(64)]
    assert all(x.shape == (1,) and x.dtype == torch.int64 for x in drawn)
    tokens = [int(x) for x in drawn]
    assert [tokens.count(x) for x in range(len(p))] == [8 * e for e in eighths]
    assert tokens == sorted(tokens)


def test_a_uniform_on_the_boundary_takes_the_next_token():
    p = torch.tensor([0.25, 0.5, 0.25])
    assert [int(draw(p, torch.tensor(u))) for u in (0.0, 0.25, 0.75)] == [0, 1, 2]
    below = torch.nextafter(torch.tensor(0.25), torch.tensor(0.0))
    assert int(draw(p, below)) == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_uniform_of_zero_skips_leading_tokens_without_probability(dtype):
    assert int(draw(torch.tensor([0, 0, 0.25, 0.75], dtype=dtype), torch.tensor(0.0))) == 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("total", [1.0, 1 - 2**-20, 1 + 2**-20, 1 - 2**-24, 1 + 2**-23, 0.5, 0.7])
def test_the_largest_uniform_never_draws_a_trailing_token_without_probability(total, dtype):
    p = torch.tensor([0.5, 0.25, 0.25, 0.0, 0.0], dtype=dtype) * total
    assert int(draw(p, torch.tensor(LARGEST))) == 2


def test_a_uniform_of_another_dtype_never_rounds_up_to_one():
    p = torch.tensor([0.5, 0.5, 0.0])
    for u in (torch.tensor(1 - 2**-53, dtype=torch.float64), torch.tensor(1 - 2**-11, dtype=torch.float16)):
        assert draw(p, u).tolist() == draw(p.double(), u).tolist() == [1]
        assert draw(p.half(), u).tolist() == [1]


def test_torch_rand_stays_at_or_below_the_largest_uniform():
    assert torch.rand(200_000, generator=torch.Generator().manual_seed(0)).max().item() <= LARGEST
    assert torch.tensor(LARGEST).item() == LARGEST < 1


def test_tokens_without_probability_are_never_drawn():
    generator = torch.Generator().manual_seed(3)
    for options in ({"top_k": 5}, {"top_p": 0.5}, {"temperature": 0}, {"top_k": 50, "top_p": 0.9}):
        p = probabilities(random_logits(1, 2000, seed=5)[0], Sampling(**options))
        edges = p.cumsum(0)[p > 0].float()  # the hardest uniforms lie at the steps themselves
        us = torch.cat([edges, edges - 6e-8, torch.rand(500, generator=generator), torch.tensor([0.0, LARGEST])])
        for u in us.clamp(0, LARGEST):
            assert p[draw(p, u)] > 0


@pytest.mark.parametrize(
    ("p", "sums", "u", "token"),
    [
        ([0.5, 0.0, 0.5], [0.5, 0.5 + 2**-23, 1.0], 0.5, 2),
        ([0.0, 0.5, 0.5], [2**-40, 0.5, 1.0], 0.0, 1),
        ([0.25, 0.75, 0.0], [0.25, 1.0, 1.0 + 2**-22], LARGEST, 1),
        ([0.25, 0.5, 0.25], [0.25, 0.75 + 2**-23, 0.75], 0.8, 1),  # not even in order: some token, never an error
    ],
)
def test_sums_made_in_parallel_never_draw_a_token_without_probability(p, sums, u, token, monkeypatch):
    """A GPU's cumulative sum may be off by a rounding where p is 0; here such sums are put in its stead."""
    monkeypatch.setattr(torch.Tensor, "is_cpu", property(lambda self: False), raising=False)
    monkeypatch.setattr(torch.Tensor, "cumsum", lambda self, dim: torch.tensor(sums))
    assert int(draw(torch.tensor(p), torch.tensor(u))) == token


def test_a_cpu_and_a_gpu_take_the_same_token(monkeypatch):
    logits = [random_logits(1, 500, seed)[0] for seed in range(20)]
    distributions = [probabilities(x, Sampling(top_k=k)) for x in logits for k in (None, 7)]
    us = [torch.tensor(u) for u in (0.0, 0.3, 0.999, LARGEST)]
    here = [int(draw(p, u)) for p in distributions for u in us]
    monkeypatch.setattr(torch.Tensor, "is_cpu", property(lambda self: False), raising=False)
    assert [int(draw(p, u)) for p in distributions for u in us] == here


def test_draws_agree_with_the_distribution():
    p = torch.tensor([0.02, 0.5, 0.0, 0.18, 0.3])
    source, n = Randomness(11), 20_000
    u = torch.cat([source.uniforms(100, 0) for _ in range(n // 100)])
    counts = torch.bincount(torch.cat([draw(p, x) for x in u]), minlength=5)
    assert counts[2] == 0
    sigma = (n * p * (1 - p)).sqrt()
    assert ((counts - n * p).abs() <= 5 * sigma).all()  # a right sampler fails this once in a million


@pytest.mark.reported
def test_millions_of_categories_keep_their_share():
    """Sums in the draws' own precision stop growing or run ahead where there are many categories, and there was a limit
    of 2^24 (pytorch/pytorch issues 43115 and 2576).

    Right: the halves of 2^24 + 1000 tokens, one twice as likely, have two thirds and one third; uniforms on either side
    of the border find the halves.
    """
    for size in (2**18 + 1, 2**24 + 1000):
        p = torch.ones(size)
        p[: size // 2] = 2
        p /= p.double().sum().float()
        border = 2 * (size // 2) / (size + size // 2)
        for u, upper in ((border - 1e-5, False), (border + 1e-5, True), (LARGEST, True), (0.0, False)):
            assert bool(draw(p, torch.tensor(u, dtype=torch.float32)) >= size // 2) is upper, (size, u)


def test_draw_leaves_its_inputs_alone():
    p, u = torch.tensor([0.25, 0.75]), torch.tensor(0.9)
    draw(p, u)
    assert p.tolist() == [0.25, 0.75]
    assert u.item() == pytest.approx(0.9)


def test_draw_from_nan_gives_a_token_of_the_vocabulary():
    # The loop finds and names the NaN after the round; until then nothing may index out of range.
    p = torch.tensor([0.2, math.nan, 0.3])
    assert all(0 <= int(draw(p, torch.tensor(u))) < 3 for u in (0.0, 0.5, LARGEST))


# --- where the randomness comes from ---------------------------------------------------------------


def numbers(source: Randomness, pattern=(1, 4, 4, 1, 300, 7)) -> list[float]:
    return torch.cat([source.uniforms(k, 0) for k in pattern]).tolist()


def test_a_seed_gives_the_same_stream_each_time():
    assert numbers(Randomness(5)) == numbers(Randomness(5))
    assert numbers(Randomness(5)) != numbers(Randomness(6))
    assert numbers(Randomness(5)) == numbers(Randomness(torch.Generator().manual_seed(5)))


def test_seed_zero_is_a_seed():
    torch.manual_seed(1)
    first = numbers(Randomness(0))
    torch.manual_seed(2)
    assert numbers(Randomness(0)) == first
    assert first == numbers(Randomness(torch.Generator().manual_seed(0)))


@pytest.mark.parametrize("generator", [0, 7, torch.Generator().manual_seed(1)])
def test_a_seed_leaves_the_global_random_state_untouched(generator):
    torch.manual_seed(123)
    before = torch.get_rng_state()
    source = Randomness(generator)
    numbers(source)
    source.draw(torch.tensor([0.5, 0.5]), 0)
    assert torch.equal(torch.get_rng_state(), before)


def test_without_a_seed_the_global_generator_decides():
    torch.manual_seed(4)
    first = numbers(Randomness(None))
    assert numbers(Randomness(None)) != first
    torch.manual_seed(4)
    assert numbers(Randomness()) == first


def test_uniforms_are_not_handed_out_twice_and_lie_in_range():
    source = Randomness(0)
    parts = [source.uniforms(k, 0) for k in [3, 0, 1, 5] * 60]
    assert [len(p) for p in parts] == [3, 0, 1, 5] * 60
    assert all(p.dtype == torch.float32 for p in parts)
    values = torch.cat(parts)
    assert len(values.unique()) > len(values) - 3  # 24 bits: a stray repeat in 540 draws is next to impossible
    assert (values >= 0).all()
    assert (values < 1).all()


def test_draws_and_uniforms_share_one_stream():
    p = torch.full((10,), 0.1)
    a, b = Randomness(9), Randomness(9)
    u = a.uniforms(6, 0)
    expected = [int(draw(p, x)) for x in u]
    assert [int(b.draw(p, i)) for i in range(6)] == expected


@pytest.mark.parametrize("bad", [True, "7", 1.5, object()])
def test_a_bad_generator_is_refused(bad):
    with pytest.raises(ValueError, match="generator must be"):
        Randomness(bad)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_draws_from_16_bit_distributions_are_as_fine_as_from_others(dtype):
    """The sum stood still in 16 bit, and u rounded up to 1: tokens of probability 0 were drawn, others never."""
    assert int(draw(torch.tensor([1.0, 0.0], dtype=dtype), torch.tensor(0.99999))) == 0
    flat = torch.full((1000,), 1 / 1000, dtype=dtype)
    assert {int(draw(flat, torch.tensor((i + 0.5) / 1000))) for i in range(1000)} == set(range(1000))


def test_as_randomness_passes_a_script_through():
    class Script:
        def draw(self, p, position):
            return p.argmax().view(1)

        def uniforms(self, k, position):
            return torch.zeros(k)

    script = Script()
    assert as_randomness(script, "cpu") is script
    assert isinstance(as_randomness(3, "cpu"), Randomness)
    assert isinstance(as_randomness(None, torch.device("cpu")), Randomness)


@pytest.mark.parametrize("top_p", [5e-324, 1e-300, 1e-30, 1e-9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_tiny_top_p_keeps_the_likeliest_token(top_p, dtype):
    p = probabilities(random_logits(6, 40).to(dtype), Sampling(top_p=top_p))
    assert torch.equal(p, probabilities(random_logits(6, 40).to(dtype), Sampling(0)))


def test_top_p_adds_up_the_likelier_tokens_and_subtracts_nothing():
    """(a + b) - b is not a in float32: a token at the border would be kept or lost by rounding."""
    logits = random_logits(400, 300, seed=3)
    values = logits.softmax(-1).sort(dim=-1, descending=True).values
    for top_p in (0.25, 0.5, 0.9):
        kept = (probabilities(logits, Sampling(top_p=top_p)) > 0).sum(-1)
        reached = (values.cumsum(-1) < top_p).sum(-1) + 1  # the token that reaches it stays
        assert torch.equal(kept, reached)
    border = torch.tensor([0.5, 0.25, 0.25]).log()
    assert (probabilities(border, Sampling(top_p=0.5)) > 0).tolist() == [True, False, False]


def test_whole_takes_whole_numbers_only():
    import numpy

    for value in (3, numpy.int32(3), numpy.uint8(3), torch.tensor(3), torch.tensor([3]), numpy.array(3)):
        assert as_int(value) == 3
    for value in (3.0, "3", None, True, torch.tensor(True), torch.tensor(3.0), torch.tensor([1, 2]), [3]):
        assert as_int(value) is None
    assert Sampling(temperature=numpy.float32(0.5), top_k=numpy.int64(2), top_p=numpy.float64(0.5))


def test_settings_of_any_real_type():
    x = torch.tensor([1.0, 2.0, 4.0])
    for half in (Fraction(1, 2), np.float32(0.5), np.float64(0.5)):
        assert torch.equal(probabilities(x, Sampling(half, top_p=half)), probabilities(x, Sampling(0.5, top_p=0.5)))
