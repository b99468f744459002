"""What a notebook derives is what the module does."""

import json
from pathlib import Path

import pytest
import torch
from conftest import tiny_gpt2

import spec_lib as sl

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"


def derived(notebook: str, *names: str) -> dict:
    """The named functions, from the code cells that define them."""
    space: dict = {"sl": sl, "torch": torch, "benchmark": sl.benchmark}
    for cell in json.loads((NOTEBOOKS / f"{notebook}.ipynb").read_text())["cells"]:
        code = "".join(cell["source"])
        if cell["cell_type"] == "code" and any(f"def {n}(" in code or f"class {n}(" in code for n in names):
            # the definition only: what follows it in the cell needs the pair
            lines = code.split("\n")
            ends = [i for i, line in enumerate(lines) if line and not line.startswith((" ", "def ", "@")) and i > 0]
            exec("\n".join(lines[: ends[0]] if ends else lines), space)
    return space


@pytest.fixture(scope="module")
def notebook():
    return derived("01_autoregressive_sampling", "softmax", "top_k", "draw", "write_uncached", "write_cached")


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
def test_softmax(notebook, temperature):
    logits = torch.randn(31, generator=torch.Generator().manual_seed(0))
    expected = sl.probabilities(logits, sl.Sampling(temperature))
    assert torch.allclose(notebook["softmax"](logits, temperature), expected, atol=1e-6)


def test_top_k(notebook):
    p = torch.rand(31, generator=torch.Generator().manual_seed(0))
    expected = sl.probabilities((p / p.sum()).log(), sl.Sampling(top_k=4))
    assert torch.allclose(notebook["top_k"](p, 4), expected, atol=1e-6)


def test_draw(notebook):
    p = torch.tensor([0.0, 0.25, 0.0, 0.5, 0.25, 0.0])
    for u in torch.linspace(0, 0.999, 97):
        assert notebook["draw"](p, u) == int(sl.draw(p, u))


def test_both_loops(notebook):
    model = tiny_gpt2(0, layers=2)
    ids = torch.tensor([[3, 1, 4, 1, 5]])
    for sampling in (sl.Sampling(0.8, top_k=9), sl.Sampling(0)):
        slow, fed = notebook["write_uncached"](model, ids, 12, sampling, seed=4)
        fast, fed_cached = notebook["write_cached"](model, ids, 12, sampling, seed=4)
        assert slow.tolist() == fast.tolist()
        assert (fed, fed_cached) == (sum(5 + i for i in range(12)), 5 + 11)
    assert fast.tolist() == sl.autoregressive(model, ids, 12, sl.Sampling(0)).ids.tolist()


# --- notebooks 03 to 06 -----------------------------------------------------------------------------------------


def random_laws(rows: int, vocab: int, generator: torch.Generator) -> torch.Tensor:
    """(rows, vocab): zeros and one-hot rows among them."""
    laws = torch.rand(rows, vocab, dtype=torch.float64, generator=generator) ** 3
    laws = laws * (torch.rand(rows, vocab, generator=generator) < 0.8)
    laws[torch.rand(rows, generator=generator) < 0.1] = 0
    laws[:, 0] += (laws.sum(-1) == 0).double()
    return laws / laws.sum(-1, keepdim=True)


def random_rounds(count: int):
    """(p, q, drafted, uniforms) of rounds whose draft is often right; some uniforms are exactly 0."""
    g = torch.Generator().manual_seed(0)
    for i in range(count):
        k, vocab = 1 + i % 5, 2 + i % 6
        p, q = random_laws(k + 1, vocab, g), random_laws(k, vocab, g)
        q = torch.where(torch.rand(k, 1, generator=g) < 0.5, p[:k], q)
        drafted = torch.cat([sl.draw(row, torch.rand((), generator=g)) for row in q])
        uniforms = torch.rand(k, generator=g) * (torch.rand(k, generator=g) < 0.9)
        yield p, q, drafted, uniforms


