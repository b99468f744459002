"""One seed, one text: what the random numbers depend on, and what they leave untouched."""

import pytest
import torch

from spec_lib import autoregressive, plots, speculative, verify_google
from tests.helpers.loops import GREEDY, RULES
from tests.helpers.models import is_greedy, prompt
from tests.helpers.tokenizers import Words


def test_one_seed_gives_one_text_under_both_rules(pair):
    texts = set()
    for seed in range(5):
        g, d, again = (speculative(*pair, prompt(5), 16, rule=rule, generator=seed) for rule in (*RULES, verify_google))
        assert g.tokens.tolist() == d.tokens.tolist() == again.tokens.tolist()
        assert [(r.accepted, r.origin) for r in g.rounds] == [(r.accepted, r.origin) for r in d.rounds]
        texts.add(tuple(g.tokens.tolist()))
    assert len(texts) == 5


def test_a_generator_goes_on_and_a_seed_starts_again(pair):
    generator = torch.Generator().manual_seed(3)
    first = speculative(*pair, prompt(5), 20, generator=generator).tokens.tolist()
    assert first == speculative(*pair, prompt(5), 20, generator=3).tokens.tolist()
    assert first != speculative(*pair, prompt(5), 20, generator=generator).tokens.tolist()


@pytest.mark.parametrize("generator", [0, 5, "torch"])
def test_a_seed_leaves_the_global_random_state_untouched(pair, generator):
    generator = torch.Generator().manual_seed(1) if generator == "torch" else generator
    before = torch.get_rng_state()
    speculative(*pair, prompt(5), 20, generator=generator)
    autoregressive(pair[0], prompt(5), 20, generator=generator)
    assert torch.equal(torch.get_rng_state(), before)


def test_without_a_seed_the_global_generator_decides(pair):
    texts = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        texts.append(speculative(*pair, prompt(5), 20).tokens.tolist())
    assert texts[0] == texts[1] != texts[2]


def test_greedy_needs_no_seed(pair):
    a, b = (speculative(*pair, prompt(5), 20, sampling=GREEDY).tokens.tolist() for _ in range(2))
    assert a == b


@pytest.mark.reported
def test_the_same_seed_is_another_text_than_plain_sampling(pair):
    """Equal seeds were expected to give the text of plain sampling, and the method was called broken.

    Right: the distribution is the same (held by enumeration elsewhere), the text is not: the draws serve other
    purposes.  Siblings: at temperature 0 the texts are equal; under the other rule they are too.
    """
    same = 0
    for seed in range(10):
        a = autoregressive(pair[0], prompt(4), 12, generator=seed).tokens.tolist()
        b, c = (
            speculative(*pair, prompt(4), 12, rule=r, generator=seed).tokens.tolist() for r in ("google", "deepmind")
        )
        assert b == c
        same += a == b
    assert same < 5
    assert is_greedy(pair[0], prompt(4), speculative(*pair, prompt(4), 12, sampling=GREEDY, generator=3).tokens)


@pytest.mark.parametrize("default", [torch.bfloat16, torch.float16, torch.float64])
def test_the_default_type_of_torch_changes_no_draw(pair, default):
    """Uniforms of 16 bit have 256 values below .5: most tokens of a large vocabulary could never be drawn."""
    expected = speculative(*pair, prompt(5), 40, generator=1).tokens.tolist()
    plain = autoregressive(pair[0], prompt(5), 40, generator=1).tokens.tolist()
    torch.set_default_dtype(default)
    try:
        g = speculative(*pair, prompt(5), 40, generator=1, trace=True)
        assert g.tokens.tolist() == expected
        assert autoregressive(pair[0], prompt(5), 40, generator=1).tokens.tolist() == plain
        assert all(r.uniforms.dtype == torch.float32 for r in g.rounds)
        assert len(plots.html_text(Words(), prompt(5), g)) > 100
    finally:
        torch.set_default_dtype(torch.float32)
