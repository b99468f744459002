"""The loops and the commands on a simulated accelerator: no tensor is on the wrong device, and each wait is counted.

The device is `tests.helpers.sim`.  Its own tests come first: what it lets pass proves nothing about CUDA.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

import spec_lib as sl
from spec_lib import __main__ as cli
from spec_lib import devices, drafters
from spec_lib.plots.distributions import overlap_parts
from spec_lib.verification import RULES
from tests.helpers import capture, sim

pytestmark = pytest.mark.skipif(not sim.SUPPORTED, reason="this PyTorch cannot register a device written in Python")
MIXED = "Expected all tensors to be on the same device"
PROMPT = "Once upon a time"


@pytest.fixture(autouse=True)
def device():
    with sim.connected() as connected:
        yield connected


@pytest.fixture(scope="module")
def pair():
    """The embedded pair on the CPU."""
    return sl.load_pair("tiny")


@pytest.fixture(scope="module")
def sim_pair():
    """The same on the device."""
    with sim.connected():
        return sl.load_pair("tiny", device="sim")


def there(*values, **options) -> torch.Tensor:
    return torch.tensor(*values, **options, device="sim")


# --- the device --------------------------------------------------------------------------------------------------

X, N, C = "there([0., 1., 2., 3.])", "there(2)", "torch.arange(4.)"
WAITS = {  # what is evaluated: what the host waited for; x and n are on the device, c is on the CPU
    "n.item()": ["item"],
    "x.tolist()": ["tolist"],
    "int(n)": ["item"],
    "bool(x[0] > 1)": ["item"],
    "float(x[0])": ["item"],
    "1 if n > 1 else 0": ["item"],
    "[3, 4, 5][n]": ["item"],
    "range(n)": ["item"],
    "x[n]": ["item"],
    "c[n]": ["item"],
    "f'{n}'": ["item"],
    "f'{x[1]:.2f}'": ["item"],
    "str(x)": ["print"],
    "x.cpu()": ["to host"],
    "x.to('cpu')": ["to host"],
    "c.clone().copy_(x)": ["to host"],
    "torch.nonzero(x)": ["nonzero"],
    "torch.where(x > 1)": ["nonzero"],
    "torch.masked_select(x, x > 1)": ["masked_select"],
    "x[x > 1]": ["mask"],
    "torch.unique(x)": ["_unique2"],
    "torch.repeat_interleave(x, x.long())": ["repeat_interleave"],
    "torch.bincount(x.long())": ["bincount"],
    "torch.equal(x, x + 1)": ["equal"],
    "torch.allclose(x, x + 1)": ["allclose"],
    "max(x)": ["item"] * 3,
    "torch.tensor([n, n])": ["item"] * 2,
    "torch.nn.functional.one_hot(n.view(1))": ["item"],
    "torch.accelerator.synchronize()": ["synchronize"],
    "c.to('sim')": ["to device"],
    "torch.tensor([1.0], device='sim')": ["to device"],
    "torch.as_tensor(3, device='sim')": ["to device"],
    "x.new_tensor([1.0])": ["to device"],
    "x[[0, 1]]": ["to device"],
    "x[torch.tensor([0, 1])]": ["to device"],
    # and nothing here:
    "x.to('cpu', non_blocking=True)": [],
    "c.to('sim', non_blocking=True)": [],
    "x.to(torch.float64).softmax(-1).cumsum(-1).argmax(-1, keepdim=True)": [],
    "x[1:] + x[None, :3] * 2.5 + len(x)": [],
    "x.index_select(0, n.view(1))": [],
    "x[n.view(1)]": [],
    "x.clone().masked_fill_(x > 1, 0)": [],
    "torch.repeat_interleave(x, x.long(), output_size=6)": [],
    "torch.nn.functional.one_hot(n.view(1), 4)": [],
    "torch.full((1,), 3, device='sim')": [],
    "torch.tensor([], device='sim')": [],
    "(x.shape, x.dtype, x.device, x.is_cpu, len(x))": [],
}


@pytest.mark.parametrize("expression", WAITS)
def test_each_wait_is_counted_and_nothing_else(expression):
    names = {"x": there([0.0, 1.0, 2.0, 3.0]), "n": there(2), "c": torch.arange(4.0), "torch": torch}
    with sim.counting() as waits:
        eval(expression, names)
    assert waits == WAITS[expression]


@pytest.mark.parametrize("read", ["x.tolist()", "x.cpu().tolist()", "[float(v) for v in x]", "x.to('cpu').numpy()"])
def test_the_numbers_come_back_as_they_went(read):
    assert list(eval(read, {"x": torch.tensor([0.5, -1.0]).to("sim")})) == [0.5, -1.0]


FACTORIES = ["zeros(3)", "ones(3)", "empty(3)", "full((2,), 3.5)", "full((), 3)", "arange(3)", "linspace(0, 1, 3)"]
FACTORIES += ["eye(2)", "rand(3)", "randn(3)", "randint(5, (3,))", "randperm(4)", "tensor([1, 2])", "tensor(1.5)"]
FACTORIES += ["as_tensor([1])", "as_tensor(2)", "asarray(2)", "zeros_like(c)", "full_like(c, 2)", "rand_like(c)"]


@pytest.mark.parametrize("call", FACTORIES)
def test_factories_make_their_tensors_on_the_device(call):
    names = {"c": torch.zeros(2), "torch": torch}
    made = eval(f"torch.{call[:-1]}, device='sim')", names)
    here = eval(f"torch.{call}", names)
    assert type(made) is sim.SimTensor and made.device == torch.device("sim:0")
    assert (made.shape, made.dtype, made.stride()) == (here.shape, here.dtype, here.stride())


@pytest.mark.parametrize("call", ["x.new_zeros(2)", "x.new_tensor([1.0])", "torch.zeros_like(x)", "x + 1", "x[1:]"])
def test_what_is_made_of_a_tensor_on_the_device_is_there_too(call):
    assert eval(call, {"x": there([1.0, 2.0]), "torch": torch}).device.type == "sim"


REFUSED = [
    "x + c",
    "c + x",
    "c * x[0]",
    "x == c",
    "torch.cat([x, c])",
    "torch.stack([x, c])",
    "x @ c",
    "x.gather(0, torch.tensor([1]))",
    "x.index_select(0, torch.tensor([1]))",
    "torch.searchsorted(x, c[1])",
    "torch.where(c > 1, x, x)",
    "torch.where(x > 1, x, c)",
    "torch.minimum(x, c)",
    "torch.equal(x, c)",
    "torch.mul(x, x, out=c.clone())",
    "x.add_(c)",
    "c.clone().add_(x)",
    "c[0].clone().add_(x[0])",
    "x.clone().masked_fill_(c > 1, 0.0)",
    "torch.nn.functional.embedding(torch.tensor([1]), x[:, None])",
    "torch.addcmul(x, c[1], c[2])",
    "x.scatter(0, n.view(1), c[:1])",
]


@pytest.mark.parametrize("expression", REFUSED)
def test_cpu_tensors_are_refused(expression):
    names = {"x": there([0.0, 1.0, 2.0, 3.0]), "n": there(2), "c": torch.arange(4.0), "torch": torch}
    with pytest.raises(RuntimeError, match=MIXED):
        eval(expression, names)


ALLOWED = {  # a number on the CPU, or an index
    "x + c[1]": [1.0, 2.0, 3.0, 4.0],
    "c[2] * x": [0.0, 2.0, 4.0, 6.0],
    "x > c[1]": [False, False, True, True],
    "torch.where(x > 1, x, c[1])": [1.0, 1.0, 2.0, 3.0],
    "torch.where(x > 1, c[2], c[1])": [1.0, 1.0, 2.0, 2.0],
    "x.masked_fill(x > 1, c[1])": [0.0, 1.0, 1.0, 1.0],
    "x.clone().fill_(c[1])": [1.0, 1.0, 1.0, 1.0],
    "x.clone().copy_(c + 1)": [1.0, 2.0, 3.0, 4.0],
    "x[torch.tensor([2, 0])]": [2.0, 0.0],
    "x[c > 1]": [2.0, 3.0],
    "x.index_put((torch.tensor([0]),), c[3])": [3.0, 1.0, 2.0, 3.0],
}


@pytest.mark.parametrize("expression", ALLOWED)
def test_numbers_and_indices_on_the_cpu_are_not(expression):
    names = {"x": there([0.0, 1.0, 2.0, 3.0]), "c": torch.arange(4.0), "torch": torch}
    out = eval(expression, names)
    assert type(out) is sim.SimTensor and out.tolist() == ALLOWED[expression]


def test_other_things_that_a_gpu_refuses():
    x, c = there([0.0, 1.0]), torch.arange(2.0)
    with pytest.raises(RuntimeError, match="indices should be either on cpu or on the same device"):
        c[there([1, 0])]
    with pytest.raises(TypeError, match="can't convert sim:0 device type tensor to numpy"):
        x.numpy()
    with pytest.raises(TypeError, match="can't convert sim:0 device type tensor to numpy"):
        np.asarray(x)
    with pytest.raises(RuntimeError, match="Expected a 'sim' device type for generator but found 'cpu'"):
        torch.rand(3, generator=torch.Generator(), device="sim")
    p, own = torch.tensor([0.1, 0.2, 0.3, 0.4]), sim.Generator().manual_seed(1)
    drawn = torch.multinomial(p.to("sim"), 2, generator=own)
    assert drawn.tolist() == torch.multinomial(p, 2, generator=torch.Generator().manual_seed(1)).tolist()


def test_a_change_in_place_is_seen_through_each_view():
    x = torch.zeros(2, 3, device="sim")
    row = x[1]
    assert row.add_(1) is row
    x[0, 1] = 5
    assert x.tolist() == [[0, 5, 0], [1, 1, 1]] and row.tolist() == [1, 1, 1]
    assert x.unsqueeze_(0).shape == x.shape == (1, 2, 3) and (x + 1).shape == (1, 2, 3)


def test_a_model_moves_with_all_that_it_holds(sim_pair, pair):
    assert sim_pair.target.lm_head.weight is sim_pair.target.transformer.wte.weight  # tied, as it was
    for here, moved in zip(pair.target.parameters(), sim_pair.target.parameters(), strict=True):
        assert type(moved) is sim.SimTensor and isinstance(moved, torch.nn.Parameter)
        assert torch.equal(moved.cpu(), here)
    with pytest.raises(RuntimeError, match=MIXED):
        sim_pair.target(pair.encode(PROMPT))


def test_the_device_is_gone_when_it_is_no_longer_connected(device):
    assert torch.accelerator.is_available() and torch.sim.is_available()
    synchronize = torch.accelerator.synchronize
    with sim.counting() as waits, contextlib.ExitStack() as stack:
        stack.enter_context(sim.connected())
    assert not torch.accelerator.is_available() and waits == []
    assert torch.accelerator.synchronize is synchronize


# --- the loops ---------------------------------------------------------------------------------------------------


class CertainSession:
    """Proposes what followed the same token earlier, as it stands: drafts without probabilities, and none at first."""

    def __init__(self, ids):
        self.text = ids

    def propose(self, k):
        earlier = self.text[:-1] if k else self.text[:0]
        return sl.Draft(earlier[-k:] if k else earlier, None)  # on the target's device, never read by the host

    def accept(self, n, token, *more):
        drafted = self.text[:0] if n == 0 else self.text[:-1][-n:]
        self.text = torch.cat([self.text, drafted, torch.as_tensor(token, device=self.text.device).view(1)])


class Certain:
    """A drafter without a model, whose q is None."""

    def start(self, ids, *more):
        return CertainSession(ids)


class OnTheHost:
    """The same on the host, as an n-gram drafter would be: a list of ints that grows by what the session is told."""

    def start(self, ids, sampling, randomness, target):
        self.text = [0, 1, 2, 0, 1]  # the prompt of the tables, known without asking the device
        return self

    def propose(self, k):
        return sl.Draft(torch.tensor(self.text[:-1][-k:] if k else [], dtype=torch.int64, device="cpu"), None)

    def accept(self, n, token, tokens):
        self.text += tokens


def tables(where, *widths):
    """A table model for each width; the next token depends on the last."""
    generator = torch.Generator().manual_seed(0)
    made = [torch.rand(w, w, generator=generator).pow(2).softmax(-1) for w in widths]
    return [sl.TableModel(t.to(where)) for t in made]


def tree_of(draft):
    """A tree of a draft model, with candidates drawn without replacement."""
    return drafters.Tree(draft, [-1, -1, 0, 0, 1, 2])


def drafter_of(what, pair):
    """One of the pair's target, or of its draft."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        head = drafters.RecurrentHead(sl.load_pair("tiny").target, inner=32)
    if what in ("head", "tree of a head"):
        made = drafters.RecurrentHead(pair.target, inner=32)
        made.load_state_dict({name: weight.to(pair.target.device) for name, weight in head.state_dict().items()})
        return made if what == "head" else tree_of(made)
    return drafters.NGram() if what == "lookup" else tree_of(pair.draft)


