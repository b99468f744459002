"""Wrong answers to the exercises of notebook 06: (exercise, implementation, words of the checker's message)."""

from spec_lib.checks import check_fed_in_round, check_pending_for_draft, check_trims

CHECKERS = {
    "trims": check_trims,
    "pending_for_draft": check_pending_for_draft,
    "fed_in_round": check_fed_in_round,
}

WRONG = [
    ("trims", lambda gamma, n: (gamma - n, gamma - n), "cut as much as the target"),
    ("trims", lambda gamma, n: (gamma - n, gamma - 1 - n), "negative number"),
    ("trims", lambda gamma, n: (max(gamma - 1 - n, 0), gamma - n), "swapped"),
    ("trims", lambda gamma, n: (gamma + 1 - n, gamma - n), "one cut too many"),
    ("trims", lambda gamma, n: (n, min(n, gamma - 1)), "how much stays"),
    ("pending_for_draft", lambda drafted, n, token: [token], "own last token is forgotten"),
    ("pending_for_draft", lambda drafted, n, token: [drafted[n - 1], token] if n else [token], "accepted token is fed"),
    ("pending_for_draft", lambda drafted, n, token: drafted[:n] + [token], "all accepted tokens"),
    ("pending_for_draft", lambda drafted, n, token: [drafted[-1], token], "also where it was rejected"),
    ("pending_for_draft", lambda drafted, n, token: drafted[n : n + 1] + [token], "the rejected token is fed"),
    (
        "pending_for_draft",
        lambda drafted, n, token: [token, drafted[-1]] if n == len(drafted) else [token],
        "wrong order",
    ),
    (
        "pending_for_draft",
        lambda drafted, n, token: [drafted[-1]] if n == len(drafted) else [token],
        "bonus token is missing",
    ),
    (
        "fed_in_round",
        lambda size, gamma, cached, full: (gamma, gamma + full) if cached else (size + gamma - 1, size * gamma),
        "does not read the text's last token",
    ),
    (
        "fed_in_round",
        lambda size, gamma, cached, full: (
            (gamma + 1, gamma + 1) if cached else (size + gamma, sum(range(size, size + gamma + 1)))
        ),
        "reads its own last token",
    ),
    (
        "fed_in_round",
        lambda size, gamma, cached, full: (
            (gamma + 1, gamma) if cached else (size + gamma, sum(range(size, size + gamma)))
        ),
        "debt after a full acceptance is forgotten",
    ),
    (
        "fed_in_round",
        lambda size, gamma, cached, full: (
            (gamma + 1 + full, gamma + full) if cached else (size + gamma, sum(range(size, size + gamma)))
        ),
        "debt is the draft's alone",
    ),
    (
        "fed_in_round",
        lambda size, gamma, cached, full: (gamma + 1, gamma + full) if cached else (size + gamma, size * gamma),
        "grown by one",
    ),
    (
        "fed_in_round",
        lambda size, gamma, cached, full: (
            (gamma + 1, gamma + full) if cached else (size + gamma, sum(range(size, size + gamma)) + full)
        ),
        "no debt either",
    ),
]
