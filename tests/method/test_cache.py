"""The key-value cache: fed, cut back, and as quiet as promised."""

import copy
import pickle

import pytest
import torch

from spec_lib import GPT2, CachedModel, TableModel
from spec_lib.cache import as_model
from tests.helpers.loops import one_sentence
from tests.helpers.models import prompt, tiny_gpt2, tiny_of

TEXT = torch.tensor([3, 14, 15, 92, 65, 35, 89, 79, 32, 38])


@pytest.fixture(scope="module")
def model():
    return tiny_gpt2(2, vocab=97, layers=2)


@torch.no_grad()
def uncached(model, ids: torch.Tensor) -> torch.Tensor:
    return model(input_ids=ids[None], use_cache=False).logits[0]


@torch.no_grad()
def test_fed_in_pieces_equals_uncached(model):
    whole = uncached(model, TEXT)
    for cuts in ([10], [1] * 10, [6, 1, 3], [9, 1]):
        cached, parts = CachedModel(model), []
        for piece in TEXT.split(cuts):
            parts.append(cached.feed(piece))
        torch.testing.assert_close(torch.cat(parts), whole, atol=1e-5, rtol=0)
        assert cached.length == cached.fed == 10


MODELS = {"CachedModel": CachedModel, "GPT2": GPT2, "TableModel": lambda model: TableModel(torch.eye(97).roll(1, 0))}


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["copy", "deepcopy", "pickle"]
)
@pytest.mark.parametrize("kind", MODELS)
def test_a_copy_goes_on_by_itself(model, kind, copied):
    """With what was read so far; neither then sees what the other reads, be it a text or a tree."""
    one, alone = (MODELS[kind](model) for _ in range(2))
    one.feed(TEXT[:4]), alone.feed(TEXT[:4])
    other = copied(one)
    one.feed(TEXT[7:], parents=[3, 3, 4])
    torch.testing.assert_close(other.feed(TEXT[4:6]), alone.feed(TEXT[4:6]), atol=1e-5, rtol=0)
    one.keep_rows(4, [0])
    assert (one.length, other.length) == (5, 6)
    other.rollback(3), alone.rollback(4), alone.feed(TEXT[7:8])
    torch.testing.assert_close(one.feed(TEXT[5:7]), alone.feed(TEXT[5:7]), atol=1e-5, rtol=0)


@torch.no_grad()
@pytest.mark.parametrize("length", [6, 5, 4, 1, 0])
def test_rollback(model, length):
    cached = CachedModel(model)
    cached.feed(TEXT[:6])
    cached.rollback(length)
    assert cached.length == length
    assert cached.cache.get_seq_length() == length
    new = torch.tensor([7])
    logits = cached.feed(new)
    expected = uncached(model, torch.cat([TEXT[:length], new]))[-1:]
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=0)
    assert cached.length == length + 1
    assert cached.fed == 7


@torch.no_grad()
def test_the_rollback_test_has_power(model):
    # A cache that kept one token too many moves the logits by far more than the tolerance above.
    new = torch.tensor([7])
    right = uncached(model, torch.cat([TEXT[:5], new]))[-1]
    wrong = uncached(model, torch.cat([TEXT[:6], new]))[-1]
    assert (right - wrong).abs().max() > 0.05


@torch.no_grad()
@pytest.mark.parametrize("make", [lambda m: CachedModel(m), lambda m: TableModel(torch.full((97, 97), 1 / 97))])
@pytest.mark.parametrize("length", [7, 100, -1])
def test_a_length_never_reached_is_refused_and_nothing_is_lost(model, make, length):
    scored = make(model)
    scored.feed(TEXT[:6])
    with pytest.raises(ValueError, match=f"roll back to {length} .* holds 6"):
        scored.rollback(length)
    assert scored.length == 6


@torch.no_grad()
def test_rolled_back_again_and_again(model):
    cached, text = CachedModel(model), TEXT[:4]
    cached.feed(text)
    generator = torch.Generator().manual_seed(0)
    for i in range(12):
        block = torch.randint(97, (4,), generator=generator)
        cached.feed(block)
        keep = i % 5  # of the four: none, some, all
        text = torch.cat([text, block[: min(keep, 4)]])
        cached.rollback(len(text))
    logits = cached.feed(TEXT[:1])
    torch.testing.assert_close(logits, uncached(model, torch.cat([text, TEXT[:1]]))[-1:], atol=1e-5, rtol=0)


@torch.no_grad()
def test_feed_keep(model):
    whole = uncached(model, TEXT)
    for keep in (1, 2, 10):
        logits = CachedModel(model).feed(TEXT, keep)
        assert logits.shape == (keep, 97)
        torch.testing.assert_close(logits, whole[-keep:], atol=1e-5, rtol=0)


@torch.no_grad()
def test_only_the_kept_positions_are_scored(model):
    # The prompt needs its last row only: on a real vocabulary the others would be 200 MB for a long prompt.
    shapes = []
    hook = model.lm_head.register_forward_hook(lambda module, args, out: shapes.append(out.shape[1]))
    try:
        CachedModel(model).feed(TEXT, 1)
    finally:
        hook.remove()
    assert shapes == [1]


def test_what_a_cached_model_says_of_itself(model):
    cached = CachedModel(model)
    assert (cached.length, cached.fed, cached.max_length, cached.vocab) == (0, 0, 64, 97)
    assert cached.device == torch.device("cpu")