def test_one_guess_and_one_correction_of_03():
    functions = derived("03_rejection_sampling", "acceptance", "one_token", "exact_law")
    for p, q, drafted, uniforms in random_rounds(300):
        x, u, v = int(drafted[0]), float(uniforms[0]), 0.37
        n, law = sl.verify_google(p[:1].repeat(2, 1), q[:1], drafted[:1], uniforms[:1])
        expected = x if int(n) else int(sl.draw(law, torch.tensor(v)))
        assert functions["one_token"](p[0], q[0], x, u, v) == expected
        law = functions["exact_law"](q[0], functions["acceptance"](p[0], q[0]), sl.residual(p[0], q[0]))
        assert torch.allclose(law, p[0], atol=1e-12)


def test_the_residual_of_03_is_the_shown_solution():
    from tests.helpers.answers import solution

    mine, g = solution("residual"), torch.Generator().manual_seed(1)
    for _ in range(100):
        p, q = random_laws(3, 5, g), random_laws(3, 5, g)
        assert torch.equal(mine(p, q), sl.residual(p, q)) and torch.equal(mine(p, p), p)


@pytest.mark.parametrize(
    ("notebook", "name"),
    [
        ("04_deepmind_speculative_sampling", "verify_deepmind"),
        ("05_google_speculative_decoding", "token_by_token"),
        ("05_google_speculative_decoding", "ratios_first"),
        ("05_google_speculative_decoding", "all_at_once"),
    ],
)
def test_the_rules_of_04_and_05(notebook, name):
    rule = derived(notebook, name)[name]
    for inputs in random_rounds(300):
        for theirs in (sl.verify_deepmind, sl.verify_google):
            (n, law), (m, other) = rule(*inputs), theirs(*inputs)
            assert int(n) == int(m) and torch.equal(law, other)


SETTINGS = (sl.Sampling(), sl.Sampling(0.8, top_k=9), sl.Sampling(0))


@pytest.mark.parametrize("sampling", SETTINGS, ids=str)
def test_the_loop_without_caches_of_04(sampling):
    names = ("verify_deepmind", "speculative_round", "write_speculatively", "scorer")
    functions = derived("04_deepmind_speculative_sampling", *names)
    target, draft = tiny_gpt2(0, layers=2), tiny_gpt2(1, layers=1)
    ids = torch.tensor([[3, 1, 4, 1, 5]])
    for new, gamma in ((0, 3), (1, 3), (2, 1), (5, 5), (24, 3)):
        models = (functions["scorer"](m, sampling) for m in (target, draft))
        text, accepted = functions["write_speculatively"](*models, ids[0], new, gamma, sl.Source(4))
        g = sl.speculative(target, draft, ids, new, gamma=gamma, rule="deepmind", sampling=sampling, generator=4)
        assert text.tolist() == g.ids[0].tolist() and accepted == [r.accepted for r in g.rounds]


@pytest.mark.parametrize("sampling", SETTINGS, ids=str)
def test_the_loop_with_caches_of_06(sampling):
    functions = derived("06_kv_cache_and_rollback", "cached_round", "write_speculatively", "rollback")
    target, draft = tiny_gpt2(0, layers=2), tiny_gpt2(1, layers=1)
    ids = torch.tensor([[3, 1, 4, 1, 5]])
    for new, gamma in ((1, 3), (2, 1), (5, 5), (24, 3)):
        caches = sl.CachedModel(target), sl.CachedModel(draft)
        text = functions["write_speculatively"](*caches, ids, new, gamma, sampling, 4)
        g = sl.speculative(target, draft, ids, new, gamma=gamma, sampling=sampling, generator=4)
        assert text.tolist() == g.ids[0].tolist()


def test_the_rollback_of_06():
    rollback = derived("06_kv_cache_and_rollback", "rollback")["rollback"]
    model, ids = tiny_gpt2(0, layers=2), torch.tensor([3, 1, 4, 1, 5, 9])
    for length in (6, 5, 1, 0):
        laws = []
        for cut in (rollback, sl.CachedModel.rollback):
            cached = sl.CachedModel(model)
            with torch.no_grad():
                cached.feed(ids)
                cut(cached, length)
                laws.append(cached.feed(ids[length:] if length < 6 else ids[:1]))
        assert torch.equal(*laws)
