"""llama.cpp's own server inside this process, until our standard input closes.  It runs in xllamacpp's environment.

python serve.py PORT TARGET.gguf [DRAFT.gguf greedy|probabilistic]
"""

from __future__ import annotations

import sys


def main(port: str, target: str, draft: str = "", how: str = "greedy") -> None:
    import xllamacpp as x

    p = x.CommonParams()
    p.model.path, p.port, p.endpoint_metrics = target, int(port), True
    p.n_ctx, p.n_parallel = 8192, 8
    p.cpuparams.n_threads = p.cpuparams_batch.n_threads = 1
    p.cache_type_k = p.cache_type_v = x.ggml_type.GGML_TYPE_F32
    if draft:
        p.speculative.types = [x.common_speculative_type.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]  # a path is not enough
        p.speculative.draft.mparams.path = draft
        p.speculative.draft.n_max, p.speculative.draft.p_min = 4, 0.0
        p.speculative.draft.probabilistic = how == "probabilistic"
        p.speculative.draft.cache_type_k = p.speculative.draft.cache_type_v = p.cache_type_k
    server = x.Server(p)
    print("up", flush=True)
    sys.stdin.read()
    del server


if __name__ == "__main__":
    main(*sys.argv[1:])
