"""Short texts that samplers wrote elsewhere, as counts, and a test of each token given those before.  Notebook 07."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from .chi_squared import Weights

Text = tuple[int, ...]
Rows = Mapping[Text, torch.Tensor]  # what was written so far -> the next token's distribution (vocab,), float64

RECORDS = "sampled texts"  # how a file says what it holds: recordings of other kinds lie in the same folder
FILE = Path(__file__).parents[2] / "notebooks" / "recordings" / "vllm-55005.json"
_NOTHING = "no text begins as one of the rows does and goes on: give the rows of the prompt that it was written after."
MOST = 60  # beginnings whose next token is tested: each costs a row of a forward pass, and the others are rare


@dataclass(frozen=True)
class SampledTexts:
    """What several samplers wrote after one prompt, each many short texts of one length.

    about: where, when and how, in words.  prompt: its ids.  runs: {name of the run: how often it wrote each text}.
    """

    about: dict[str, str]
    prompt: Text
    runs: dict[str, Counter[Text]]


def sampled_texts(file: str | Path | None = None) -> SampledTexts:
    """Read a recording of sampled texts (None: the one that the course brings).

    ValueError where the file is no such recording, or holds a count that is none.
    """
    file = Path(file or FILE)
    try:
        given = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        given = None
    if not isinstance(given, dict) or given.get("records") != RECORDS or given.get("version") != 1:
        raise ValueError(f"{file.name} is no recording of sampled texts that this release can read.")
    try:
        about, prompt = dict(given["about"]), tuple(given["prompt"])
        runs = {name: Counter(dict(_flat(nested))) for name, nested in given["runs"].items()}
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{file.name} is damaged ({type(error).__name__}: {error}): fetch it anew.") from error
    for name, counts in runs.items():
        wrong = next((n for n in counts.values() if not isinstance(n, int) or n < 1), None)
        if wrong is not None:
            raise ValueError(f"{file.name}: in the run {name!r} a text was written {wrong} times; write 1 or more.")
        if len({len(text) for text in counts}) != 1:
            raise ValueError(f"{file.name}: the run {name!r} needs texts, all of one length.")
    return SampledTexts(about, prompt, runs)


def to_json(texts: SampledTexts) -> str:
    """The text of a file that `sampled_texts` reads: the counts of a run nested by token, a run a line."""
    runs = ",\n".join(f"{json.dumps(name)}: {_compact(_nested(counts))}" for name, counts in texts.runs.items())
    head = {"records": RECORDS, "version": 1, "about": texts.about, "prompt": texts.prompt}
    return f'{json.dumps(head)[:-1]}, "runs": {{\n{runs}\n}}}}\n'


@torch.no_grad()
def rows_after(
    model: torch.nn.Module, prompt: Text, texts: Iterable[Text], temperature: float = 1.0
) -> dict[Text, torch.Tensor]:
    """{text: the distribution of the token after the prompt and this text (vocab,), float64}, in one forward pass.

    model: a transformers model; in float64 its probabilities count as exact here.  texts: one or more, of one length.
    """
    texts = list(texts)
    more = torch.tensor(texts, dtype=torch.int64).view(len(texts), -1)
    ids = torch.cat([torch.tensor(prompt).expand(len(texts), -1), more], 1).to(model.device)
    logits = model(ids).logits[:, -1].cpu().double()  # (texts, vocab)
    return dict(zip(texts, (logits / temperature).softmax(-1), strict=True))


def likeliest_rows(
    model: torch.nn.Module, prompt: Text, length: int, temperature: float = 1.0, most: int = MOST
) -> dict[Text, torch.Tensor]:
    """`rows_after` the `most` likeliest texts of `length` tokens: those that extend the likeliest of one token less."""
    rows = rows_after(model, prompt, [()], temperature)
    shares = torch.ones(1, dtype=torch.float64)
    for _ in range(length):
        texts, joint = list(rows), (shares[:, None] * torch.stack(list(rows.values()))).flatten()
        shares, at = joint.topk(min(most, len(joint)))
        vocab = len(joint) // len(texts)
        rows = rows_after(model, prompt, [(*texts[i // vocab], i % vocab) for i in at.tolist()], temperature)
    return rows


def conditional(counts: Mapping[Text, int], rows: Rows) -> tuple[Counter[int], Weights]:
    """What followed the texts of `rows`, and its distribution if every token was drawn from its row.

    Returns ({token: how often}, {token: probability}), for `goodness_of_fit`.  The texts before the token are taken as
    they were written, right or wrong: token y is expected sum n(text) p(y | text) times, where n counts the texts in
    `counts` that begin so.  A sum of draws from different rows varies a little less than draws from their mean do, so
    that the test's significance level is at most the chosen one.  ValueError where nothing begins so.
    """
    seen, before = Counter(), Counter()
    for text, n in counts.items():
        for begun, token in _split(text, rows):
            before[begun] += n
            seen[token] += n
    if not before:
        raise ValueError(_NOTHING)
    expected = sum(n * rows[begun] for begun, n in before.items()) / sum(before.values())
    return seen, dict(enumerate(expected.tolist()))


def ranks(counts: Mapping[Text, int], rows: Rows) -> tuple[torch.Tensor, torch.Tensor]:
    """(seen, expected), each (vocab,) float64: how often the next token was its row's likeliest, its second, ..."""
    order = {text: row.argsort(descending=True, stable=True) for text, row in rows.items()}
    rank = {text: by.argsort() for text, by in order.items()}
    size = len(next(iter(rows.values())))
    seen, expected = torch.zeros(size, dtype=torch.float64), torch.zeros(size, dtype=torch.float64)
    for text, n in counts.items():
        for begun, token in _split(text, rows):
            seen[rank[begun][token]] += n
            expected += n * rows[begun][order[begun]]
    return seen, expected


def share_of(counts: Mapping[Text, int], rows: Rows, marked: Mapping[Text, int]) -> tuple[float, float]:
    """(seen, expected): the share of next tokens that are the one marked for the text before.

    marked: {text: token}, for each of the rows.  ValueError where nothing begins as one of the rows does.
    """
    seen = expected = total = 0.0
    for text, n in counts.items():
        for begun, token in _split(text, rows):
            seen, total = seen + n * (token == marked[begun]), total + n
            expected += n * float(rows[begun][marked[begun]])
    if not total:
        raise ValueError(_NOTHING)
    return seen / total, expected / total


def _split(text: Text, rows: Rows) -> list[tuple[Text, int]]:
    """[(what comes before, the token)] where the text begins as one of the rows does and goes on; else nothing."""
    length = len(next(iter(rows)))
    return [(text[:length], text[length])] if len(text) > length and text[:length] in rows else []


def _flat(nested: object, before: Text = ()) -> list[tuple[Text, object]]:
    if not isinstance(nested, dict):
        return [(before, nested)]
    return [pair for token, rest in nested.items() for pair in _flat(rest, (*before, int(token)))]


def _nested(counts: Mapping[Text, int]) -> dict:
    found: dict = {}
    for text in sorted(counts):
        inner = found
        for token in text[:-1]:
            inner = inner.setdefault(str(token), {})
        inner[str(text[-1])] = counts[text]
    return found


def _compact(nested: dict) -> str:
    return json.dumps(nested, separators=(",", ":"))
