// The moment that the page shows: the current token, the iterations that the user chose, and the selection. Views listen
// to changes; all drawing of one change happens in one animation frame.

class Moment {
  constructor(recording) {
    this.recording = recording;
    this.row = recording.length - 1;
    this.pins = new Map(); // loop frame → chosen iteration
    this.pinned = null; // filtered rows of nodes inside of chosen loops
    this.selected = -1;
    this.highlighted = new Set(); // nodes of a source line or of a search
    this.playing = false;
    this.showCritical = false;
    this.listeners = new Map();
    this.pending = new Set();
  }

  on(names, listener) {
    for (const name of names.split(" ")) {
      if (!this.listeners.has(name)) this.listeners.set(name, new Set());
      this.listeners.get(name).add(listener);
    }
  }

  /** Calls the listeners of a change in the next animation frame, each once. */
  emit(name) {
    if (!this.pending.size) {
      requestAnimationFrame(() => {
        const names = [...this.pending];
        this.pending.clear();
        const called = new Set();
        for (const each of names) for (const listener of this.listeners.get(each) || []) called.add(listener);
        for (const listener of called) listener(names);
      });
    }
    this.pending.add(name);
  }

  seek(row) {
    const { length } = this.recording;
    if (!length) return;
    const next = Math.max(0, Math.min(length - 1, Math.round(row)));
    if (next === this.row) return;
    this.row = next;
    this.emit("row");
  }

  select(node) {
    if (node === this.selected) return;
    this.selected = node;
    this.emit("selection");
  }

  highlight(nodes) {
    this.highlighted = new Set(nodes);
    this.emit("selection");
  }

  // --- iterations ---

  pin(frame, iteration) {
    if (iteration === null) this.pins.delete(frame);
    else this.pins.set(frame, iteration);
    this.filter();
    this.emit("pins");
  }

  /** Rows of the nodes inside of a loop whose iteration is chosen, in the form of groupRows. */
  filter() {
    const { recording } = this;
    if (!this.pins.size) {
      this.pinned = null;
      return;
    }
    const { tags, tagFrame, tagIteration, tagParent, tokens, nodes } = recording;
    const match = new Uint8Array(tags.length);
    for (let tag = 0; tag < tags.length; tag++) {
      const wanted = this.pins.get(tagFrame[tag]);
      match[tag] = (tag === 0 || match[tagParent[tag]]) && (wanted === undefined || wanted === tagIteration[tag]) ? 1 : 0;
    }
    const affected = new Uint8Array(nodes.length);
    nodes.forEach((node, at) => {
      affected[at] = recording.chains[node.frame].some((frame) => this.pins.has(frame)) ? 1 : 0;
    });
    const starts = new Uint32Array(nodes.length + 1);
    for (let row = 0; row < tokens.length; row++) {
      if (affected[tokens.node[row]] && match[tokens.tag[row]]) starts[tokens.node[row] + 1]++;
    }
    for (let node = 0; node < nodes.length; node++) starts[node + 1] += starts[node];
    const rows = new Uint32Array(starts[nodes.length]);
    const next = starts.slice(0, nodes.length);
    for (let row = 0; row < tokens.length; row++) {
      if (affected[tokens.node[row]] && match[tokens.tag[row]]) rows[next[tokens.node[row]]++] = row;
    }
    this.pinned = { affected, match, starts, rows };
  }

  /**
   * The token of a node that the page shows: the last up to the current one. Inside of a chosen iteration, the one of
   * that iteration, even if it is ahead. -1: there is none.
   */
  tokenOf(node) {
    const { pinned } = this;
    if (pinned && pinned.affected[node]) {
      const from = pinned.starts[node];
      const to = pinned.starts[node + 1];
      const at = after(pinned.rows, from, to, this.row);
      return at > from ? pinned.rows[at - 1] : to > from ? pinned.rows[from] : -1;
    }
    return this.recording.lastShown(node, this.row);
  }

  /** The last row up to the current one that belongs to `frame` or a frame inside, within the chosen iterations. */
  lastIn(frame) {
    const { recording } = this;
    let found = -1;
    for (const at of recording.inside[frame]) {
      const { starts, rows } = recording.byFrame;
      let position = after(rows, starts[at], starts[at + 1], this.row) - 1;
      while (position > starts[at] && recording.endsLoop[rows[position]]) position--;
      if (position >= starts[at]) found = Math.max(found, rows[position]);
    }
    return found;
  }

  /**
   * The iterations of a loop that its selector offers, as number → tag: those inside of the iteration of the loop around
   * it that the page shows. Without tokens there yet, those of the last iteration that had some.
   */
  offered(frame) {
    const { recording } = this;
    let outer = -1;
    for (let f = recording.frames[frame].parent; f >= 0; f = recording.frames[f].parent) {
      if (recording.frames[f].kind !== "loop") continue;
      if (recording.chains[f].some((each) => this.pins.has(each))) outer = this.tagOf(f);
      break;
    }
    if (outer < 0) {
      const row = this.lastIn(frame);
      const tag = row < 0 ? -1 : recording.tagIn(recording.tokens.tag[row], frame);
      outer = tag < 0 ? 0 : recording.outerTag(tag);
    }
    return recording.iterationsOf.get(`${frame}:${outer}`) || new Map();
  }

  /** The tag of a loop that the page shows: the chosen iteration, or that of the last token; -1 if there is none. */
  tagOf(frame) {
    const { recording } = this;
    const offered = this.offered(frame);
    if (this.pins.has(frame)) return offered.get(this.pins.get(frame)) ?? -1;
    const row = this.lastIn(frame);
    const tag = row < 0 ? -1 : recording.tagIn(recording.tokens.tag[row], frame);
    if (tag >= 0 && offered.get(recording.tagIteration[tag]) === tag) return tag;
    // The loop around it stands at another iteration than the last token.
    let last = -1;
    if (this.pins.size) for (const each of offered.values()) last = Math.max(last, each);
    return last;
  }

  /** Numbers of the iterations that the selector of a loop offers. */
  choices(frame) {
    return [...this.offered(frame).keys()].sort((a, b) => a - b);
  }

  /** Chooses the iterations of all loops around a token, so that the page shows that token. */
  pinTo(row) {
    const { recording } = this;
    for (let tag = recording.tokens.tag[row]; ; tag = recording.tagParent[tag]) {
      if (recording.frames[recording.tagFrame[tag]].kind === "loop") this.pins.set(recording.tagFrame[tag], recording.tagIteration[tag]);
      if (tag === 0) break;
    }
    this.filter();
    this.emit("pins");
  }

  /** Rows of a node by iteration of its innermost loop, inside of the iterations of the outer loops that are chosen. */
  series(node) {
    const { recording } = this;
    const { starts, rows } = recording.byNode;
    const all = rows.subarray(starts[node], starts[node + 1]);
    const innermost = recording.loopOf(recording.nodes[node].frame);
    const outer = [...this.pins].filter(([frame]) => frame !== innermost && recording.chains[recording.nodes[node].frame].includes(frame));
    if (!outer.length) return all;
    return all.filter((row) => outer.every(([frame, iteration]) => {
      const tag = recording.tagIn(recording.tokens.tag[row], frame);
      return tag >= 0 && recording.tagIteration[tag] === iteration;
    }));
  }
}
