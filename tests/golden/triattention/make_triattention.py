#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes triattention.json: TriAttention scores by the formulas of the paper, one key at a time.

Mao et al. 2026, arXiv:2604.04921, equations 6 and 8 to 13. Independent of policy/triattention.cc:
complex numbers, keys before RoPE and explicit distances, all in float64, where the runtime uses
the keys as cached (rotated by their position) and one rotated vector per head.
Needs NumPy (made with 2.4). Usage: make_triattention.py > triattention.json
"""

import json

import numpy as np

OFFSETS = [2**i for i in range(17)]


def as_complex(x, pairs):
    """[..., D] to [..., D / 2]."""
    half = x.shape[-1] // 2
    if pairs == "half":
        return x[..., :half] + 1j * x[..., half:]
    return x[..., 0::2] + 1j * x[..., 1::2]


def as_real(z, pairs):
    out = np.empty(z.shape[:-1] + (2 * z.shape[-1],))
    if pairs == "half":
        out[..., : z.shape[-1]], out[..., z.shape[-1] :] = z.real, z.imag
    else:
        out[..., 0::2], out[..., 1::2] = z.real, z.imag
    return out


def scores(queries, keys, frequencies, pairs):
    """queries [g, N, D] and keys [N, D] before RoPE; result [N]."""
    count = len(keys)
    best = np.full(count, -np.inf)
    k = as_complex(keys, pairs)
    for head in queries:
        q = as_complex(head, pairs)
        center, length = q.mean(axis=0), np.abs(q).mean(axis=0)
        concentration = np.abs(center) / length  # R_f, eq. 2
        s = np.zeros(count)
        for j in range(count):
            phase = np.angle(center) - np.angle(k[j])
            for offset in OFFSETS:
                distance = (count - 1 + offset) - j
                trig = np.abs(center) * np.abs(k[j]) * np.cos(frequencies * distance + phase)
                norm = (1 - concentration) * length * np.abs(k[j])
                s[j] += (trig.sum() + norm.sum()) / len(OFFSETS)
        best = np.maximum(best, (s - s.mean()) / s.std())
    return best


def numbers(x):
    """Shortest decimals that give the float32 back."""
    return [float(f"{v:.9g}") for v in np.asarray(x, np.float32).ravel()]


def case(name, seed, group, count, dim, base, pairs):
    rng = np.random.default_rng(seed)
    frequencies = np.float32(base ** (-2 * np.arange(dim // 2) / dim)).astype(np.float64)
    # Centres of their own length per pair, so that concentrated and scattered pairs both occur.
    spread = rng.uniform(0.1, 2.0, dim)
    queries = rng.normal(0, 1, (group, 1, dim)) + spread * rng.normal(0, 1, (group, count, dim))
    keys = rng.normal(0, 1, dim) + rng.normal(0, 1, (count, dim))
    queries = queries.astype(np.float32).astype(np.float64)
    turn = np.exp(1j * np.outer(np.arange(count), frequencies))
    cached = as_real(as_complex(keys, pairs) * turn, pairs).astype(np.float32).astype(np.float64)
    keys = as_real(as_complex(cached, pairs) / turn, pairs)
    return {
        "name": name,
        "group": group,
        "tokens": count,
        "head_dim": dim,
        "pairs": pairs,
        "frequencies": numbers(frequencies),
        "queries_before_rope": numbers(queries),
        "keys_after_rope": numbers(cached),
        "scores": [float(f"{v:.9g}") for v in scores(queries, keys, frequencies, pairs)],
    }


print(
    json.dumps(
        {
            "source": "arXiv:2604.04921, equations 6 and 8 to 13; centres over all N queries",
            "tolerance_absolute": 1e-4,
            "cases": [
                case("half", 1, 3, 40, 16, 10000.0, "half"),
                case("interleaved", 2, 2, 33, 8, 500000.0, "interleaved"),
                case("one_head", 3, 1, 65, 16, 1000000.0, "half"),
            ],
        },
        separators=(",", ":"),
    )
)
