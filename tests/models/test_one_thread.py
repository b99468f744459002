"""Models that keep to one thread: whatever makes another of them, the other computes the same and keeps to it too."""

import copy
import io
import pickle
import signal
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import spec_lib as sl
from spec_lib import speculative
from spec_lib.devices import one_thread
from spec_lib.pairs import TINY_DRAFTS
from tests.helpers.models import prompt, tiny_gpt2

IDS = torch.tensor([[5, 3, 8, 1]])


def logits(model) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=IDS).logits


def threads_inside(model) -> int:
    """The number of threads that a call of the model uses where two are set."""
    seen = []
    hook = model.lm_head.register_forward_hook(lambda *_: seen.append(torch.get_num_threads()))
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        logits(model)
    finally:
        torch.set_num_threads(before)
        hook.remove()
    return seen[0]


def logits_and_threads(model) -> tuple[torch.Tensor, int]:  # what a process of its own is asked
    return logits(model), threads_inside(model)


def saved(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


WAYS = {
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
    "torch.save": saved,
    **{f"pickle {n}": lambda m, n=n: pickle.loads(pickle.dumps(m, n)) for n in range(pickle.HIGHEST_PROTOCOL + 1)},
}


@pytest.fixture(scope="module")
def embedded():
    """The four embedded models, and a random one as `check` makes them."""
    from spec_lib.device.exact import random_gpt2

    random = random_gpt2((1, 8, 2), 31, "cpu")
    one_thread(random)
    pairs = {name: sl.load_pair("tiny", name) for name in TINY_DRAFTS}
    return {"random": random, "target": pairs["small"].target, **{name: p.draft for name, p in pairs.items()}}


@pytest.mark.parametrize("name", ["random", "target", *TINY_DRAFTS])
@pytest.mark.parametrize("way", WAYS)
def test_another_one_computes_the_same_on_one_thread(embedded, name, way):
    model = embedded[name]
    other = WAYS[way](model)
    assert other is not model and type(other) is type(model) and not other.training
    assert torch.equal(logits(other), logits(model)) and threads_inside(other) == threads_inside(model) == 1
    assert other.lm_head.weight is other.transformer.wte.weight  # the two stay one matrix
    if way != "copy":
        with torch.no_grad():
            before = model.lm_head.weight.clone()
            other.lm_head.weight.zero_()
        assert torch.equal(model.lm_head.weight, before)
    assert torch.equal(saved(other.state_dict())["lm_head.weight"], other.lm_head.weight)


def test_a_whole_pair_is_pickled(embedded):
    pair = sl.load_pair("tiny")
    other = pickle.loads(pickle.dumps(pair))
    ids = pair.encode("Once upon")
    texts = [sl.speculative(p.target, p.draft, ids, 12, generator=1).tokens.tolist() for p in (pair, other)]
    assert texts[0] == texts[1] and other.decode(texts[1]) == pair.decode(texts[0])


def test_another_process_gets_the_models(embedded):
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        for model in embedded.values():
            theirs, threads = pool.submit(logits_and_threads, model).result()
            assert torch.equal(theirs, logits(model)) and threads == 1


def test_asked_twice_it_is_one_class_and_its_name_stays(embedded):
    model = embedded["random"]
    kind = type(model)
    one_thread(model)
    assert type(model) is kind is type(embedded["target"]) and kind.__name__ == "GPT2LMHeadModel"


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="sends itself a signal")
def test_after_an_interrupt_torch_has_its_threads_back():
    model = tiny_gpt2(0, layers=2)
    one_thread(model)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        for layer in (model.transformer.h[0], model.lm_head):
            hook = layer.register_forward_hook(lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                speculative(model, model, prompt(5), 20)
            hook.remove()
            assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_copy_of_a_model_on_one_thread_is_itself():
    model = tiny_gpt2(0)
    one_thread(model)
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin.lm_head.weight.zero_()
        assert twin(input_ids=prompt(3)).logits.abs().max() == 0
        assert model(input_ids=prompt(3)).logits.abs().max() > 0
    assert type(model).__name__ == "GPT2LMHeadModel"


class ThreadsOf(TorchDispatchMode):
    """The numbers of threads with which each operation was called."""

    def __init__(self):
        super().__init__()
        self.found = {}

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.found.setdefault(str(operation).split(".")[1], set()).add(torch.get_num_threads())
        return operation(*args, **(kwargs or {}))


@pytest.mark.parametrize("rule", ["google", "block"])
@pytest.mark.parametrize("own", [True, False], ids=["own pass", "transformers"])
def test_nothing_that_torch_splits_by_rows_waits_for_a_second_thread(own, rule):
    """Around the passes a mask and the target's softmax did: beside a busy process a text took four times as long.

    Right: such operations, of the passes and between them, run on one thread, whatever number is set.
    """
    pair = sl.load_pair("tiny")
    pair, before = pair.fast() if own else pair, torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with ThreadsOf() as threads:
            speculative(pair.target, pair.draft, pair.encode("Once upon a time"), 20, rule=rule, generator=1)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    split = {"_softmax", "triu_", "triu", "addmm", "mm", "native_layer_norm", "gelu"} & threads.found.keys()
    assert {"_softmax", "addmm"} <= split and (not own or "triu_" in split)
    assert {name: threads.found[name] for name in split} == dict.fromkeys(split, {1})


@pytest.mark.parametrize("own", [True, False], ids=["own pass", "transformers"])
def test_a_batch_of_texts_keeps_to_one_thread(own):
    """Its passes did; the rectangle around them and a copy into it did not: 2.4 times as long beside a busy process.

    Right: every operation of a step of the embedded pair; as many as are set for another model.
    """
    pair, before = sl.load_pair("tiny"), torch.get_num_threads()
    pair, others = pair.fast() if own else pair, (tiny_gpt2(0), tiny_gpt2(1))
    torch.set_num_threads(2)
    try:
        found = []
        for models, ids in (((pair.target, pair.draft), pair.encode("Once")), (others, prompt(3))):
            engine = sl.Engine(*models, slots=3)
            requests = [engine.submit(ids, 6, generator=i) for i in range(4)]
            with ThreadsOf() as threads:
                while engine.step():
                    assert torch.get_num_threads() == 2
            assert all(len(request.generation().tokens) == 6 for request in requests)
            found.append(set().union(*threads.found.values()))
    finally:
        torch.set_num_threads(before)
    assert found[0] == {1} and 2 in found[1]


@pytest.mark.parametrize("way", ["a head's tree", "shared noise"])
def test_nor_does_what_drafts_or_draws_in_another_way(way):
    pair, before = sl.load_pair("tiny").fast(), torch.get_num_threads()
    draft, more = pair.draft, {"generator": sl.SharedNoise(1)}
    if way == "a head's tree":
        draft, more = sl.drafters.Tree(sl.drafters.shipped_head(pair.target), [-1, -1, 0, 1, 2, 3]), {"gamma": 6}
    torch.set_num_threads(2)
    try:
        with ThreadsOf() as threads:
            speculative(pair.target, draft, pair.encode("Once upon a time"), 12, **more)
    finally:
        torch.set_num_threads(before)
    split = {"addmm", "mm", "native_layer_norm", "gelu", "log1p", "_softmax"} & threads.found.keys()
    assert ("log1p" if way == "shared noise" else "native_layer_norm") in split
    assert {name: threads.found[name] for name in split} == dict.fromkeys(split, {1})
