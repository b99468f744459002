"""The optimizers: Muon for the matrices of the layers, AdamW for everything else (`train` says why)."""

from __future__ import annotations

import torch


def orthogonalise(g: torch.Tensor) -> torch.Tensor:
    """The nearest (semi-)orthogonal matrix to each of a stack (n, rows, columns), by five quintic steps."""
    flip = g.shape[-2] > g.shape[-1]
    x = g.mT if flip else g
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.mT if flip else x


class Muon(torch.optim.Optimizer):
    """Muon with Nesterov momentum; float32, one batched iteration for all matrices of a shape."""

    def __init__(self, params, lr: float, momentum: float = 0.95, weight_decay: float = 0.0):
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            shapes: dict[tuple, list] = {}
            for p in group["params"]:
                shapes.setdefault(tuple(p.shape), []).append(p)
            for shape, ps in shapes.items():
                updates = []
                for p in ps:
                    m = self.state[p].setdefault("momentum", torch.zeros_like(p))
                    m.lerp_(p.grad, 1 - group["momentum"])
                    updates.append(p.grad.lerp(m, group["momentum"]))
                scale = max(1.0, max(shape) / min(shape)) ** 0.5
                for p, u in zip(ps, orthogonalise(torch.stack(updates)), strict=True):
                    p.mul_(1 - group["lr"] * group["weight_decay"]).add_(u, alpha=-group["lr"] * scale)


def optimizers(model: torch.nn.Module, scale: float = 1.0) -> list[torch.optim.Optimizer]:
    """[Muon, AdamW] for a model; scale: of both learning rates."""
    hidden = [p for n, p in model.named_parameters() if p.ndim == 2 and ".h." in n]
    other = [p for n, p in model.named_parameters() if not (p.ndim == 2 and ".h." in n)]
    found = [
        Muon(hidden, lr=0.02 * scale, weight_decay=0.05),
        torch.optim.AdamW(other, lr=4e-3 * scale, betas=(0.9, 0.95), weight_decay=0.0),
    ]
    for optimizer in found:
        for group in optimizer.param_groups:
            group["base_lr"] = group["lr"]
    return found


def step_all(opts: list[torch.optim.Optimizer], share: float) -> None:
    """One step at the learning rate of this share of the time: up at once, soon straight down to zero."""
    factor = min(1.0, share / 0.01, (1.0 - share) / 0.85)
    for optimizer in opts:
        for group in optimizer.param_groups:
            group["lr"] = group["base_lr"] * max(factor, 1e-3)
        optimizer.step()
        optimizer.zero_grad()
