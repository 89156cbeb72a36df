"""A training loop of PyTorch that saves as it goes, and goes on where it was stopped.

    python torch_training.py runs/torch 200      # stop it with Ctrl-C, and start it again

Needs torch and shardwright.
"""
import sys

import torch

import shardwright


def batch_of(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(64, 8, generator=generator)
    return x, x.sum(dim=1, keepdim=True).sin()


def main(directory: str, steps: int) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    with shardwright.CheckpointManager(directory, keep_last=3, keep_every=100, best_metric="loss") as manager:
        latest = manager.latest()
        if latest is not None:
            # The optimizer has no state before its first step: where the target has nothing, it takes what was saved.
            state = manager.restore(target={"model": model.state_dict(), "optimizer": optimizer.state_dict()})
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
            print(f"goes on after step {latest}, loss {manager.metrics()['loss']:.4f}")
        for step in range(0 if latest is None else latest + 1, steps):
            x, y = batch_of(step)
            loss = torch.nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 10 == 9:
                manager.save(step, {"model": model.state_dict(), "optimizer": optimizer.state_dict()}, metrics={"loss": loss.item()})
    print(f"loss {loss.item():.9g}" if latest is None or latest + 1 < steps else "was done already")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "runs/torch", int(sys.argv[2]) if len(sys.argv) > 2 else 200)
