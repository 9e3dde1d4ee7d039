"""Four tiny trainings with a step log, to try `bft-replay xi measure` and `jobs fit` with.

    python train.py mlp --batch 64 --steps 200

They need NumPy alone and run on the processor; what they learn does not matter, how they use the machine does: `mlp`
multiplies dense matrices, `convolution` gathers windows, `attention` makes large products and a softmax, `embedding`
reads and writes memory at random. Each prints a line a step, as many trainings do.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

Step = Callable[[], float]


def mlp(batch: int, rng: np.random.Generator) -> Step:
    """Two dense layers, by gradient descent: time goes into matrix products."""
    inputs, target = rng.standard_normal((batch, 256)), rng.standard_normal((batch, 10))
    first, second = (
        rng.standard_normal((256, 512)) / 16,
        rng.standard_normal((512, 10)) / 23,
    )

    def step() -> float:
        hidden = np.maximum(inputs @ first, 0.0)
        error = hidden @ second - target
        back = (error @ second.T) * (hidden > 0)
        second[...] -= 1e-3 / batch * hidden.T @ error
        first[...] -= 1e-3 / batch * inputs.T @ back
        return float((error**2).mean())

    return step


def convolution(batch: int, rng: np.random.Generator) -> Step:
    """Filters of 5 x 5 over images: time goes into gathering windows and multiplying them."""
    images, target = (
        rng.standard_normal((batch, 28, 28)),
        rng.standard_normal((batch, 24, 24)),
    )
    kernel = rng.standard_normal((5, 5)) / 5

    def step() -> float:
        windows = np.lib.stride_tricks.sliding_window_view(images, (5, 5), axis=(1, 2))
        error = np.einsum("bijkl,kl->bij", windows, kernel) - target
        kernel[...] -= 1e-3 / error.size * np.einsum("bijkl,bij->kl", windows, error)
        return float((error**2).mean())

    return step


def attention(batch: int, rng: np.random.Generator) -> Step:
    """One head over sequences of 64: products of matrices and a softmax."""
    tokens = rng.standard_normal((batch, 64, 32))
    query, key = rng.standard_normal((32, 32)) / 6, rng.standard_normal((32, 32)) / 6

    def step() -> float:
        scores = (tokens @ query) @ (tokens @ key).swapaxes(1, 2) / 6
        weights = np.exp(scores - scores.max(axis=2, keepdims=True))
        weights /= weights.sum(axis=2, keepdims=True)
        mixed = weights @ tokens
        query[...] -= (
            1e-5 * np.einsum("bti,btj->ij", tokens, mixed) / batch
        )  # towards smaller outputs, roughly
        return float((mixed**2).mean())

    return step


def embedding(batch: int, rng: np.random.Generator) -> Step:
    """A table of half a million vectors, of which each step reads and writes some: time goes into memory."""
    table = rng.standard_normal((500_000, 16)).astype(np.float32)

    def step() -> float:
        rows = rng.integers(0, len(table), batch * 64)
        vectors = table[rows]
        table[rows] = vectors * 0.999
        return float((vectors**2).mean())

    return step


MODELS: dict[str, Callable[[int, np.random.Generator], Step]] = {
    "mlp": mlp,
    "convolution": convolution,
    "attention": attention,
    "embedding": embedding,
}


def main() -> None:
    """Train and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--batch", type=int, default=64, help="samples a step")
    parser.add_argument(
        "--steps",
        type=int,
        default=1_000_000,
        help="steps to do; whoever measures ends it before",
    )
    given = parser.parse_args()
    step = MODELS[given.model](given.batch, np.random.default_rng(0))
    for number in range(1, given.steps + 1):
        began = time.perf_counter()
        loss = step()
        seconds = time.perf_counter() - began
        print(
            f"step {number}: loss {loss:.4f}, step_time={seconds:.6f}, batch_size={given.batch}",
            flush=True,
        )


if __name__ == "__main__":
    main()
