"""A benchmark, not a test: this loop beside transformers' assisted generation, on the embedded pair.

    python -m tests.bench_assisted [--gamma 4] [--texts 40]

Both use the same models, gamma, temperature 1 and no filter.  The two draw different texts, so what is compared is
the time per target pass (and the tokens per second over all texts), texts alternating within one run.  It also
prints the time that a round spends outside the two models' forward passes.  transformers 5.15 cannot draft 4 or more
at a fixed length with the confidence threshold off: use --gamma 3 there.
"""

import argparse
import statistics
import time

import torch
import transformers

import spec_lib as sl


class Watch:
    """Counts a model's calls and the seconds inside them."""

    def __init__(self, model):
        self.calls, self.seconds, forward = 0, 0.0, model.forward

        def timed(*arguments, **options):
            started = time.perf_counter()
            out = forward(*arguments, **options)
            self.seconds += time.perf_counter() - started
            self.calls += 1
            return out

        timed.__signature__ = __import__("inspect").signature(forward)
        model.forward = timed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--gamma", type=int, default=4)
    parser.add_argument("--texts", type=int, default=40)
    parser.add_argument("--new", type=int, default=64)
    args = parser.parse_args()
    torch.set_num_threads(1)
    pair = sl.load_pair("tiny")
    target, draft = Watch(pair.target), Watch(pair.draft)
    draft_settings = pair.draft.generation_config
    draft_settings.num_assistant_tokens = args.gamma
    draft_settings.num_assistant_tokens_schedule = "constant"
    draft_settings.assistant_confidence_threshold = 0.0
    ids = pair.encode("Once upon a time there was a king who had three")

    def ours(seed: int) -> int:
        g = sl.speculative(pair.target, pair.draft, ids, args.new, gamma=args.gamma, generator=seed)
        return len(g.tokens)

    def theirs(seed: int) -> int:
        torch.manual_seed(seed)
        out = pair.target.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            assistant_model=pair.draft,
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            max_new_tokens=args.new,
            eos_token_id=None,
            pad_token_id=0,
        )
        return out.shape[1] - ids.shape[1]

    rows: dict = {
        name: {"seconds": [], "tokens": 0, "passes": 0, "outside": []} for name in ("spec_lib", "transformers")
    }
    for seed in range(args.texts + 2):
        for name, write in (("spec_lib", ours), ("transformers", theirs)):
            before = target.calls, target.seconds + draft.seconds
            started = time.perf_counter()
            tokens = write(seed)
            spent = time.perf_counter() - started
            if seed < 2:  # warm-up
                continue
            row, passes = rows[name], target.calls - before[0]
            row["seconds"].append(spent)
            row["tokens"] += tokens
            row["passes"] += passes
            row["outside"].append((spent - (target.seconds + draft.seconds - before[1])) / passes)
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, gamma {args.gamma}, temperature 1")
    for name, row in rows.items():
        total = sum(row["seconds"])
        print(
            f"{name:13} {row['tokens'] / total:6.0f} tokens/s  {1000 * total / row['passes']:6.2f} ms a target pass  "
            f"{row['tokens'] / row['passes']:.2f} tokens a pass  "
            f"{1000 * statistics.median(row['outside']):.2f} ms a round outside the forward passes"
        )
    a, b = (sum(r["seconds"]) / r["passes"] for r in rows.values())
    print(f"time per target pass, transformers over spec_lib: {b / a:.2f}")


if __name__ == "__main__":
    main()
