"""Ten claims about speculative sampling: asked in notebook 00, asked again in notebook 09."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

# The ten claims of notebook 00, in its order; the course tests each one somewhere.
CLAIMS = (
    "Accepted draft tokens, taken by themselves, are distributed as the target's tokens.",
    "With the same seed, speculative sampling writes the same text as plain sampling.",
    "Accepted over drafted is the alpha in Leviathan's formula.",
    "Speculation never needs more target passes than plain decoding.",
    "A worse draft model writes a worse text.",
    "If the text reads fluently, the sampler is right.",
    "A lower temperature always means that more is accepted.",
    "A bigger gamma is always faster.",
    "The draft model may sample at another temperature than the target, "
    "and the output distribution stays the target's.",
    "On a busy server, speculation can lower the throughput.",
)

# What the course found about each of `CLAIMS`: true (T) or false (F), the notebooks that show it, and why.
SETTLED = (
    ("F", "03", "alone they favour what both models favour; only with the resampled tokens is the distribution p"),
    (
        "F",
        "00, 05, 11",
        "each text has the same probability under both, but they spend their random numbers differently (with 11's "
        "shared noise it is true)",
    ),
    ("F", "00, 08", "that alpha is accepted over verified: draft tokens after a rejection were never verified"),
    ("T", "00, 04", "each target pass adds at least one token to the text"),
    ("F", "04, 06", "the output distribution is the target's, whatever the draft model; a worse one costs time"),
    ("F", "07", "wrong samplers write fluently too; it takes a test of the distribution to tell"),
    ("F", "08, 09", "often, not always: acceptance is the overlap of p and q, which can shrink as both get sharper"),
    ("F", "08, 09", "each further position is reached less often, and costs a draft pass all the same"),
    ("T", "03, 04", "the test needs the q that the token was drawn from, and any such q will do"),
    ("T", "09, 12", "it does more arithmetic for each token, which a server with many requests may not have to spare"),
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
        print("Put your ten letters in, and your first answers will be printed beside them.")
        return
    first = kept_answers(folder)
    earlier = [str(first.get(str(number), "-"))[:1] for number in range(1, len(CLAIMS) + 1)]
    for number, (claim, before, now, settled) in enumerate(zip(CLAIMS, earlier, letters, SETTLED, strict=True), 1):
        found, where, why = settled
        notebooks = "notebooks" if "," in where else "notebook"
        print(f"{number:2}. {claim}\n    first {before}, now {now}, found {found}: {why} ({notebooks} {where})")
    print(f"Right: {_right(earlier)} of {len(CLAIMS)} at first, {_right(letters)} of {len(CLAIMS)} now.")


def _right(answers: Iterable[str]) -> int:
    """How many of ten answers agree with what was found."""
    return sum(answer == found for answer, (found, _, _) in zip(answers, SETTLED, strict=True))


def _letters(answers: str) -> str:
    """The ten letters, in capitals; an empty string, and a sentence in print, where they are something else."""
    letters = str(answers).strip().upper().replace(" ", "")
    if len(letters) == len(CLAIMS) and not set(letters) - set("TF?"):
        return letters
    print(f"Write {len(CLAIMS)} letters, each T, F or ?; this was {answers!r}.")
    return ""


def _answers_file(folder: str | Path | None) -> Path:
    return Path(folder or Path.home() / ".speculative_sampling") / "answers.json"