CASES = {  # which models, new tokens, options
    "block verification": ("pair", 24, {"rule": "block"}),
    "block verification, fixed shapes": ("fixed", 24, {"rule": "block"}),
    "block verification of tables": ((6, 5), 60, {"rule": "block", "gamma": 7}),
    "shared noise": ("pair", 24, {"generator": 3}),
    "shared noise, fixed shapes": ("fixed", 24, {"generator": 3}),
    "shared noise, top-k and top-p": ("pair", 24, {"generator": 3, "sampling": sl.Sampling(0.7, 20, 0.9)}),
    "shared noise of tables": ((6, 5), 60, {"generator": 3}),
    "prompt lookup": ("lookup", 40, {"sampling": sl.Sampling(0.2)}),
    "a recurrent head": ("head", 30, {"sampling": sl.Sampling(3.0)}),
    "a tree": ("tree", 24, {"gamma": 6}),
    "a tree, traced": ("tree", 24, {"gamma": 6, "trace": True}),
    "a tree, greedy": ("tree", 24, {"gamma": 6, "sampling": sl.Sampling(0), "draft_sampling": sl.Sampling(1)}),
    "a tree, fixed shapes": ("tree, fixed", 24, {"gamma": 6}),
    "a tree of a head": ("tree of a head", 30, {"gamma": 6, "sampling": sl.Sampling(3.0)}),
    "a tree of tables": ("tree of tables", 60, {"gamma": 6}),
    "plain": ("pair", 24, {}),
    "greedy": ("pair", 24, {"sampling": sl.Sampling(0)}),
    "top-k and top-p": ("pair", 24, {"sampling": sl.Sampling(0.7, 20, 0.9)}),
    "a draft sampling of its own": ("pair", 24, {"draft_sampling": sl.Sampling(0.5, None, 0.8)}),
    "gamma 1": ("pair", 12, {"gamma": 1}),
    "traced": ("pair", 24, {"trace": True}),
    "with EOS": ("pair", 40, {"eos_token_id": "a late token of the text"}),
    "gamma 8 with EOS": ("pair", 80, {"gamma": 8, "eos_token_id": "as above"}),
    "gamma 1 with EOS": ("pair", 40, {"gamma": 1, "eos_token_id": "as above"}),
    "our own forward pass": ("own", 24, {}),
    "fixed shapes": ("fixed", 40, {}),
    "fixed shapes, greedy": ("fixed", 24, {"sampling": sl.Sampling(0), "gamma": 2}),
    "fixed shapes, top-k and top-p": ("fixed", 24, {"sampling": sl.Sampling(0.7, 20, 0.9)}),
    "fixed shapes, traced": ("fixed", 24, {"trace": True}),
    "a narrower draft": ((6, 5), 60, {}),
    "a wider draft": ((6, 9), 60, {}),
    "a narrower draft, traced": ((6, 5), 30, {"trace": True}),
    "a drafter that is certain": ((6, Certain()), 60, {}),
    "a drafter on the host": ((6, OnTheHost()), 60, {}),
    "a drafter that is certain, greedy": ((6, Certain()), 30, {"sampling": sl.Sampling(0)}),
}


