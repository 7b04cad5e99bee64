"""Training that is killed and goes on: `make demo`.

Runs `digits_lstm.py` in a process of its own, kills the process half-way with a signal that no program can catch, and
starts it again. Training resumes from the last checkpoint. Then shows the files: checkpoints, a trace, a log for
TensorBoard, a picture of the learning curve, and a page that shows the network at work.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from pathlib import Path

import headrace as hr
from headrace import cli

PROGRAM = Path(__file__).with_name("digits_lstm.py")
PATIENCE = 300.0  # seconds that either run may take


def saved_step(folder: Path) -> int:
    """The step of the last checkpoint in a folder; -1 if there is none."""
    path = hr.train.latest_checkpoint(str(folder))
    return -1 if path is None else int(path.rpartition("-")[2])


def started(folder: Path, steps: int, save_steps: int) -> subprocess.Popen[bytes]:
    options = ["--folder", folder, "--steps", steps, "--save-steps", save_steps]
    return subprocess.Popen([sys.executable, PROGRAM, *map(str, options)])


def killed(folder: Path, steps: int, save_steps: int) -> int:
    """Trains until the second half has a checkpoint, kills the process, and returns the step."""
    process, until = started(folder, steps, save_steps), time.monotonic() + PATIENCE
    try:
        while saved_step(folder) < steps // 2:
            if process.poll() is not None:
                raise SystemExit(f"{PROGRAM.name} has ended by itself: {process.returncode}")
            if time.monotonic() > until:
                raise SystemExit(f"no checkpoint of step {steps // 2} after {PATIENCE:.0f} s")
            time.sleep(0.02)
    finally:
        process.kill()
        process.wait()
    return saved_step(folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("demo_run"), help="is made anew")
    parser.add_argument("--steps", type=int, default=1200)
    options = parser.parse_args()
    folder, save_steps = options.folder, max(options.steps // 12, 1)
    if folder.exists():
        if any(folder.iterdir()) and not (folder / "checkpoint").exists():
            raise SystemExit(f"{folder} is there already and is none of this program's folders; name another one")
        shutil.rmtree(folder)

    print("An LSTM learns to read digits, column by column.\n", flush=True)
    begun = time.perf_counter()
    step = killed(folder, options.steps, save_steps)
    print(f"\n\nKilled. The last checkpoint is of step {step}; once more:\n", flush=True)
    done = started(folder, options.steps, save_steps)
    try:
        code = done.wait(PATIENCE)
    finally:
        done.kill()
    if code:
        return code

    curve = folder / "learning_curve.png"
    hr.train.plot_events(str(folder), str(curve), ["loss", "accuracy"])
    page = folder / "reading.html"
    cli.main(["view", str(folder / "reading.hrrec"), "--html", str(page)])
    print(f"\nIt took {time.perf_counter() - begun:.0f} s in all. In {folder} there are")
    print(f"  {len(list(folder.glob('*.index.json')))} checkpoints, of the last steps")
    for trace in sorted(folder.glob("timeline-*.json")):
        print(f"  {trace.name}: what a step did when, for chrome://tracing or ui.perfetto.dev")
    for log in sorted(folder.glob("events.*")):
        print(f"  {log.name}: for tensorboard --logdir {folder}")
    print(f"  {curve.name}: the learning curve, of both runs")
    print(f"  {page.name}: how the trained network reads two digits, column by column; open it in a browser")
    return 0


if __name__ == "__main__":
    sys.exit(main())
