// The recording: typed columns, and the indexes that make a moment of the step a matter of binary searches.

const NONE = 0xffffffff;
const ARRAYS = { u1: Uint8Array, u4: Uint32Array, i4: Int32Array, f8: Float64Array };

/** An error of the document that the page shows in place of the graph. */
class RecordingError extends Error {}

function decodeColumn(column, name, length) {
  const Type = column && ARRAYS[column.dtype];
  if (!Type) throw new RecordingError(`column ${name}: dtype ${column && column.dtype} is not one of u1, u4, i4, f8`);
  const bytes = Uint8Array.fromBase64 ? Uint8Array.fromBase64(column.base64) : bytesOf(atob(column.base64));
  if (bytes.length !== column.n * Type.BYTES_PER_ELEMENT) {
    throw new RecordingError(`column ${name}: ${bytes.length} bytes for ${column.n} elements of ${column.dtype}`);
  }
  if (length !== undefined && column.n !== length) {
    throw new RecordingError(`column ${name} has ${column.n} elements; its table has ${length}`);
  }
  return new Type(bytes.buffer, bytes.byteOffset, column.n);
}

function bytesOf(text) {
  const bytes = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at++) bytes[at] = text.charCodeAt(at);
  return bytes;
}

function decodeTable(table, name) {
  const out = {};
  let length;
  for (const key of Object.keys(table)) {
    out[key] = decodeColumn(table[key], `${name}.${key}`, length);
    length = out[key].length;
  }
  out.length = length || 0;
  return out;
}

/** Rows in compressed form: those of group g are rows[starts[g]] to rows[starts[g + 1] - 1], ascending. */
function groupRows(keys, groups) {
  const starts = new Uint32Array(groups + 1);
  for (let row = 0; row < keys.length; row++) starts[keys[row] + 1]++;
  for (let group = 0; group < groups; group++) starts[group + 1] += starts[group];
  const next = starts.slice(0, groups);
  const rows = new Uint32Array(keys.length);
  for (let row = 0; row < keys.length; row++) rows[next[keys[row]]++] = row;
  return { starts, rows };
}

/** Position after the last of rows[from..to) that is at most `row`: a binary search. */
function after(rows, from, to, row) {
  while (from < to) {
    const middle = (from + to) >>> 1;
    if (rows[middle] <= row) from = middle + 1;
    else to = middle;
  }
  return from;
}

class Recording {
  constructor(raw) {
    if (!raw || raw.format !== "headrace-recording") throw new RecordingError("this is not a recording of headrace");
    if (raw.version !== 2) throw new RecordingError(`the recording has version ${raw.version}; this page reads version 2`);
    this.raw = raw;
    this.step = raw.step;
    this.strings = raw.strings;
    this.devices = raw.devices;
    this.files = raw.files;
    this.frames = raw.frames;
    this.nodes = raw.nodes;
    this.tags = raw.tags;
    this.causes = raw.causes;
    this.stages = raw.stages;
    this.stageGraphs = raw.stage_graphs;
    this.dropped = raw.dropped || { tokens: 0, values: 0 };
    this.tokens = decodeTable(raw.tokens, "tokens");
    this.values = decodeTable(raw.values, "values");
    this.iterations = decodeTable(raw.iterations, "iterations");
    this.crossings = decodeTable(raw.crossings, "crossings");
    this.critical = decodeColumn(raw.critical, "critical");
    this.check();
    this.index();
  }

  get length() {
    return this.tokens.length;
  }

  /** Every index is in the range of its table, so that no reader of a row has to ask. */
  check() {
    const inRange = (column, size, name, optional) => {
      for (let row = 0; row < column.length; row++) {
        const value = column[row];
        if (value >= size && !(optional && value === NONE)) {
          throw new RecordingError(`${name}, row ${row}: index ${value} of a table of ${size}`);
        }
      }
    };
    const { tokens, values, iterations, crossings } = this;
    const [nodes, tags, devices, strings] = [this.nodes.length, this.tags.length, this.devices.length, this.strings.length];
    inRange(tokens.node, nodes, "tokens.node");
    inRange(tokens.tag, tags, "tokens.tag");
    inRange(tokens.device, devices, "tokens.device");
    inRange(tokens.cause, this.causes.length, "tokens.cause", true);
    inRange(tokens.value, values.length, "tokens.value", true);
    for (const name of ["dtype", "shape", "elements"]) inRange(values[name], strings, `values.${name}`, true);
    inRange(iterations.tag, tags, "iterations.tag");
    inRange(iterations.device, devices, "iterations.device");
    inRange(iterations.held_by, nodes, "iterations.held_by", true);
    inRange(crossings.edge, strings, "crossings.edge");
    inRange(crossings.from, devices, "crossings.from");
    inRange(crossings.to, devices, "crossings.to");
    inRange(this.critical, this.length, "critical");
    this.frames.forEach((frame, at) => {
      if (frame.parent >= at) throw new RecordingError(`frame ${at}: parent ${frame.parent} does not come before it`);
    });
    this.tags.forEach((tag, at) => {
      if (tag.frame < 0 || tag.frame >= this.frames.length) throw new RecordingError(`tag ${at}: no frame ${tag.frame}`);
      if (at && (tag.parent < 0 || tag.parent >= at)) throw new RecordingError(`tag ${at}: parent ${tag.parent} does not come before it`);
    });
    this.nodes.forEach((node, at) => {
      if (!this.frames[node.frame]) throw new RecordingError(`node ${at}: no frame ${node.frame}`);
      for (const [input] of node.inputs) if (!this.nodes[input]) throw new RecordingError(`node ${at}: no input ${input}`);
      for (const input of node.controls) if (!this.nodes[input]) throw new RecordingError(`node ${at}: no input ${input}`);
    });
  }