def rounds_and_waits(models, ids, new, **options):
    """Each round, and what the host waited for in it."""
    if "generator" in options:
        options = {**options, "generator": sl.SharedNoise(options["generator"]), "rule": None}
    rounds = sl.speculative_rounds(*models, ids, new, **{"generator": 5, **options})
    found = []
    while True:
        with sim.counting() as waits:
            done = next(rounds, None)
        if done is None:
            return found
        if waits and not found and isinstance(models[1], drafters.NGram):
            assert waits.pop(0) == "tolist"  # it reads the prompt on the host, once a text
        found.append((done, waits))


def models_of(what, pair, where):
    """Target, draft and prompt, on the CPU or on the device."""
    if what in ("pair", "own", "fixed"):
        used = pair if what == "pair" else pair.fast(graphs="eager" if what == "fixed" else False)
        return (used.target, used.draft), pair.encode(PROMPT)
    if what == "tree of tables":
        target, draft = tables(where, 6, 5)
        return (target, tree_of(draft)), torch.tensor([[0, 1, 2, 0, 1]], device=where)
    if what == "tree, fixed":
        pair = pair.fast(graphs="eager")
    if isinstance(what, str):
        ids = pair.encode(PROMPT if what != "lookup" else "the cat and the dog and the cat and the")
        return (pair.target, drafter_of(what, pair)), ids
    target, *draft = tables(where, *(w for w in what if isinstance(w, int)))
    return (target, draft[0] if draft else what[1]), torch.tensor([[0, 1, 2, 0, 1]], device=where)


