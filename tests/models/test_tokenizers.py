"""A pair's tokenizer: what is decoded, what is refused, and when two vocabularies are one."""

import copy

import numpy as np
import pytest
import torch

import spec_lib as sl
from spec_lib import Pair, TableModel, autoregressive, load_pair
from tests.helpers.loops import one_sentence
from tests.helpers.models import tiny_gpt2
from tests.helpers.tokenizers import byte_tokens, tokenizer_of


def letters(text: str) -> torch.Tensor:
    return torch.tensor([list(text.encode())])


@pytest.mark.reported
def test_one_text_at_a_time_is_decoded():
    """Several texts given for one were joined into one.

    Right: (n,), (1, n), lists and a single token are one text; a batch is refused in a sentence, as encode refuses one.
    """

    class Some:
        decode, tokenizer = Pair.decode, tokenizer_of()

    ids = letters("ab")
    text = Some().decode(ids)
    for one in (ids, ids[0], ids.tolist(), ids[0].tolist(), list(ids[0])):
        assert Some().decode(one) == text
    assert Some().decode(ids[0, 0]) == text[0]
    for batch in (torch.cat([ids, ids]), [[1, 2], [3]], torch.zeros(2, 1, 3, dtype=torch.int64)):
        with pytest.raises(ValueError) as error:
            Some().decode(batch)
        one_sentence(error, "one text", "a batch of 2")


@pytest.mark.parametrize(
    "tokens, word", [(None, "NoneType"), ("abc", "str"), ([-1], "-1"), ([1.5], "1.5"), ([True], "True"), ({1}, "set")]
)
def test_what_is_no_token_is_not_decoded(tokens, word):
    with pytest.raises(ValueError) as error:
        load_pair("tiny").decode(tokens)
    one_sentence(error, "token ids", word)


def test_a_token_alone_and_numbers_of_numpy_are_decoded():
    pair = load_pair("tiny")
    text = pair.decode(torch.tensor([300]))
    for tokens in (300, np.int64(300), [np.int32(300)], np.array([300]), (300,), torch.tensor(300), np.array([[300]])):
        assert pair.decode(tokens) == text
    with pytest.raises(ValueError) as error:
        pair.decode(autoregressive(TableModel(torch.ones(2, 2) / 2), [0], 3))
    one_sentence(error, "generation.tokens")


@pytest.mark.reported
def test_special_tokens_in_another_order_are_another_vocabulary():
    """Vocabularies of one size were taken for one, though ids meant different tokens.

    Right: the first id that differs is named.  Siblings: only the special tokens change places; another start or
    padding token over equal ids is no difference, since only the target's tokenizer is used.
    """
    from transformers import PreTrainedTokenizerFast

    ours = tokenizer_of(eos_token="<|endoftext|>")
    core = copy.deepcopy(ours.backend_tokenizer).to_str()
    a, b = "<|endoftext|>", "<|start|>"
    swapped = core.replace(a, "\0").replace(b, a).replace("\0", b)
    from tokenizers import Tokenizer

    theirs = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(swapped), eos_token=a)
    assert len(ours) == len(theirs) == len(byte_tokens()) + 2
    with pytest.raises(ValueError) as error:
        sl.check_vocabulary(ours, theirs)
    one_sentence(error, "id 256 ", a, b)
    other = tokenizer_of(eos_token=a, bos_token=b, pad_token=b)
    sl.check_vocabulary(ours, other)
    models = tiny_gpt2(0, vocab=258), tiny_gpt2(1, vocab=258)
    assert Pair(*models, ours, other).encode("").tolist() == [[256]]


@pytest.mark.reported
def test_an_end_that_the_tokenizer_adds_is_no_part_of_a_prompt():
    """A tokenizer that ends each text ended the prompts too, and nothing or another text followed (vllm-project/vllm
    issue 7491, ggml-org/llama.cpp issue 7484).

    Right: the prompt without it.  Siblings: an empty prompt, which is the start token alone; an end that the text
    spells itself; a start that is the same token; a tokenizer that adds nothing.
    """
    from tokenizers.processors import TemplateProcessing

    end, start = "<|endoftext|>", "<|start|>"
    models = tiny_gpt2(0, vocab=258), tiny_gpt2(1, vocab=258)

    def pair_of(template: str, bos: str = start) -> Pair:
        tokenizer = tokenizer_of(eos_token=end, bos_token=bos)
        special = [(end, 256), (start, 257)]
        tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single=template, special_tokens=special)
        return Pair(*models, tokenizer)

    a, b = tokenizer_of()("ab")["input_ids"]
    for template, first in ((f"{start} $A {end}", [257]), (f"$A {end}", []), (f"{end} $A", [256]), ("$A", [])):
        pair = pair_of(template)
        assert pair.token_ids("ab") == [*first, a, b], template
        assert pair.token_ids("ab" + end) == [*first, a, b, 256], template
        assert pair.token_ids("") == (first if template.startswith(start) else [257]), template
    assert pair_of(f"{end} $A {end}", bos=end).token_ids("") == [256]