  index() {
    const { tokens, tags, nodes } = this;
    const count = tokens.length;
    this.byNode = groupRows(tokens.node, nodes.length);
    this.tagFrame = Uint32Array.from(tags, (tag) => tag.frame);
    this.tagIteration = Uint32Array.from(tags, (tag) => tag.iteration);
    this.tagParent = Uint32Array.from(tags, (tag, at) => (at ? tag.parent : 0));
    const frames = new Uint32Array(count);
    for (let row = 0; row < count; row++) frames[row] = this.tagFrame[tokens.tag[row]];
    this.byFrame = groupRows(frames, this.frames.length);
    this.end = 0;
    this.deadCount = 0;
    for (let row = 0; row < count; row++) {
      if (tokens.end[row] > this.end) this.end = tokens.end[row];
      this.deadCount += tokens.dead[row];
    }
    this.start = Infinity; // of the first token, microseconds; before it the step was prepared
    for (let row = 0; row < count; row++) this.start = Math.min(this.start, tokens.begin[row]);
    if (!count) this.start = 0;
    this.duration = Math.max(this.end - this.start, 1e-3);
    this.isCritical = new Uint8Array(count);
    this.criticalNodes = new Uint8Array(nodes.length);
    this.criticalEdges = new Set();
    this.critical.forEach((row, at) => {
      this.isCritical[row] = 1;
      this.criticalNodes[tokens.node[row]] = 1;
      if (at) this.criticalEdges.add(`${tokens.node[this.critical[at - 1]]}>${tokens.node[row]}`);
    });
    this.byLine = new Map();
    nodes.forEach((node, at) => {
      if (!node.source) return;
      const key = `${node.source[0]}:${node.source[1]}`;
      if (!this.byLine.has(key)) this.byLine.set(key, []);
      this.byLine.get(key).push(at);
    });
    this.consumers = nodes.map(() => []);
    nodes.forEach((node, at) => {
      for (const [input] of node.inputs) if (!this.consumers[input].includes(at)) this.consumers[input].push(at);
    });
    this.chains = this.frames.map((frame, at) => {
      const chain = [];
      for (let f = at; f >= 0; f = this.frames[f].parent) chain.push(f);
      return chain.reverse();
    });
    this.findLastRounds();
    this.inside = this.frames.map(() => []); // the frames inside of each, itself among them
    this.chains.forEach((chain, at) => chain.forEach((frame) => this.inside[frame].push(at)));
    // Iterations of a loop by the tag around it: those that its selector offers.
    this.iterationsOf = new Map();
    tags.forEach((tag, at) => {
      if (this.frames[tag.frame].kind !== "loop") return;
      const key = `${tag.frame}:${this.outerTag(at)}`;
      if (!this.iterationsOf.has(key)) this.iterationsOf.set(key, new Map());
      this.iterationsOf.get(key).set(tag.iteration, at);
    });
  }

  /**
   * Marks the dead tokens of last iterations: a loop ends with one in which its condition is false and its body dead.
   * Where no iteration is chosen, they do not hide the values of the iteration before.
   */
  findLastRounds() {
    const { tags, tokens, frames } = this;
    const last = new Map();
    tags.forEach((tag, at) => {
      if (frames[tag.frame].kind !== "loop" || tag.iteration === 0) return;
      const key = `${tag.frame}:${tag.parent}`;
      if (!last.has(key) || tags[last.get(key)].iteration < tag.iteration) last.set(key, at);
    });
    const isLast = new Uint8Array(tags.length);
    for (const tag of last.values()) isLast[tag] = 1;
    for (let tag = 1; tag < tags.length; tag++) if (isLast[this.tagParent[tag]]) isLast[tag] = 1;
    this.endsLoop = new Uint8Array(tokens.length);
    for (let row = 0; row < tokens.length; row++) this.endsLoop[row] = tokens.dead[row] & isLast[tokens.tag[row]];
  }

