// The graph's text after each stage of the step, and the difference between two of them.

const AROUND = 3; // unchanged lines shown around a change
const MOST_EDITS = 6000; // edits after which the search for the shortest difference ends

class Stages {
  constructor(recording) {
    this.recording = recording;
    this.root = byId("stage-text");
    const options = () => recording.stages.map((stage, at) => el("option", { value: at }, stage.name));
    this.before = byId("stage-before");
    this.after = byId("stage-after");
    this.before.replaceChildren(el("option", { value: -1 }, "nothing (whole text)"), ...options());
    this.after.replaceChildren(...options());
    if (recording.stages.length) {
      this.after.value = Math.min(1, recording.stages.length - 1);
      this.before.value = recording.stages.length > 1 ? 0 : -1;
    }
    for (const select of [this.before, this.after]) select.addEventListener("change", () => this.show());
    byId("stage-back").addEventListener("click", () => this.move(-1));
    byId("stage-next").addEventListener("click", () => this.move(1));
    this.drawing = new StageDrawing(recording);
  }

  move(by) {
    const after_ = Math.max(0, Math.min(this.recording.stages.length - 1, Number(this.after.value) + by));
    this.after.value = after_;
    this.before.value = after_ - 1;
    this.show();
  }

  show() {
    const { stages } = this.recording;
    if (!stages.length) {
      this.root.replaceChildren(el("p", { class: "note" }, "No stage was recorded."));
      return;
    }
    const now = stages[Number(this.after.value)].text.split("\n");
    const before = Number(this.before.value);
    const changes = before < 0 ? now.map((text) => [" ", text]) : difference(stages[before].text.split("\n"), now);
    const added = changes.filter(([mark]) => mark === "+").length;
    const removed = changes.filter(([mark]) => mark === "-").length;
    byId("stage-count").replaceChildren(...(before < 0 ? [plural(now.length, "line")] : added || removed
      ? [el("span", { class: "added" }, `+${count(added)}`), " ", el("span", { class: "removed" }, `−${count(removed)}`)] : ["no difference"]));
    this.root.replaceChildren(...this.lines(changes, before < 0));
    this.root.scrollTop = 0;
    this.drawing.show(before, Number(this.after.value));
  }

  lines(changes, isWhole) {
    const near = new Uint8Array(changes.length);
    changes.forEach(([mark], at) => {
      if (mark !== " ") near.fill(1, Math.max(0, at - AROUND), at + AROUND + 1);
    });
    const out = [];
    let skipped = 0;
    const gap = () => {
      if (skipped) out.push(el("div", { class: "gap" }, `${plural(skipped, "unchanged line")}`));
      skipped = 0;
    };
    for (let at = 0; at < changes.length && out.length < 8000; at++) {
      const [mark, text] = changes[at];
      if (!isWhole && !near[at]) {
        skipped++;
        continue;
      }
      gap();
      const kind = mark === "+" ? "added" : mark === "-" ? "removed" : "same";
      out.push(el("div", { class: kind }, el("span", { class: "mark", "aria-label": kind === "same" ? null : kind }, mark === "-" ? "−" : mark), el("code", {}, text || " ")));
    }
    gap();
    return out;
  }
}

/** Lines of two texts as [mark, line]: the shortest edit script (Myers, "An O(ND) Difference Algorithm"). */
function difference(a, b) {
  let from = 0;
  while (from < a.length && from < b.length && a[from] === b[from]) from++;
  let [endA, endB] = [a.length, b.length];
  while (endA > from && endB > from && a[endA - 1] === b[endB - 1]) {
    endA--;
    endB--;
  }
  const same = (lines) => lines.map((line) => [" ", line]);
  return [...same(a.slice(0, from)), ...edits(a.slice(from, endA), b.slice(from, endB)), ...same(a.slice(endA))];
}

function edits(a, b) {
  const most = Math.min(a.length + b.length, MOST_EDITS);
  const offset = most + 1;
  const furthest = new Int32Array(2 * most + 3);
  const history = [];
  let found = -1;
  // The history of d rounds takes d²/2 entries: beyond some million, everything is removed and added.
  for (let d = 0; d <= most && found < 0 && d * d < 4e6; d++) {
    for (let k = -d; k <= d; k += 2) {
      let x = k === -d || (k !== d && furthest[offset + k - 1] < furthest[offset + k + 1]) ? furthest[offset + k + 1] : furthest[offset + k - 1] + 1;
      while (x < a.length && x - k < b.length && a[x] === b[x - k]) x++;
      furthest[offset + k] = x;
      if (x >= a.length && x - k >= b.length) {
        found = d;
        break;
      }
    }
    history.push(furthest.slice(offset - d, offset + d + 1));
  }
  if (found < 0) return [...a.map((line) => ["-", line]), ...b.map((line) => ["+", line])];
  const out = [];
  let [x, y] = [a.length, b.length];
  for (let d = found; d > 0; d--) {
    const before = history[d - 1];
    const at = (k) => (Math.abs(k) > d - 1 ? -1 : before[k + d - 1]);
    const k = x - y;
    const isDown = k === -d || (k !== d && at(k - 1) < at(k + 1));
    const previous = isDown ? k + 1 : k - 1;
    const startX = at(previous);
    const startY = startX - previous;
    const [midX, midY] = isDown ? [startX, startY + 1] : [startX + 1, startY];
    while (x > midX && y > midY) {
      out.push([" ", a[--x]]);
      y--;
    }
    if (isDown) out.push(["+", b[--y]]);
    else out.push(["-", a[--x]]);
  }
  while (x > 0) out.push([" ", a[--x]]);
  return out.reverse();
}
