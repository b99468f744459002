"""Ten claims about speculative sampling: asked in notebook 00, asked again in notebook 09."""

from __future__ import annotations

import json
from pathlib import Path

# The ten claims of notebook 00, in its order; the course tests each one somewhere.  All are false.
CLAIMS = (
    "Accepted draft tokens are distributed as the target's own tokens.",
    "With the same seed, speculative sampling writes the same text as plain sampling.",
    "The acceptance rate is accepted tokens over drafted tokens.",
    "If the text reads fluently, the sampler is right.",
    "A worse draft model writes a worse text.",
    "Later positions in a draft are rejected more often, once they are reached.",
    "The colder the sampling, the more is accepted.",
    "A bigger gamma is faster.",
    "It speeds up reading the prompt.",
    "It raises the throughput of a busy server.",
)

# What the course found about each of `CLAIMS` (all are false), and the notebooks that show it.
SETTLED = (
    ("03", "alone they favour what both models favour; only with the resampled tokens is the distribution p"),
    ("00, 05", "the distributions are equal, the texts are not; two rules given the same uniforms do write one text"),
    ("00, 08", "it is accepted over verified tokens: those after a rejection were never verified"),
    ("05, 07", "wrong samplers write fluently too; only a test of the distribution can tell"),
    ("04, 06", "the distribution is the target's, whatever the draft model; a worse one costs time"),
    ("04, 08", "they are reached less often; what happens once reached depends on the pair and the text"),
    (
        "08, 09",
        "often so, not always: acceptance is the overlap of two distributions, and may shrink as both get sharper",
    ),
    ("08, 09", "each further position adds less, and costs as much as the one before"),
    ("06, 09", "both models read the prompt, and there is nothing to draft in it"),
    ("09", "it does more arithmetic for each token, and a busy machine has none to spare"),
)


def keep_answers(answers: str, folder: str | Path | None = None) -> None:
    """Keep the reader's answers to `CLAIMS`, ten letters T, F or ?, for the notebooks that settle them.

    A "?" never overwrites an earlier answer.  They are kept in a small file in the home folder.
    """
    letters = _letters(answers)
    if not letters:
        return
    try:
        file = _answers_file(folder)
        kept = {**kept_answers(folder), **{str(i): x for i, x in enumerate(letters, 1) if x != "?"}}
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(kept))
    except (OSError, RuntimeError):  # the second where there is no home folder
        print("Your answers could not be written to disk; note them on paper.")
        return
    print(f"Kept: {len(CLAIMS) - letters.count('?')} answers, {letters.count('?')} left open.")


def kept_answers(folder: str | Path | None = None) -> dict[str, str]:
    """The kept answers: {"1": "T", ...}; empty where there are none."""
    try:
        return dict(json.loads(_answers_file(folder).read_text()))
    except (OSError, RuntimeError, ValueError, TypeError):
        return {}


def ask_again(answers: str, folder: str | Path | None = None) -> None:
    """Ask about `CLAIMS` once more: print each with the reader's first answer, the answer now, and what was found.

    answers: ten letters T, F or ?.  Ten question marks only list the claims; no first answer is looked up for them.
    """
    letters = _letters(answers)
    if not letters:
        return
    if set(letters) == {"?"}:
        for number, claim in enumerate(CLAIMS, 1):
            print(f"{number:2}. {claim}")
        print("Put your ten letters in, and your first answers will stand beside them.")
        return
    first = kept_answers(folder)
    for number, (claim, now, (where, found)) in enumerate(zip(CLAIMS, letters, SETTLED, strict=True), 1):
        before = str(first.get(str(number), "-"))[:1]
        print(f"{number:2}. {claim}\n    first {before}, now {now}, found F: {found} (notebooks {where})")
    right = [sum(x == "F" for x in given) for given in (first.values(), letters)]
    print(f"Right: {right[0]} of 10 at first, {right[1]} of 10 now.")


def _letters(answers: str) -> str:
    """The ten letters, in capitals; an empty string, and a sentence in print, where they are something else."""
    letters = str(answers).strip().upper().replace(" ", "")
    if len(letters) == len(CLAIMS) and not set(letters) - set("TF?"):
        return letters
    print(f"Write {len(CLAIMS)} letters, each T, F or ?; this was {answers!r}.")
    return ""


def _answers_file(folder: str | Path | None) -> Path:
    return Path(folder or Path.home() / ".speculative_sampling") / "answers.json"
