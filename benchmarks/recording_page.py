"""The page of a large recording in headless Chromium: loading and scrubbing."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from benchmarks.measure import Result
from tests.view import browser as browsers

AIM_LOAD = 3  # seconds
AIM_SCRUB = 30  # frames a second

#: Moves the current token to another place in each frame, and returns the seconds between the frames.
SCRUB = """async (frames) => {
  const seconds = [];
  app.moment.scrubbing = true;
  await new Promise(requestAnimationFrame);
  let last = performance.now();
  for (let frame = 0; frame < frames; frame++) {
    app.moment.seek((frame * 7919 * 13) % app.recording.length);
    await new Promise(requestAnimationFrame);
    const now = performance.now();
    seconds.push((now - last) / 1000);
    last = now;
  }
  app.moment.scrubbing = false;
  return seconds;
}"""

#: Views in which the page is scrubbed: as it opens, all of the graph, and all boxes opened.
VIEWS = {
    "as it opens": "null",
    "whole graph": "app.graph.fit()",
    "all boxes open": """new Promise((done) => { for (const each of app.model.containers) each.open = true;
      app.graph.layOut(() => { app.graph.fit(); done(); }); })""",
}


def recording_page(rounds: int = 5, frames: int = 120, name: str = "large") -> list[Result]:
    """Seconds to load 200,000 tokens, and frames a second of random jumps in time.

    The aims are `AIM_LOAD` and `AIM_SCRUB`. A round of scrubbing is `frames` frames; its value is frames divided by the
    time that they took, at most the 60 of the browser.

    Args:
      rounds: number of rounds.
      frames: number of frames of a round.
      name: document of `tests.view.documents`.
    """
    reason = browsers.missing()
    if reason:
        print(f"recording_page: {reason}", file=sys.stderr)
        return []
    results = []
    with tempfile.TemporaryDirectory() as folder, browsers.Browser() as browser:
        path = browsers.write(name, Path(folder))
        loads = []
        cpus = []
        for _ in range(rounds):
            with browser.open(path) as opened:
                loads.append(float(opened.run("document.documentElement.dataset.ready")) / 1000)
                cpus.append(opened.cpu_seconds())
        tokens = 0
        with browser.open(path) as opened:
            tokens = opened.run("app.recording.length")
            for view, script in VIEWS.items():
                opened.run(script)
                opened.settle()
                opened.run(f"({SCRUB})(10)")
                speeds = []
                slowest = 0.0
                cpu = opened.cpu_seconds()
                for _ in range(rounds):
                    seconds = opened.run(f"({SCRUB})({frames})")
                    speeds.append(frames / sum(seconds))
                    slowest = max(slowest, *seconds)
                cpu = (opened.cpu_seconds() - cpu) / (rounds * frames)
                facts = f"aim {AIM_SCRUB}; {cpu * 1000:.1f} ms of CPU a frame; slowest frame {slowest * 1000:.0f} ms"
                results.append(Result(f"page scrubbed, {view}", "frames/s", speeds, facts))
    load = Result("page loaded and drawn", "s", loads, f"aim {AIM_LOAD}; {min(cpus):.2f} s of CPU; {tokens:,} tokens")
    return [load, *results]


if __name__ == "__main__":
    from benchmarks.measure import table

    print(table(recording_page()))