  /** The tag around an iteration of a loop. */
  outerTag(tag) {
    return this.tagParent[tag];
  }

  /** The tag, `tag` itself or one around it, that belongs to `frame`; -1 if there is none. */
  tagIn(tag, frame) {
    for (;;) {
      if (this.tagFrame[tag] === frame) return tag;
      if (tag === 0) return -1;
      tag = this.tagParent[tag];
    }
  }

  /** The last row of `node` that is at most `row`; -1 if it has not fired yet. */
  lastOf(node, row) {
    const { starts, rows } = this.byNode;
    const at = after(rows, starts[node], starts[node + 1], row);
    return at > starts[node] ? rows[at - 1] : -1;
  }

  /** The same without the dead tokens that end a loop, if there is another; the token `row` itself counts. */
  lastShown(node, row) {
    const { starts, rows } = this.byNode;
    const last = after(rows, starts[node], starts[node + 1], row) - 1;
    if (last < starts[node]) return -1;
    for (let at = last; at >= starts[node]; at--) if (!this.endsLoop[rows[at]] || rows[at] === row) return rows[at];
    return rows[last];
  }

  firings(node) {
    return this.byNode.starts[node + 1] - this.byNode.starts[node];
  }

  /** The innermost loop that contains a node, -1 outside of loops. */
  loopOf(frame) {
    for (let f = frame; f >= 0; f = this.frames[f].parent) if (this.frames[f].kind === "loop") return f;
    return -1;
  }

  /** Summary of one output of a token; null if its value was not kept. */
  value(row, output) {
    const first = row < 0 ? NONE : this.tokens.value[row];
    if (first === NONE || output >= this.nodes[this.tokens.node[row]].outputs.length) return null;
    const at = first + output;
    if (at >= this.values.length) return null;
    const { values, strings } = this;
    const text = (column) => (column[at] === NONE ? "" : strings[column[at]]);
    return {
      dtype: text(values.dtype), shape: text(values.shape), elements: text(values.elements),
      min: values.min[at], max: values.max[at], mean: values.mean[at], nans: values.nans[at], bytes: values.bytes[at],
    };
  }

  /** Why a token is dead, as a sentence. */
  causeText(row) {
    const cause = this.tokens.cause[row] === NONE ? null : this.causes[this.tokens.cause[row]];
    if (!cause) return "dead: its cause was not recorded";
    const selector = cause.selector ? `; ${cause.selector} = ${cause.value}` : "";
    return `dead since ${cause.op} took the other branch${cause.where ? ` in ${cause.where}` : ""}${selector}`;
  }

  /** Row at which the time `microseconds` is reached: the last token that ended by then. */
  rowAt(microseconds) {
    const { end } = this.tokens;
    let [from, to] = [0, end.length];
    while (from < to) {
      const middle = (from + to) >>> 1;
      if (end[middle] <= microseconds) from = middle + 1;
      else to = middle;
    }
    return Math.max(0, from - 1);
  }
}

// --- text of numbers -----------------------------------------------------------------------------------------------

const GROUPED = new Intl.NumberFormat("en-US");

function count(n) {
  return GROUPED.format(n);
}

function plural(n, word) {
  return `${count(n)} ${word}${n === 1 ? "" : "s"}`;
}

function number(x) {
  if (Number.isNaN(x)) return "NaN";
  if (!Number.isFinite(x)) return x > 0 ? "inf" : "-inf";
  if (Number.isInteger(x) && Math.abs(x) < 1e9) return String(x);
  const size = Math.abs(x);
  return size !== 0 && (size < 1e-3 || size >= 1e6) ? x.toExponential(3) : String(Number(x.toPrecision(4)));
}

function duration(microseconds) {
  if (microseconds < 1) return `${(microseconds * 1000).toFixed(0)} ns`;
  if (microseconds < 1000) return `${Number(microseconds.toPrecision(4))} µs`;
  if (microseconds < 1e6) return `${Number((microseconds / 1000).toPrecision(4))} ms`;
  return `${Number((microseconds / 1e6).toPrecision(4))} s`;
}

function bytesText(bytes) {
  if (bytes < 1024) return `${bytes} B`;
  if (bytes < 1024 ** 2) return `${(bytes / 1024).toFixed(1)} KiB`;
  return `${(bytes / 1024 ** 2).toFixed(1)} MiB`;
}

function shapeText(shape) {
  return shape ? `[${shape.map((size) => (size === null ? "?" : size)).join(",")}]` : "[…]";
}

function shortDevice(name) {
  const worker = /job:([^/]+)/.exec(name);
  const task = /task:(\d+)/.exec(name);
  const device = /device:([^/]+)$/.exec(name);
  const where = worker && worker[1] !== "localhost" ? `${worker[1]}${task ? task[1] : ""} ` : "";
  return where + (device ? device[1] : name);
}
