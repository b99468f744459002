"""A model on one thread of its own."""

import copy
import signal

import pytest
import torch

from spec_lib import speculative
from spec_lib.devices import one_thread
from tests.helpers.models import prompt, tiny_gpt2


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