@pytest.fixture(scope="module")
def run(pair, sim_pair):
    """(case, rule) run on the CPU and on the device, each once."""
    known = {}

    def once(case, rule):
        if (case, rule) not in known:
            what, new, options = CASES[case]
            if "eos_token_id" in options:
                text = sl.speculative(pair.target, pair.draft, pair.encode(PROMPT), new, generator=5).tokens
                options = {**options, "eos_token_id": [int(text[2 * new // 3])]}
            both = (("cpu", pair), ("sim", sim_pair))
            runs = [(*models_of(what, p, where), new) for where, p in both]
            known[case, rule] = [rounds_and_waits(*r, **{"rule": rule, **options}) for r in runs]
        return known[case, rule]

    return once


@pytest.mark.parametrize("rule", ["google", "deepmind"])
@pytest.mark.parametrize("case", CASES)
def test_the_device_writes_the_same_rounds(run, case, rule):
    here, moved = run(case, rule)
    assert [(r.drafted.tolist(), r.accepted, r.token, r.origin, r.cut, r.path) for r, _ in here] == [
        (r.drafted.tolist(), r.accepted, r.token, r.origin, r.cut, r.path) for r, _ in moved
    ]
    if CASES[case][2].get("trace"):
        for (a, _), (b, _) in zip(here, moved, strict=True):
            for name in ("uniforms", "p", "q", "overlap")[: 3 if a.parents else 4]:
                assert getattr(b, name).device.type == "cpu"
                assert torch.allclose(getattr(a, name), getattr(b, name), atol=1e-5, equal_nan=True), name


def test_the_cases_are_what_they_are_called(run):
    ended = run("with EOS", "google")[0]
    assert 20 < sum(len(r.tokens) for r, _ in ended) < 40
    for case in CASES:
        rounds = [r for r, _ in run(case, "google")[0]]
        assert sum(r.origin == "resampled" for r in rounds) >= 2 and sum(r.accepted for r in rounds) >= 3, case


@pytest.mark.parametrize("case", CASES)
def test_googles_rule_waits_once_a_round(run, case):
    for done, waits in run(case, "google")[1]:
        assert waits[:1] == ["tolist"]
        assert waits[1:] == (["to host"] * len(waits[1:]) if CASES[case][2].get("trace") else [])  # tracing brings more
        assert len(waits) <= 5, done


OF_ITS_OWN = ("tree", "block", "noise")  # cases in which the rule is another, or waits for nothing all the same


@pytest.mark.parametrize("case", [c for c in CASES if "traced" not in c and not any(w in c for w in OF_ITS_OWN)])
def test_deepminds_rule_waits_three_times_for_each_token_that_it_looks_at(run, case):
    for done, waits in run(case, "deepmind")[1]:
        if done.origin is None:  # an accepted draft token ended the text; the rule may have looked further
            continue
        looked_at = done.accepted + (done.origin == "resampled")
        counts = Counter(waits)
        assert counts.pop("item", 0) == 3 * looked_at  # p[t, x], q[t, x], and the comparison
        assert counts.pop("tolist") == 1
        assert counts.pop("to device", 0) <= 1 and not counts  # the int n on its way to what is read at the end


@pytest.mark.parametrize("rule", RULES)
def test_nothing_is_drafted_in_the_first_round(rule, pair, sim_pair):
    """One new token, prompt lookup without a match: the rule then gets uniforms (0,) before any was drawn."""
    for draft, new in ((None, 1), (drafters.NGram(), 3)):
        texts = [
            sl.speculative(p.target, draft or p.draft, p.encode("A king"), new, rule=rule, generator=5, trace=True)
            for p in (pair, sim_pair)
        ]
        assert len(texts[0].rounds[0].drafted) == 0 and texts[0].rounds[0].uniforms.shape == (0,)
        assert texts[0].tokens.equal(texts[1].tokens)


def test_what_comes_from_a_device_to_the_host_is_waited_for(monkeypatch):
    """Else it is read before it is there: a draft on a GPU for a target on the host, and a GPU's generator."""

    class There(CertainSession):
        def propose(self, k):
            return sl.Draft(super().propose(k).tokens.to("sim", non_blocking=True), None)

    class Drafter:
        def start(self, ids, *more):
            return There(ids)

    target, drafted = tables("cpu", 6)[0], 0
    for done, waits in rounds_and_waits((target, Drafter()), torch.tensor([[0, 1, 2, 0, 1]]), 20):
        drafted += len(done.drafted)
        assert waits == ["to host"]
    assert drafted > 5
    rand = torch.rand
    monkeypatch.setattr(torch, "rand", lambda *size, **options: rand(*size, **options).to("sim", non_blocking=True))
    with sim.counting() as waits:
        assert sl.Randomness(3).uniforms(300, 0).device.type == "cpu"
    assert waits == ["to host"]


LATE = ["plain", "shared noise", "fixed shapes", "prompt lookup", "a tree", "a tree, fixed shapes", "a tree of a head"]


@pytest.mark.parametrize("case", LATE)
def test_a_device_that_reads_late_and_has_no_float64_writes_the_same(case, run, monkeypatch):
    """As Apple's: a copy to it is waited for, and what is computed in float64 is on the host."""
    assert "mps" in devices.READ_LATE
    monkeypatch.setattr(devices, "READ_LATE", {"sim"})
    what, new, options = CASES[case]
    with sim.like_mps():
        fresh = sl.load_pair("tiny", device="sim")  # not one whose trees were tried before
        moved = rounds_and_waits(*models_of(what, fresh, "sim"), new, **options)
    assert [r.tokens for r, _ in moved] == [r.tokens for r, _ in run(case, "google")[0]]


def test_one_place_says_whether_a_copy_is_waited_for():
    found = [file.name for file in Path(sl.__file__).parent.rglob("*.py") if "non_blocking" in file.read_text("utf-8")]
    assert found == ["devices.py"]


def test_the_simulated_device_can_be_like_apples():
    x = torch.arange(3.0)
    with sim.like_mps():
        assert x.to("sim").tolist() == [0, 1, 2]
        with pytest.raises(TypeError, match="doesn't support float64"):
            x.to("sim").double()
        with pytest.raises(RuntimeError, match="may be gone when it is read"):
            x.to("sim", non_blocking=True)
        assert overlap_parts(*torch.eye(2, device="sim"))["rejected"] == [0, 1]
    assert x.to("sim", non_blocking=True).double().tolist() == [0, 1, 2]


class HeadOnTheHost(torch.nn.Module):
    """Learns on the host, since there are no gradients on the device, from lessons that are there."""

    ahead, threads = 1, contextlib.nullcontext

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(2))

    def score(self, x):
        return x.cpu()

    def forward(self, h, tokens):
        return [self.weight.expand(len(h), 2)] * tokens.shape[1]


def test_lessons_on_the_device_are_picked_from_without_a_wait(pair, sim_pair):
    shapes = {"ids": torch.arange(48).view(4, 12) % 7, "hidden": torch.rand(4, 12, 2), "final": torch.rand(4, 12, 2)}
    lessons = drafters.Lessons(**{name: x.to("sim") for name, x in shapes.items()})
    with sim.counting() as waits:
        drafters.train(HeadOnTheHost(), lessons, steps=3, positions=2, loss="TV", quiet=True)
    assert waits == ["to host"] * 6  # the head's own, for each step and position
    head, there = drafter_of("head", pair), drafter_of("head", sim_pair)
    shapes |= {"hidden": torch.rand(4, 12, head.width), "final": torch.rand(4, 12, head.width)}
    lessons = drafters.Lessons(**{name: x.to("sim") for name, x in shapes.items()})
    with sim.counting() as waits:
        found = drafters.overlaps(there, lessons)
    assert waits == ["tolist"]
    assert found == pytest.approx(drafters.overlaps(head, drafters.Lessons(**shapes)), rel=1e-4)


def test_a_start_of_lessons_goes_to_the_target(pair, sim_pair):
    """As a prompt does."""
    start = pair.encode(PROMPT)
    there, here = (drafters.Lessons.written(pair.target, x, 2, 12, quiet=True) for x in (start.to("sim"), start))
    assert torch.equal(there.ids, here.ids) and there.ids.is_cpu


@pytest.mark.parametrize("kind", [drafters.RecurrentHead, drafters.Heads, drafters.ExitHead])
def test_a_head_that_was_moved_is_refused(kind, pair, sim_pair):
    for used, to in ((pair, "sim"), (sim_pair, "cpu")):
        head, target = kind(used.target).to(to), used.fast().target
        draft = drafters.EarlyExit(1, head) if kind is drafters.ExitHead else head
        with pytest.raises(ValueError, match=rf"the target is on {used.device} and the head on {to}.*: move the head"):
            sl.speculative(target, draft, used.encode(PROMPT), 8)


@pytest.mark.parametrize("sampling", [sl.Sampling(), sl.Sampling(0), sl.Sampling(0.7, 20, 0.9)], ids=str)
def test_the_plain_loop_waits_once_a_text(pair, sim_pair, sampling):
    ids, counts = sim_pair.encode(PROMPT), []
    for new in (4, 12):
        with sim.counting() as waits:
            g = sl.autoregressive(sim_pair.target, ids, new, sampling=sampling, generator=3)
        counts.append(waits)
    assert counts[0] == counts[1] and len(waits) <= 3  # the prompt's check, the tokens, the flags: for any length
    here = sl.autoregressive(pair.target, pair.encode(PROMPT), 12, sampling=sampling, generator=3)
    assert g.tokens.tolist() == here.tokens.tolist()
    assert g.tokens.device.type == "cpu" and g.ids.device.type == "sim"


def test_with_eos_the_plain_loop_waits_for_each_token(sim_pair):
    with sim.counting() as without:
        sl.autoregressive(sim_pair.target, sim_pair.encode(PROMPT), 6, generator=3)
    with sim.counting() as waits:
        g = sl.autoregressive(sim_pair.target, sim_pair.encode(PROMPT), 6, eos_token_id=0, generator=3)
    assert len(g.tokens) == 6 and len(without) < len(waits) <= len(without) + 7


def test_a_finished_text_is_where_its_prompt_was(pair, sim_pair):
    for ids in (sim_pair.encode(PROMPT), pair.encode(PROMPT)):  # a prompt on the CPU is moved
        g = sl.speculative(sim_pair.target, sim_pair.draft, ids, 8, generator=1)
        assert g.tokens.device.type == "cpu" and g.ids.device.type == "sim"


def test_captured_passes_write_the_same_text_with_one_wait_a_round(pair, sim_pair):
    with capture.pretended() as events:
        fast = sim_pair.fast(graphs=True)
        for sampling in (sl.Sampling(), sl.Sampling(0.7, 20, 0.9)):
            found = rounds_and_waits((fast.target, fast.draft), sim_pair.encode(PROMPT), 24, sampling=sampling)
            here = sl.speculative(pair.target, pair.draft, pair.encode(PROMPT), 24, sampling=sampling, generator=5)
            assert [t for r, _ in found for t in r.tokens] == here.tokens.tolist()
            assert all(waits == ["tolist"] for _, waits in found)
    assert events.count("replay") >= 2 * len(found) > events.count("capture") >= 4


# Faults that a CPU does not show, each planted in a public seam.


def rule_with_a_tensor_on_the_cpu(p, q, drafted, uniforms):
    n, rest = sl.verify_google(p, q, drafted, uniforms)
    return n, rest * torch.ones(rest.shape[0])


def rule_that_looks_where_it_stopped(p, q, drafted, uniforms):
    n, rest = sl.verify_google(p, q, drafted, uniforms)
    return int(n), rest


class OnTheCpu(sl.TableModel):
    def fresh(self):
        return OnTheCpu(self.table)

    def feed(self, ids, keep=None):
        return super().feed(ids, keep).cpu()


class Curious(Certain):
    """Reads its own draft on the host, once more than the loop."""

    def start(self, ids, *more):
        class Session(CertainSession):
            def propose(self, k):
                draft = super().propose(k)
                assert all(t >= 0 for t in draft.tokens.tolist())
                return draft

        return Session(ids)


def test_planted_faults_are_seen(device):
    (target, draft), ids = models_of((6, 5), None, "sim")

    def rounds(target=target, draft=draft, **options):
        return rounds_and_waits((target, draft), ids, 30, **options)

    assert all(waits == ["tolist"] for _, waits in rounds())
    with pytest.raises(RuntimeError, match=MIXED):
        rounds(rule=rule_with_a_tensor_on_the_cpu)
    with pytest.raises(RuntimeError, match=MIXED):
        rounds(target=OnTheCpu(target.table))
    assert all(Counter(waits)["item"] == 1 for _, waits in rounds(rule=rule_that_looks_where_it_stopped))
    assert all(waits == ["tolist"] * 2 for _, waits in rounds(draft=Curious()))


# --- the commands ------------------------------------------------------------------------------------------------


def command(*arguments) -> str:
    """What a command prints; it must end well."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert cli.main([*arguments, "--target", "tiny"]) == 0
    return out.getvalue()


@pytest.mark.parametrize("rule", ["google", "deepmind"])
def test_generate_prints_the_same_on_the_device(rule):
    options = ["generate", PROMPT, "--seed", "1", "--max-new-tokens", "20", "--rule", rule, "-v"]
    assert command(*options, "--device", "sim") == command(*options, "--device", "cpu")


def test_bench_counts_the_same_on_the_device(tmp_path):
    options = ["bench", "--runs", "1", "--max-new-tokens", "8", "--gamma", "2", "--prompt", PROMPT, "--out"]
    measured = {}
    for where in ("cpu", "sim"):
        printed = command(*options, str(tmp_path / where), "--device", where)
        assert "not measurable" not in printed  # transformers' own loops run on the device too
        kept = json.loads((tmp_path / f"{where}.json").read_text("utf-8"))["measurements"][0]["variants"]
        counts = {variant: {k: v for k, v in found.items() if k != "seconds"} for variant, found in kept.items()}
        measured[where] = {variant: c for variant, c in counts.items() if "transformers" not in variant}
    assert measured["cpu"] == measured["sim"] and len(measured["sim"]) >= 4


def test_a_device_that_is_not_connected_is_refused_by_name(monkeypatch, capsys):
    monkeypatch.setattr(torch.sim, "connected", False)
    assert cli.main(["generate", PROMPT, "--target", "tiny", "--device", "sim"]) == 2
    assert re.search(r"this machine has no sim", capsys.readouterr().err)
