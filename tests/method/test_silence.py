"""Neither a warning nor a log line: not a byte on stderr, with warnings made errors.

In another process, one for all: a log line or a warning that appears once only, or at import, would be missed here.
"""

import subprocess
import sys
import textwrap

import pytest

from tests.helpers.paths import ROOT

SCRIPT = """
    import sys, warnings
    import torch, transformers
    from transformers import LlamaConfig, LlamaForCausalLM
    import spec_lib as sl
    from spec_lib import benchmark
    from tests.helpers.models import tiny_gpt2
    from tests.helpers.tokenizers import Words

    def part(name):
        print(name, flush=True)
        print(name, file=sys.stderr, flush=True)

    warnings.simplefilter("error")  # not before the imports: what other packages warn about there is not ours
    part("loops")
    for config in ({}, {"pad_token_id": 5, "eos_token_id": 6, "bos_token_id": 6}):
        target, draft = tiny_gpt2(0, layers=2, **config), tiny_gpt2(1, **config)
        ids = torch.tensor([[7, 8, 9, 5]])  # ends with what the second configuration calls padding
        for sampling in (sl.Sampling(0), sl.Sampling(0.8, 5, 0.9)):
            sl.autoregressive(target, ids, 8, sampling=sampling, generator=0)
            for rule in ("google", "deepmind"):
                g = sl.speculative(target, draft, ids, 8, rule=rule, sampling=sampling, generator=0, trace=True)
                assert len(g.tokens) == 8
    part("other loops")
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    special = {"pad_token_id": 9, "bos_token_id": 1, "eos_token_id": 2}
    llama = LlamaForCausalLM(LlamaConfig(vocab_size=97, **sizes, **special)).eval()
    for sampling in (sl.Sampling(0), sl.Sampling(0.8, 5, 0.9)):
        sl.autoregressive(llama, [7, 8, 9], 6, sampling=sampling, generator=0)
        sl.speculative(llama, llama, [7, 8, 9], 6, sampling=sampling, generator=0, trace=True)
    pair = sl.Pair(tiny_gpt2(0), tiny_gpt2(1), Words(), prompts={"one": "1 2 3"})
    for temperature in (0.0, 0.7):
        m = benchmark.compare(pair, benchmark.Setting(gamma=3, new=8, temperature=temperature), 1)
        assert all(len(variant.seconds) == 1 for variant in m.variants.values())
    part("done")
    warnings.simplefilter("ignore", ResourceWarning)  # old releases of torch leave a folder to be cleaned up at exit
"""


@pytest.fixture(scope="module")
def said() -> tuple[int, str, str]:
    """Exit status, stdout and stderr of the script; each part writes its name on both before it begins."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT)], capture_output=True, text=True, timeout=300, cwd=ROOT
    )
    return done.returncode, done.stdout, done.stderr


def test_not_a_byte_on_stderr(said):
    status, out, err = said
    assert err.startswith("loops\nother loops\n")
    assert status == 0 and out.endswith("done\n")


@pytest.mark.reported
def test_not_a_word_about_names_that_will_go(said):
    """A renamed argument, or a setting given twice: notices below every cell.

    Right: not a byte on stderr with warnings made errors.  Siblings: a family other than GPT-2, which declares
    padding, and the benchmark's use of transformers' own loops, greedy and drawn.
    """
    _, out, err = said
    assert err.partition("other loops\n")[2] == "done\n"
    assert out == "loops\nother loops\ndone\n"