@torch.no_grad()
def test_two_caches_of_one_model_do_not_meet(model):
    a, b = CachedModel(model), CachedModel(model)
    a.feed(TEXT)
    first = b.feed(TEXT[:3])
    torch.testing.assert_close(first, uncached(model, TEXT[:3]), atol=1e-5, rtol=0)


def test_as_model_starts_empty(model):
    assert as_model(model).length == 0
    table = TableModel(torch.eye(4))
    table.feed(torch.tensor([1, 2]))
    fresh = as_model(table)
    assert fresh is not table
    assert (fresh.length, fresh.fed, table.length) == (0, 0, 2)


# --- a table of distributions -------------------------------------------------------------------------------


def test_table_model():
    rows = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.25, 0.75], [1.0, 0.0, 0.0]], dtype=torch.float64)
    before = rows.clone()
    table = TableModel(rows, max_length=9)
    ids = torch.tensor([2, 0, 1])
    logits = table.feed(ids)
    assert logits.dtype == torch.float64
    assert torch.equal(logits.exp(), rows[ids])
    assert (table.length, table.fed, table.max_length, table.vocab) == (3, 3, 9, 3)
    assert torch.equal(table.feed(ids, keep=2).exp(), rows[ids[-2:]])
    table.rollback(6)
    table.rollback(2)
    assert (table.length, table.fed) == (2, 6)
    assert torch.equal(table.feed(torch.tensor([1])).exp(), rows[1:2])
    assert torch.equal(rows, before)
    assert table.fresh().max_length == 9


# --- silence ---------------------------------------------------------------------------------------


# --- empty feeds, interrupted passes --------------------------------------------------------------------------------


@pytest.mark.reported
@torch.no_grad()
@pytest.mark.parametrize("family", ["llama", "opt", "codegen"])
def test_rolling_back_nothing_drops_nothing(family):
    """A library's crop(0) kept all in one release and dropped all in another, and a positive count meant two things.

    Right: the cache holds exactly what was asked for, twice over too, and the library is never asked for 0.  Siblings:
    rotary positions with shared keys, positions with an offset, a configuration without a padding field.
    """
    model, ids = tiny_of(family), 4 + prompt(6, 90)[0]
    for length in (6, 5, 1, 0):
        cached = CachedModel(model)
        cached.feed(ids)
        asked, crop = [], cached.cache.crop
        cached.cache.crop = lambda count, asked=asked, crop=crop: asked.append(count) or crop(count)
        cached.rollback(length)
        cached.rollback(length)
        assert asked == ([] if length == 6 else [length - 6])
        assert cached.length == cached.cache.get_seq_length() == length
        new = torch.tensor([7])
        alone = model(input_ids=torch.cat([ids[:length], new])[None], use_cache=False).logits[0, -1:]
        torch.testing.assert_close(cached.feed(new), alone, atol=2e-5, rtol=1e-4)


@pytest.mark.reported
@torch.no_grad()
def test_what_would_be_counted_wrong_is_not_fed(pair):
    """A batch, or a prompt still of shape (1, n), ran without an error and gave wrong numbers, or failed far inside.

    Right: one sentence that names the shape, nothing fed; then the same cache goes on.  Siblings: (2, n), no token at
    all ("cannot reshape tensor of 0 elements"), and more tokens than positions (an index error).
    """
    for make in (lambda: CachedModel(pair[0]), lambda: TableModel(torch.full((31, 31), 1 / 31), max_length=64)):
        scored = make()
        for wrong in (prompt(5), torch.cat([prompt(5)] * 2), prompt(5)[0, :0], torch.tensor(3)):
            with pytest.raises(ValueError) as error:
                scored.feed(wrong)
            one_sentence(error, "(n,)", str(tuple(wrong.shape)))
        scored.feed(prompt(60)[0])
        with pytest.raises(ValueError) as error:
            scored.feed(prompt(5)[0])
        one_sentence(error, "64 positions", "60 are filled", "5 more")
        assert (scored.length, scored.fed) == (60, 60)
        assert scored.feed(prompt(4)[0]).shape == (4, 31)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("where", ["transformer.h.0", "transformer.h.1", "lm_head"])
def test_an_interrupted_pass_leaves_the_cache_as_it_was(deep_pair, error, where):
    model, ids = deep_pair[0], prompt(7)[0]
    cached = CachedModel(model)
    with torch.no_grad():
        cached.feed(ids[:3])

        def interrupt(*_):
            raise error

        hook = model.get_submodule(where).register_forward_hook(interrupt)
        try:
            with pytest.raises(error):
                cached.feed(ids[3:6])
        finally:
            hook.remove()
        assert cached.length == cached.fed == 3
        assert {layer.get_seq_length() for layer in cached.cache.layers} == {3}
        expected = model(input_ids=ids[None], use_cache=False).logits[0]
        torch.testing.assert_close(cached.feed(ids[3:]), expected[3:])
        cached.rollback(2)
        torch.testing.assert_close(cached.feed(ids[2:]), expected[2:])


def test_an_interrupted_first_pass_leaves_an_empty_cache(deep_pair):
    cached, ids = CachedModel(deep_pair[0]), prompt(7)[0]
    hook = deep_pair[0].transformer.h[1].register_forward_pre_hook(lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with torch.no_grad(), pytest.raises(KeyboardInterrupt):
        cached.feed(ids)
    hook.remove()
    with torch.no_grad():
        torch.testing.assert_close(cached.feed(ids), deep_pair[0](input_ids=ids[None], use_cache=False).logits[0])
