"""Training that is killed and goes on: `make demo`.

Runs `digits_lstm.py` in a process of its own, kills the process half-way with a signal that no program can catch, and
starts it again. Training resumes from the last checkpoint. Then shows the compiled part of a step and its time,
TensorFlow's time for the same network (`digits_v1.py`), and the files: checkpoints, a trace, a log for TensorBoard, a
picture of the learning curve with the kill, and a page that shows the network at work.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import subprocess
import sys
import time
from pathlib import Path

import digits_lstm

import headrace as hr
from headrace import cli

PROGRAM = Path(__file__).with_name("digits_lstm.py")
WRITTEN_FOR_BOTH = Path(__file__).with_name("digits_v1.py")
LIBRARIES = ("headrace.v1", "tensorflow.compat.v1")
PATIENCE = 300.0  # seconds that either run may take


def saved_step(folder: Path) -> int:
    """The step of the last checkpoint in a folder; -1 if there is none."""
    path = hr.train.latest_checkpoint(str(folder))
    return -1 if path is None else int(path.rpartition("-")[2])


def started(folder: Path, steps: int, save_steps: int) -> subprocess.Popen[bytes]:
    options = ["--folder", folder, "--steps", steps, "--save-steps", save_steps]
    return subprocess.Popen([sys.executable, PROGRAM, *map(str, options)])


def last_step(folder: Path) -> int:
    """The last step in the learning curve; -1 if there is none."""
    try:
        return hr.train.scalars_of(folder, ["loss"])["loss"].steps[-1]
    except hr.errors.NotFoundError:
        return -1


def killed(folder: Path, steps: int, save_steps: int) -> tuple[int, int]:
    """Trains until half-way between two checkpoints, and kills the process.

    Returns:
      The last step in the learning curve, and the step of the last checkpoint.
    """
    process, until = started(folder, steps, save_steps), time.monotonic() + PATIENCE
    wanted = steps // 2 + save_steps // 2
    try:
        while saved_step(folder) < steps // 2 or last_step(folder) < wanted:
            if process.poll() is not None:
                raise SystemExit(f"{PROGRAM.name} has ended by itself: {process.returncode}")
            if time.monotonic() > until:
                raise SystemExit(f"step {wanted} is not reached after {PATIENCE:.0f} s")
            time.sleep(0.02)
    finally:
        process.kill()
        process.wait()
    return last_step(folder), saved_step(folder)


def show_compiled_part(folder: Path, runs: int) -> None:
    """Prints the compiled part of a step of training, and its share of the time."""
    data = digits_lstm.sequences()
    model = digits_lstm.Model(data[digits_lstm.HELD_OUT :], steps=1)
    path = hr.train.latest_checkpoint(str(folder))
    assert path is not None
    with hr.Session(graph=model.graph) as session:
        hr.train.restore(session, path)
        coordinator = hr.train.Coordinator()
        threads = hr.train.start_queue_runners(session, coordinator)
        batches = [dict(zip(model.batch, session.run(model.batch))) for _ in range(runs)]
        session.run(model.train)  # compiles
        begun = time.perf_counter()
        for _ in range(runs):
            session.run(model.train)
        seconds = time.perf_counter() - begun
        explained = session.explain(model.train)
        coordinator.request_stop()
        coordinator.join(threads)
        with hr.profile() as profile:
            for batch in batches:
                session.run(model.train, batch)  # without the queue

    regions = [len(names) for names in explained.fused_regions]
    alone = sum(len(names) for _, names in explained.apart)
    print("\nA step of training begins with a dequeue. Behind it,")
    print(f"  {sum(regions)} of {sum(regions) + alone} operations are in {len(regions)} compiled functions; not")
    for reason, names in explained.apart:
        print(f"    {names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}: {reason}")
    native = sum(row.seconds for row in profile.rows if row.is_native)
    print(f"  a step takes {seconds / runs * 1e3:.1f} ms with its queues and their threads;")
    print(
        f"  {profile.seconds / runs * 1e3:.1f} ms of it ({profile.seconds / seconds:.0%}) behind the dequeue, "
        f"{profile.engines[0]}, {native / profile.seconds:.0%} in machine code"
    )
    for loop in profile.loops[:2]:
        print(f"    {loop.seconds / runs * 1e3:.1f} ms in the loop {loop.name}, {loop.calls / runs:.0f} iterations")


def compare(steps: int) -> None:
    """Prints the time of a step in headrace, and in TensorFlow if it is installed."""
    found = [name for name in LIBRARIES if importlib.util.find_spec(name.partition(".")[0])]
    print(f"\nThe same network as a program for TensorFlow 1 ({WRITTEN_FOR_BOTH.name}):", flush=True)
    command = [sys.executable, str(WRITTEN_FOR_BOTH), *found, "--steps", str(steps)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    if done.returncode:
        raise SystemExit(f"{WRITTEN_FOR_BOTH.name} failed: {done.stderr}")
    print("".join(f"  {line}\n" for line in done.stdout.splitlines()), end="")
    if len(found) < len(LIBRARIES):
        print("  TensorFlow is not installed here, so its time is missing")


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
    end, step = killed(folder, options.steps, save_steps)
    print(f"\n\nKilled at step {end}. The last checkpoint is of step {step}; once more:\n", flush=True)
    done = started(folder, options.steps, save_steps)
    try:
        code = done.wait(PATIENCE)
    finally:
        done.kill()
    if code:
        return code

    curve = folder / "learning_curve.png"
    marks = {f"restored: step {step}": step, f"killed: step {end}": end}
    hr.train.plot_events(str(folder), str(curve), ["loss", "accuracy"], marks=marks)
    page = folder / "reading.html"
    cli.main(["view", str(folder / "reading.hrrec"), "--html", str(page)])
    show_compiled_part(folder, runs=min(options.steps // 10, 40))
    compare(min(options.steps, 200))
    print(f"\nIt took {time.perf_counter() - begun:.0f} s in all. In {folder} there are")
    print(f"  {len(list(folder.glob('*.index.json')))} checkpoints, of the last steps")
    for trace in sorted(folder.glob("timeline-*.json")):
        print(f"  {trace.name}: what a step did when, for chrome://tracing or ui.perfetto.dev")
    for log in sorted(folder.glob("events.*")):
        print(f"  {log.name}: for tensorboard --logdir {folder}")
    print(f"  {curve.name}: the learning curve of both runs, with the kill and the restore")
    print(f"  {page.name}: how the trained network reads two digits, column by column; open it in a browser")
    return 0


if __name__ == "__main__":
    sys.exit(main())
