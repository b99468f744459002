"""A stand-in for the Hugging Face hub on loopback: it serves models to the real download path, and fails on request.

    with Hub(folders) as hub:           # folders: {"owner/name": a folder with the model's files}
        hub.fail("owner/name", 503)     # what the next requests get, until hub.heal()
        hub.asked                       # ["HEAD owner/name/config.json", ...] since it was last cleared

A fault is a status of HTTP, or "half" (the connection ends in the middle of a file), "garbage" (as many bytes as
promised, and other ones), "silence" (the request is accepted and never answered), "portal" (a page to log in on, as
some networks answer), or a dict of files that replace the model's own, as another commit (None: no such file).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT, OTHER = "0123456789abcdef0123456789abcdef01234567", "f" * 40
# What the hub adds to a status, so that its client can say more than the number.
CODES = {401: "RepoNotFound", 403: "GatedRepo", 404: "RepoNotFound"}

GPT2 = {  # as published, but for the number of layers
    "activation_function": "gelu_new",
    "architectures": ["GPT2LMHeadModel"],
    "attn_pdrop": 0.1,
    "bos_token_id": 50256,
    "embd_pdrop": 0.1,
    "eos_token_id": 50256,
    "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05,
    "model_type": "gpt2",
    "n_ctx": 1024,
    "n_layer": 1,
    "n_positions": 1024,
    "resid_pdrop": 0.1,
    "summary_activation": None,
    "summary_first_dropout": 0.1,
    "summary_proj_to_labels": True,
    "summary_type": "cls_index",
    "summary_use_proj": True,
    "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
    "vocab_size": 50257,
}


class Hub:
    def __init__(self, folders: dict[str, Path], port: int = 0):
        self.folders = folders
        self.asked: list[str] = []
        self.faults: dict[str, tuple] = {}
        self.ended = threading.Event()
        self.server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.server.daemon_threads, self.server.block_on_close, self.server.hub = True, False, self
        self.port = self.server.server_address[1]
        self.address = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Hub:
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.server.shutdown()
        self.server.server_close()

    def fail(self, name: str, fault: int | str | dict, files: str = ".*", methods: str = ".*", **headers: str) -> None:
        """Requests for `name` whose file and method match fail from now on."""
        self.faults[name] = (fault, files, methods, headers)

    def heal(self) -> None:
        self.faults.clear()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer()

    def do_GET(self):
        self.answer()

    def answer(self) -> None:
        hub = self.server.hub
        path = self.path.split("?")[0]
        match = re.fullmatch(r"/(?:api/models/)?([^/]+/[^/]+)(?:/(resolve|revision|tree)/([^/]+)(?:/(.+))?)?", path)
        name, kind, revision, file = match.groups() if match else (None, None, None, None)
        asked = file if kind == "resolve" else f"api {kind or ''} {file or ''}".strip()
        hub.asked.append(f"{self.command} {name}/{asked}")
        fault, files, methods, headers = hub.faults.get(name, (None, ".*", ".*", {}))
        if not (re.fullmatch(files, asked) and re.fullmatch(methods, self.command)):
            fault, headers = None, {}

        if fault == "silence":
            hub.ended.wait()
            self.close_connection = True
            return
        if fault == "portal":
            return self.reply(200, b"<html>Log in</html>", {"Content-Type": "text/html"})
        if isinstance(fault, int):
            return self.reply(fault, b"", {"X-Error-Code": CODES.get(fault, ""), **headers})
        if name not in hub.folders:
            return self.reply(404, b"", {"X-Error-Code": "RepoNotFound"})
        folder = hub.folders[name]
        contents = {f.name: f for f in folder.iterdir()} | (fault if isinstance(fault, dict) else {})
        pinned = re.fullmatch("[0-9a-f]{40}", revision or "")
        commit = revision if pinned else OTHER if isinstance(fault, dict) else COMMIT
        if kind != "resolve":
            return self.api(kind, file, commit, contents)
        content = contents.get(file)
        if content is None:
            return self.reply(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit})
        content = content.read_bytes() if isinstance(content, Path) else content
        headers = {"X-Repo-Commit": commit, "ETag": f'"{etag(content)}"', "Accept-Ranges": "bytes"}
        if fault == "garbage":
            content = bytes(b ^ 0x55 for b in content[:4096]) + content[4096:]
        status, first = 200, 0
        if asked_range := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
            first = int(asked_range[1])
            if first >= len(content):
                return self.reply(416, b"", {"Content-Range": f"bytes */{len(content)}"})
            status = 206
            headers["Content-Range"] = f"bytes {first}-{len(content) - 1}/{len(content)}"
        self.reply(status, content[first:], headers, cut=fault == "half")

    def api(self, kind: str | None, file: str | None, commit: str, contents: dict) -> None:
        """What the hub tells of a model beside its files."""
        if kind == "tree" and file:  # a folder of chat templates, which GPT-2 has not
            return self.reply(404, b"", {"X-Error-Code": "EntryNotFound"})
        files = [name for name, content in contents.items() if content is not None]
        about = {"id": "a/b", "sha": commit, "siblings": [{"rfilename": name} for name in files], "tags": []}
        tree = [{"type": "file", "path": name, "size": 1, "oid": "0" * 40} for name in files]
        body = json.dumps(tree if kind == "tree" else about).encode()
        self.reply(200, body, {"Content-Type": "application/json"})

    def reply(self, status: int, body: bytes, headers: dict[str, str], cut: bool = False) -> None:
        self.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        with contextlib.suppress(OSError):  # the client may have gone
            self.wfile.write(body[: len(body) // 2] if cut else body)
        self.close_connection = self.close_connection or cut


def etag(content: bytes) -> str:
    """As the hub does: the SHA-256 of a large file, git's SHA-1 of a small one."""
    if len(content) > 1_000_000:
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def write_models(folder: Path) -> dict[str, Path]:
    """{"target": ..., "draft": ...}: folders as GPT-2's on the hub, with its configuration but for layers and width.

    Random weights in 16 bit, and a tokenizer of bytes, three merges and the end at GPT-2's id.
    """
    import torch
    from safetensors.torch import save_file
    from transformers import GPT2Config, GPT2LMHeadModel

    from tests.helpers.tokenizers import END, byte_bpe, byte_tokens

    merges = [("t", "h"), ("th", "e"), ("\u0120", "the")]
    tokens = [*byte_tokens(), *(a + b for a, b in merges)]
    vocab = {token: i for i, token in enumerate(tokens)} | {END: 50256}
    made = {}
    for seed, (name, layers) in enumerate((("target", 2), ("draft", 1))):
        files = made[name] = folder / name
        files.mkdir(parents=True)
        config = {**GPT2, "n_embd": 16, "n_head": 2, "n_layer": layers}
        (files / "config.json").write_text(json.dumps(config))
        (files / "generation_config.json").write_text('{"bos_token_id": 50256, "eos_token_id": 50256}')
        (files / "vocab.json").write_text(json.dumps(vocab))
        (files / "merges.txt").write_text("#version: 0.2\n" + "\n".join(" ".join(m) for m in merges) + "\n")
        byte_bpe(vocab, merges, [END]).save(str(files / "tokenizer.json"))
        (files / "tokenizer_config.json").write_text('{"model_max_length": 1024}')
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            weights = GPT2LMHeadModel(GPT2Config(**config)).transformer.state_dict()
        prefix = "transformer." if name == "draft" else ""  # on the hub, distilgpt2 has it and gpt2-large has not
        weights = {prefix + key: tensor.half() for key, tensor in weights.items()}
        save_file(weights, files / "model.safetensors", {"format": "pt"})
    return made
