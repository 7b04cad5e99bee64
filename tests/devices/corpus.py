"""The recorded TensorFlow programs with every operation on a device of another library.

    python -m tests.devices.corpus [--engine interpret] [--sample N] [--all]

prints how many of the programs whose op types have kernels on the device gave the recorded results there, and each
failure. An operation without a kernel for its dtypes runs on the CPU (soft placement).
"""

from __future__ import annotations

import argparse
import random
import time
import types
from collections import Counter
from typing import Any

import headrace as hr
from headrace.ir.kernel import has_kernel
from headrace.ir.opdef import op_registry
from tests.corpus.test_corpus import CORE, KNOWN, STEP_MS, STRUCTURED, corpus, replay
from tests.multi.scattering import scatter

TYPE = "TORCH"
#: Op types that say where something happens, and need no kernel.
_OF_STRUCTURE = ("Placeholder", "PlaceholderWithDefault", "NoOp", "_Arg", "_Retval")


def is_declared(type: str) -> bool:
    """Whether an op type runs on a device with a namespace."""
    if type not in op_registry:
        return False
    record = op_registry.get(type)
    if record.xp or record.primitive or record.structured or type in _OF_STRUCTURE:
        return True
    return has_kernel(type, {k: v.default for k, v in record.attrs.items()}, TYPE)


def declared_programs() -> list[str]:
    """The programs all of whose op types are declared, without known failures."""
    return [
        e["id"]
        for e in corpus.index
        if e["id"] not in KNOWN and all(is_declared(t) or t not in op_registry for t in e["ops"])
    ]


class OnDevice:
    """`open_headrace` with every operation on the device.

    Args:
      engine: the engine of the session.
      type: the type of the device.
    """

    def __init__(self, engine: str = "auto", type: str = TYPE) -> None:
        self.engine = engine
        self.type = type

    def __call__(self, graph: bytes, config: dict[str, Any]) -> Any:
        g = hr.Graph()
        with g.as_default():
            hr.import_graph_def(graph, name="")
        scatter(g, random.Random(0), [f"/device:{self.type}:0"])
        limit = config.get("operation_timeout_in_ms", STEP_MS)
        count = (config.get("device_count") or {}).get("CPU", 1)
        settings = {"operation_timeout_in_ms": limit}
        session = hr.Session(graph=g, config=settings, devices={"CPU": count, self.type: 1}, engine=self.engine)

        def run(fetches: list[str], targets: list[str], feeds: dict[str, Any], timeout_ms: float | None = None) -> Any:
            return list(session.run([*fetches, *targets], feeds, timeout_ms=timeout_ms))[: len(fetches)]

        return types.SimpleNamespace(
            run=run,
            close=session.close,
            partial_run=session.partial_run,
            partial_run_setup=lambda fetches, targets, feeds: session.partial_run_setup([*fetches, *targets], feeds),
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--all", action="store_true", help="programs with undeclared op types, too")
    args = parser.parse_args()
    hr.Session(graph=hr.Graph(), devices={TYPE: 1}).close()
    programs = [e["id"] for e in corpus.index if e["id"] not in KNOWN] if args.all else declared_programs()
    total = len(programs)
    core = [p for p in programs if p in {*CORE, *STRUCTURED}]
    if args.sample:
        programs = random.Random(0).sample(programs, min(args.sample, total))
    failed: Counter[str] = Counter()
    start = time.perf_counter()
    for program in programs:
        try:
            replay.execute(corpus.load(program), OnDevice(args.engine), replay.TOL)
        except Exception as e:
            text = str(e).strip().splitlines()
            failed[program] += 1
            print(f"{program}: {type(e).__name__}: {' | '.join(text)[:300]}", flush=True)
    n = len(programs)
    print(f"{total} programs, {len(core)} of the core; {n - len(failed)} of {n} as recorded: ", end="")
    print(f"{100 * (n - len(failed)) / max(n, 1):.1f} % in {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
