"""The published results of AMD Instinct entries, rounds 5.0 to 6.0, to compare with. Standard
library only.

for result in find(benchmark="llama2_70b_lora", round="6.0", system="MI355X_1x8x1"):
    print(compare(8.31, result))    # 8.31 min, 0.5 % slower than the published 8.27 min
"""

from __future__ import annotations

from orchestrator.published.results import (
    OtherResult,
    PublishedResult,
    compare,
    difference,
    find,
    known_names,
    label,
    load,
    of_set,
    others,
    sentence,
    signed,
    wording,
)

__all__ = [
    "OtherResult",
    "PublishedResult",
    "compare",
    "difference",
    "find",
    "known_names",
    "label",
    "load",
    "of_set",
    "others",
    "sentence",
    "signed",
    "wording",
]
