"""Did a change of the code change a layer? Digests of many layers in one commit, to be compared with another's.

    python benchmarks/digests.py --commit BASE --to base.jsonl
    python benchmarks/digests.py --to head.jsonl
    python benchmarks/digests.py --compare base.jsonl head.jsonl

The layers are those of the corpus of the tests and of the first formulas of the campaign (``--formulas``), in float32.
A line a layer: its terms in order, its tables, what it returns for fixed raw values, for every twentieth its
certificate, each as a hash; or the error that refused it. Without ``--commit`` the code is the working tree as it is.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT), str(ROOT / "tests")]

ROWS = 64
SECONDS = 60.0
"""How long one layer may take; who takes longer is left out of the comparison."""
CERTIFIED_EVERY = 20
TOGETHER = 200
"""Layers of one process; then another begins, with the memory that these have taken."""
FIELDS = ("terms", "shape", "tables", "outputs", "certificate", "error")
Line = dict[str, Any]


# --- which layers ----------------------------------------------------------------------------------------------------


def corpus() -> Iterator[Line]:
    from corpus import CASES

    for case in CASES:
        yield {"name": f"corpus {case.name}", "text": case.text, "certified": True}


def formulas(seed: int, first: int, count: int) -> Iterator[Line]:
    from campaign.variants import sentence

    for index in range(first, count):
        yield {
            "name": f"formula {seed}/{index}",
            "text": str(sentence(seed, index)),
            "certified": index % CERTIFIED_EVERY == 0,
        }


# --- the process of one commit ---------------------------------------------------------------------------------------


def digest(content: bytes | str) -> str:
    data = content.encode() if isinstance(content, str) else content
    return sha256(data).hexdigest()[:16]


def term_texts(blocks: Iterable[Any]) -> list[Any]:
    """Every term as text, with the terms of the blocks that it goes on in."""
    return [
        [(str(term), term_texts(term.blocks)) for term in block.terms]
        for block in blocks
    ]


def bits(tensor: Any) -> bytes:
    import torch

    if tensor.dtype == torch.bfloat16:
        tensor = tensor.view(torch.int16)
    content: bytes = tensor.detach().contiguous().numpy().tobytes()
    return content


def inputs_of(rules: Any) -> dict[str, Any]:
    """Numbers within the declared ranges, the ends among them."""
    import torch

    given = {}
    for place, variable in enumerate(rules.inputs):
        lower = getattr(variable.domain, "lower", None)
        upper = getattr(variable.domain, "upper", None)
        low = -3.0 if lower is None else float(lower)
        high = max(low, 0.0) + 3 if upper is None else float(upper)
        shares = torch.linspace(0, 1, ROWS, dtype=torch.float64).roll(7 * place)
        given[variable.name] = (low + (high - low) * shares).float()
    return given


def raw_rows(width: int) -> Any:
    """Ordinary, large and infinite raw values."""
    import torch

    generator = torch.Generator().manual_seed(0)
    z = torch.randn(ROWS, width, generator=generator)
    sizes = torch.tensor([1.0, 1.0, 30.0, 1e30, torch.inf])
    return z * sizes[torch.arange(ROWS) % len(sizes)].unsqueeze(-1)


def described(question: Line) -> Line:
    """What there is to compare of one layer."""
    import torch
    from corpus import FUNCTIONS as OF_THE_CORPUS

    import multiplexnet as mx
    from campaign.calls import FUNCTIONS
    from multiplexnet.transforms.tables import named_tables

    rules = mx.Rules(question["text"])
    known: dict[str, Any] = {**FUNCTIONS, **OF_THE_CORPUS}
    functions = {name: known[name] for name in rules.specification.functions}
    mux = mx.Multiplexer(
        rules, dtype=torch.float32, functions=functions, seconds=SECONDS
    ).eval()
    cascades = [[str(v.name) for v in cascade.order] for cascade in mux.cascades]
    steps = sorted((name, str(step)) for name, step in mux.resolution.items())
    tables = sorted(digest(bits(table)) for _, table in named_tables(mux))
    found = {
        "terms": digest(json.dumps(term_texts(mux.blocks))),
        "shape": digest(json.dumps([mux.in_features, cascades, steps])),
        "tables": digest(json.dumps(tables)),
    }
    if question["certified"]:
        found["certificate"] = digest(mux.certificate.to_json())
    with torch.no_grad():
        found["outputs"] = answers(mux, inputs_of(rules))
    return found


def answers(mux: Any, given: Line) -> str:
    raw = raw_rows(mux.in_features)
    try:
        return digest(bits(mux(raw, **given).best()))
    except Exception as error:  # inputs that leave nothing, perhaps
        return f"{type(error).__name__}: {error}"


def serve() -> None:
    """Answers questions, a line of JSON each."""
    import torch

    torch.set_num_threads(1)
    for line in sys.stdin:
        question = json.loads(line)
        try:
            found = described(question)
        except Exception as error:  # a refusal is a result
            found = {"error": f"{type(error).__name__}: {error}"}
        own = {key: question[key] for key in ("name", "text")}
        print(json.dumps(own | found), flush=True)


def write(source: Path, questions: Iterable[Line], target: Path) -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": f"{source}{os.pathsep}{ROOT}",
        "OMP_NUM_THREADS": "1",
    }
    lines = [json.dumps(question) + "\n" for question in questions]
    with target.open("w", encoding="utf-8") as out:
        for start in range(0, len(lines), TOGETHER):
            subprocess.run(
                [sys.executable, str(Path(__file__).resolve()), "--serve"],
                input="".join(lines[start : start + TOGETHER]),
                stdout=out,
                text=True,
                env=environment,
                check=True,
            )


# --- both ------------------------------------------------------------------------------------------------------------


def lines(path: Path) -> dict[str, Line]:
    text = path.read_text(encoding="utf-8")
    return {own["name"]: own for own in map(json.loads, text.splitlines())}


def compare(first: Path, second: Path) -> int:
    """Prints what differs, and how much does not; the number of layers that differ."""
    base = lines(first)
    head = lines(second)
    counts: Counter[str] = Counter()
    differing = 0
    for name in base.keys() & head.keys():
        old = base[name]
        new = head[name]
        if any("CompileTimeout" in own.get("error", "") for own in (old, new)):
            counts["left out: took too long"] += 1
            continue
        counts["refused" if "error" in old else "built"] += 1
        other = [f for f in ("text", *FIELDS) if old.get(f) != new.get(f)]
        if other:
            differing += 1
            print(f"{name}: other {', '.join(other)}")
            print(f"    {old.get('error', '')}\n    {new.get('error', '')}")
    for what, count in sorted(counts.items()):
        print(f"{what}: {count:,}")
    print(f"only in one of the files: {len(base.keys() ^ head.keys()):,}")
    print(f"differ: {differing:,}")
    return differing


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--commit", help="as git names it (default: the working tree)")
    parser.add_argument("--to", type=Path, help="the file to write")
    parser.add_argument("--formulas", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0, help="the first formula")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compare", type=Path, nargs=2, metavar=("BASE", "HEAD"))
    options = parser.parse_args()
    if options.compare:
        sys.exit(compare(*options.compare) > 0)
    if options.to is None:
        parser.error("either --to or --compare")
    from compare import checked_out

    questions = [*formulas(options.seed, options.first, options.formulas)]
    if not options.first:
        questions = [*corpus(), *questions]
    with checked_out(options.commit) as source:
        write(source, questions, options.to)


if __name__ == "__main__":
    if sys.argv[1:] == ["--serve"]:
        serve()
    else:
        main()
