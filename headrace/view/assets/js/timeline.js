// The time line: the transport, the lanes of devices and the iterations of a loop. All three share one axis of time, which
// the wheel zooms.

const GUTTER = 132; // names of lanes
const MOST_ROWS = 5; // tokens of one device that overlap are stacked this high

class Timeline {
  constructor(recording, model, moment) {
    Object.assign(this, { recording, model, moment });
    this.canvas = byId("lanes");
    this.over = byId("lanes-cursor");
    this.range = byId("scrub");
    this.tab = "lanes";
    this.reset();
    this.loop = -1;
    this.stack();
    this.skipPreparation();
    this.listen();
    moment.on("row", () => this.moved());
    moment.on("selection pins", () => this.chooseLoop());
    moment.on("critical timeline", () => this.draw());
    this.chooseLoop();
    this.moved();
  }

  /** Shows a longer recording of the same step. */
  renew() {
    this.reset();
    this.stack();
    this.skipPreparation();
    this.range.max = Math.max(0, this.recording.length - 1);
    const { loop } = this;
    this.loop = -1;
    if (loop >= 0) this.showLoop(loop);
    else this.chooseLoop();
    this.draw();
  }

  // --- lanes ---

  /** Rows of tokens in the order of their beginnings, each in the first row of its lane that is free. */
  stack() {
    const { tokens, devices, length } = this.recording;
    const { begin, end, device } = tokens;
    this.order = new Uint32Array(length);
    for (let row = 0; row < length; row++) this.order[row] = row;
    let isSorted = true;
    for (let row = 1; row < length && isSorted; row++) isSorted = begin[row] >= begin[row - 1];
    if (!isSorted) this.order.sort((a, b) => begin[a] - begin[b]);
    this.level = new Uint8Array(length);
    const free = devices.map(() => []);
    for (let at = 0; at < length; at++) {
      const row = this.order[at];
      const lane = free[device[row]];
      let level = 0;
      while (level < lane.length && lane[level] > begin[row]) level++;
      if (level >= MOST_ROWS) level = MOST_ROWS - 1;
      lane[level] = Math.max(end[row], lane[level] || 0);
      this.level[row] = level;
    }
    this.lanes = [];
    devices.forEach((name, at) => this.lanes.push({ name: shortDevice(name), rows: Math.max(1, free[at].length), top: 0, height: 0 }));
    this.longest = 0;
    for (let row = 0; row < length; row++) this.longest = Math.max(this.longest, end[row] - begin[row]);
  }

  /** Begins the view after the time in which a step is prepared: the arguments have tokens, and then none follow. */
  skipPreparation() {
    const { recording, order } = this;
    const { begin } = recording.tokens;
    const from = begin[order[Math.floor(order.length * 0.02)]];
    const long = this.most[1] - from;
    if (from - this.most[0] > 0.25 * (this.most[1] - this.most[0])) this.span = [from - 0.02 * long, this.most[1]];
  }

  /** The whole step. */
  reset() {
    const { start, duration: long } = this.recording;
    this.most = [Math.max(0, start - long * 0.005), start + long * 1.01];
    this.span = [...this.most];
  }

  /** Heights of lanes: they fill the panel, within limits. */
  arrangeLanes(height) {
    const rows = this.lanes.reduce((sum, lane) => sum + lane.rows, 0);
    this.rowHeight = Math.max(6, Math.min(26, (height - 30 - 10 * this.lanes.length) / rows));
    let top = 8;
    for (const lane of this.lanes) {
      lane.top = top;
      lane.height = lane.rows * this.rowHeight + 10;
      top += lane.height;
    }
    this.scroll = Math.max(0, Math.min(top + 20 - height, this.scroll || 0));
  }

  x(time) {
    const [from, to] = this.span;
    return GUTTER + ((time - from) / (to - from)) * (this.canvas.clientWidth - GUTTER - 12);
  }

  time(x) {
    const [from, to] = this.span;
    return from + ((x - GUTTER) / (this.canvas.clientWidth - GUTTER - 12)) * (to - from);
  }

  draw() {
    if (!this.recording.length || !this.canvas.clientWidth) return;
    const context = prepare(this.canvas);
    const width = this.canvas.clientWidth;
    const height = this.canvas.clientHeight;
    this.arrangeLanes(height);
    this.drawAxis(context, width, height);
    if (this.tab === "lanes") this.drawLanes(context, width, height);
    else this.drawIterations(context, width, height);
    this.drawCursor();
  }

  drawAxis(context, width, height) {
    const [from, to] = this.span;
    const rough = (to - from) / Math.max(2, (width - GUTTER) / 110);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((m) => m * power).find((each) => each >= rough);
    context.font = `10.5px ${theme.sans}`;
    context.textBaseline = "bottom";
    context.textAlign = "left";
    for (let tick = Math.ceil(from / step) * step; tick <= to; tick += step) {
      const x = Math.round(this.x(tick)) + 0.5;
      if (x < GUTTER) continue;
      context.strokeStyle = theme.line;
      context.lineWidth = 1;
      context.beginPath();
      context.moveTo(x, 0);
      context.lineTo(x, height);
      context.stroke();
      context.fillStyle = theme.muted;
      context.fillText(tick === 0 ? "0" : duration(tick), x + 4, height - 3);
    }
  }

  drawLanes(context, width, height) {
    const { recording, moment, model } = this;
    const { begin, end, dead, device, node } = recording.tokens;
    const [from, to] = this.span;
    const shift = this.scroll || 0;
    context.textBaseline = "middle";
    for (const lane of this.lanes) {
      const y = lane.top - shift;
      context.fillStyle = theme.text;
      context.font = `500 11.5px ${theme.sans}`;
      context.textAlign = "left";
      context.fillText(fit(context, lane.name, GUTTER - 24), 14, y + (lane.height - 10) / 2);
      context.strokeStyle = theme.line;
      context.beginPath();
      context.moveTo(0, y + lane.height - 4.5);
      context.lineTo(width, y + lane.height - 4.5);
      context.stroke();
    }
    context.save();
    context.beginPath();
    context.rect(GUTTER, 0, width - GUTTER, height - 18);
    context.clip();
    const perPixel = (width - GUTTER - 12) / (to - from);
    const origin = GUTTER - from * perPixel;
    // Tokens that fall on a pixel which is drawn already are left out, so that the work follows the pixels.
    const filled = this.lanes.map(() => new Float64Array(MOST_ROWS).fill(-1));
    const groups = [[], [], []]; // live, dead, critical
    const labels = [];
    let at = this.firstAfter(from - this.longest);
    for (; at < this.order.length; at++) {
      const row = this.order[at];
      if (begin[row] > to) break;
      if (end[row] < from) continue;
      const left = origin + begin[row] * perPixel;
      const right = Math.max(origin + end[row] * perPixel, left + 0.7);
      const level = this.level[row];
      const line = filled[device[row]];
      const kind = moment.showCritical && recording.isCritical[row] ? 2 : dead[row];
      if (right <= line[level] && kind !== 2) continue;
      line[level] = Math.ceil(right * 2) / 2;
      const y = this.lanes[device[row]].top + level * this.rowHeight - shift;
      groups[kind].push(left, y, right - left);
      if (right - left > 34 && this.rowHeight > 12) labels.push([row, Math.max(left, GUTTER), y, Math.min(right, width) - Math.max(left, GUTTER)]);
    }
    const colors = [theme.live, theme.dead, theme.critical];
    groups.forEach((group, kind) => {
      context.fillStyle = colors[kind];
      context.globalAlpha = [0.62, 0.5, 0.9][kind];
      for (let each = 0; each < group.length; each += 3) {
        const wide = group[each + 2];
        context.fillRect(group[each], group[each + 1], wide > 3 ? wide - 0.8 : wide, this.rowHeight - 3);
      }
    });
    context.globalAlpha = 1;
    context.font = `10px ${theme.sans}`;
    context.textAlign = "left";
    for (const [row, x, y, wide] of labels) {
      context.fillStyle = "#fff";
      context.fillText(fit(context, model.label(node[row]), wide - 8), x + 4, y + (this.rowHeight - 3) / 2 + 0.5);
    }
    this.drawCrossings(context, from, to, shift);
    context.restore();
  }

  /** Arrows from the lane that sent a tensor to the lane that received it. */
  drawCrossings(context, from, to, shift) {
    const { crossings } = this.recording;
    const drawn = new Set();
    let visible = 0;
    for (let at = 0; at < crossings.length; at++) if (crossings.received[at] >= from && crossings.sent[at] <= to) visible++;
    const isDense = visible > 250; // then one arrow for every few pixels, pale
    const bucket = isDense ? 10 : 1;
    const arcs = [new Path2D(), new Path2D()]; // live, dead
    const heads = [new Path2D(), new Path2D()];
    for (let at = 0; at < crossings.length && drawn.size < 1500; at++) {
      if (crossings.received[at] < from || crossings.sent[at] > to) continue;
      const x0 = this.x(crossings.sent[at]);
      const x1 = this.x(crossings.received[at]);
      const key = `${Math.round(x0 / bucket)}:${isDense ? 0 : Math.round(x1)}:${crossings.from[at]}:${crossings.to[at]}`;
      if (drawn.has(key)) continue;
      drawn.add(key);
      const [a, b] = [this.lanes[crossings.from[at]], this.lanes[crossings.to[at]]];
      const isDown = a.top < b.top;
      const y0 = a.top - shift + (isDown ? this.rowHeight - 3 : 0);
      const y1 = b.top - shift + (isDown ? 0 : this.rowHeight - 3);
      const kind = crossings.dead[at] ? 1 : 0;
      arcs[kind].moveTo(x0, y0);
      arcs[kind].bezierCurveTo(x0, (y0 + y1) / 2, x1, (y0 + y1) / 2, x1, y1);
      const turn = isDown ? -5 : 5;
      heads[kind].moveTo(x1, y1);
      heads[kind].lineTo(x1 - 3, y1 + turn);
      heads[kind].lineTo(x1 + 3, y1 + turn);
    }
    context.globalAlpha = isDense ? 0.28 : 0.6;
    context.lineWidth = 1.1;
    arcs.forEach((arc, kind) => {
      context.strokeStyle = context.fillStyle = kind ? theme.dead : theme.text;
      context.stroke(arc);
      context.fill(heads[kind]);
    });
    context.globalAlpha = 1;
  }

  firstAfter(time) {
    const { begin } = this.recording.tokens;
    let [from, to] = [0, this.order.length];
    while (from < to) {
      const middle = (from + to) >>> 1;
      if (begin[this.order[middle]] < time) from = middle + 1;
      else to = middle;
    }
    return from;
  }

  // --- iterations ---

  /** The loop whose iterations are shown: that around the selected node, otherwise the one with the most. */
  chooseLoop() {
    const { recording, moment } = this;
    const wanted = moment.selected >= 0 ? recording.loopOf(recording.nodes[moment.selected].frame) : -1;
    const counts = new Map();
    for (let at = 0; at < recording.iterations.length; at++) {
      const frame = recording.tagFrame[recording.iterations.tag[at]];
      counts.set(frame, (counts.get(frame) || 0) + 1);
    }
    let loop = this.loop;
    if (counts.has(wanted)) loop = wanted;
    else if (!counts.has(loop)) loop = [...counts].sort((a, b) => b[1] - a[1]).map(([frame]) => frame)[0] ?? -1;
    if (loop !== this.loop) this.showLoop(loop);
  }

  showLoop(loop) {
    const { recording } = this;
    this.loop = loop;
    const { tag, device, open, close, held_by: heldBy } = recording.iterations;
    this.spans = []; // one for each iteration and device
    for (let at = 0; at < tag.length; at++) if (recording.tagFrame[tag[at]] === loop) this.spans.push(at);
    this.spans.sort((a, b) => open[a] - open[b] || recording.tagIteration[tag[a]] - recording.tagIteration[tag[b]]);
    // An iteration is in flight from its first opening on a device to its last end.
    const times = new Map();
    for (const at of this.spans) {
      const known = times.get(tag[at]) || [Infinity, 0];
      times.set(tag[at], [Math.min(known[0], open[at]), Math.max(known[1], close[at])]);
    }
    const events = [...times.values()].flatMap(([opened, closed]) => [[opened, 1], [closed, -1]]).sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    this.flight = [];
    this.mostInFlight = 0;
    let inFlight = 0;
    for (const [time, change] of events) {
      inFlight += change;
      const last = this.flight[this.flight.length - 1];
      if (last && last[0] === time) last[1] = inFlight;
      else this.flight.push([time, inFlight]);
    }
    for (const [, n] of this.flight) this.mostInFlight = Math.max(this.mostInFlight, n);
    // The limit is that of one run of the loop on one device: a nested loop may run several times at once, and a device
    // may be ahead of another.
    const runs = new Map();
    let mostOfRun = 0;
    for (const [, at, change] of this.spans.flatMap((at) => [[open[at], at, 1], [close[at], at, -1]]).sort((a, b) => a[0] - b[0] || a[2] - b[2])) {
      const run = `${recording.tagParent[tag[at]]} ${device[at]}`;
      runs.set(run, (runs.get(run) || 0) + change);
      mostOfRun = Math.max(mostOfRun, runs.get(run));
    }
    const holders = new Map();
    for (const at of this.spans) if (heldBy[at] !== NONE) holders.set(heldBy[at], (holders.get(heldBy[at]) || 0) + 1);
    const summary = byId("flight");
    if (loop < 0) {
      summary.replaceChildren("no loop ran in this step");
      return;
    }
    const { limit } = recording.frames[loop];
    const frames = [...new Set(Array.from(recording.iterations.tag, (each) => recording.tagFrame[each]))];
    const choice = el("select", { "aria-label": "Loop", onchange: (event) => this.showLoop(Number(event.target.value)) },
      ...frames.map((frame) => el("option", { value: frame, selected: frame === loop }, recording.frames[frame].name)));
    const holder = [...holders].sort((a, b) => b[1] - a[1])[0];
    summary.replaceChildren(choice,
      el("span", {}, ` ${plural(times.size, "iteration")}, at most ${mostOfRun} in flight${recording.devices.length > 1 ? " on a device" : ""}${limit ? `, ${limit} allowed` : ""}`),
      holder ? el("span", {}, " · the next one waited most often for ") : "",
      holder ? el("button", { type: "button", class: "link", onclick: () => app.graph.reveal(holder[0]) }, recording.nodes[holder[0]].name) : "",
      holder ? ` (${count(holder[1])}×)` : "");
    this.moment.emit("timeline");
  }

  drawIterations(context, width, height) {
    const { recording } = this;
    const { tag, open, close, held_by: heldBy } = recording.iterations;
    if (!this.spans || !this.spans.length) return;
    const [from, to] = this.span;
    const visible = this.spans.filter((at) => close[at] >= from && open[at] <= to);
    const flightTop = 8;
    const flightHeight = 26;
    context.textAlign = "left";
    context.textBaseline = "middle";
    context.font = `11px ${theme.sans}`;
    context.fillStyle = theme.muted;
    context.fillText("in flight", 14, flightTop + flightHeight / 2);
    context.save();
    context.beginPath();
    context.rect(GUTTER, 0, width - GUTTER, height - 18);
    context.clip();
    context.beginPath();
    const level = (n) => flightTop + flightHeight - (n / Math.max(1, this.mostInFlight)) * flightHeight;
    context.moveTo(GUTTER, level(0));
    let lastX = -1;
    let now = 0;
    for (const [time, n] of this.flight) {
      const x = this.x(time);
      if (x - lastX >= 0.5) {
        context.lineTo(x, level(now));
        lastX = x;
      }
      context.lineTo(lastX, level(n));
      now = n;
    }
    context.lineTo(width, level(now));
    context.lineTo(width, level(0));
    context.fillStyle = theme.loop;
    context.globalAlpha = 0.25;
    context.fill();
    context.globalAlpha = 1;
    const top = flightTop + flightHeight + 10;
    // A row for each number of an iteration: a nested loop uses the same rows again in each iteration around it.
    let [least, most] = [Infinity, 0];
    for (const at of visible) {
      least = Math.min(least, recording.tagIteration[tag[at]]);
      most = Math.max(most, recording.tagIteration[tag[at]]);
    }
    const rowHeight = Math.min(16, (height - top - 24) / Math.max(1, most - least + 1));
    this.bars = { top, rowHeight, visible, least };
    visible.forEach((at) => {
      const y = top + (recording.tagIteration[tag[at]] - least) * rowHeight;
      const left = this.x(open[at]);
      const right = Math.max(this.x(close[at]), left + 1);
      context.fillStyle = theme.loop;
      context.globalAlpha = (recording.tagParent[tag[at]] % 2 ? 0.75 : 0.55);
      context.fillRect(left, y, right - left, Math.max(0.6, rowHeight - 2));
      context.globalAlpha = 1;
      if (heldBy[at] !== NONE && rowHeight > 4) {
        // The edge that held this iteration back: from the one before it to its beginning.
        context.strokeStyle = theme.critical;
        context.lineWidth = 1.4;
        context.beginPath();
        context.moveTo(left + 0.7, y - rowHeight * 0.6);
        context.lineTo(left + 0.7, y + rowHeight - 2);
        context.stroke();
      }
      if (rowHeight >= 11) {
        const text = `${recording.tagIteration[tag[at]]}`;
        context.font = `10px ${theme.sans}`;
        context.fillStyle = "#fff";
        if (right - left > 14) context.fillText(text, left + 5, y + rowHeight / 2 - 1);
      }
    });
    context.restore();
  }

  // --- cursor and transport ---

  moved() {
    const { recording, moment } = this;
    const { row } = moment;
    if (row < 0) return;
    const { begin, end, tag, node, dead } = recording.tokens;
    if (document.activeElement !== this.range || Number(this.range.value) !== row) this.range.value = row;
    const name = recording.nodes[node[row]].name;
    byId("position").textContent = `${count(row + 1)} / ${count(recording.length)}`;
    byId("clock").textContent = duration(end[row]);
    byId("token").replaceChildren(el("span", { class: dead[row] ? "dead" : "now" }, name), el("span", { class: "tag" }, recording.tags[tag[row]].text));
    this.range.setAttribute("aria-valuetext", `token ${row + 1} of ${recording.length}: ${name}, ${recording.tags[tag[row]].text}${dead[row] ? ", dead" : ""}`);
    const [from, to] = this.span;
    if (end[row] > to || begin[row] < from) {
      const size = to - from;
      if (size < recording.duration) {
        const start = Math.max(this.most[0], Math.min(this.most[1] - size, begin[row] - size / 3));
        this.span = [start, start + size];
        this.draw();
      }
    }
    this.drawCursor();
  }

  drawCursor() {
    if (!this.over.clientWidth) return;
    const context = prepare(this.over);
    const { row } = this.moment;
    if (row < 0) return;
    const { begin, end, device } = this.recording.tokens;
    const height = this.over.clientHeight;
    const x = this.x(end[row]);
    if (x >= GUTTER - 1) {
      context.strokeStyle = theme.current;
      context.lineWidth = 1.5;
      context.beginPath();
      context.moveTo(x, 0);
      context.lineTo(x, height - 16);
      context.stroke();
    }
    if (this.tab === "lanes") {
      const left = Math.max(GUTTER, this.x(begin[row]));
      const y = this.lanes[device[row]].top + this.level[row] * this.rowHeight - (this.scroll || 0);
      context.fillStyle = theme.current;
      context.fillRect(left, y - 1, Math.max(2, x - left), this.rowHeight - 1);
    }
  }

  listen() {
    const { moment, recording } = this;
    this.range.max = Math.max(0, recording.length - 1);
    this.range.addEventListener("input", () => {
      moment.scrubbing = true;
      moment.seek(Number(this.range.value));
    });
    this.range.addEventListener("change", () => {
      moment.scrubbing = false;
      moment.emit("row");
    });
    this.over.addEventListener("wheel", (event) => {
      event.preventDefault();
      if (event.offsetX < GUTTER) {
        this.scroll = (this.scroll || 0) + event.deltaY; // more devices than fit
        moment.emit("timeline");
        return;
      }
      const [from, to] = this.span;
      const [least, most] = this.most;
      if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        const by = ((event.deltaX || event.deltaY) / this.canvas.clientWidth) * (to - from);
        const start = Math.max(least, Math.min(most - (to - from), from + by));
        this.span = [start, start + to - from];
      } else {
        const pivot = this.time(event.offsetX);
        const factor = Math.exp(event.deltaY * 0.002);
        const start = Math.max(least, pivot - (pivot - from) * factor);
        const stop = Math.min(most, pivot + (to - pivot) * factor);
        if (stop - start > recording.duration * 1e-7) this.span = [start, stop];
      }
      moment.emit("timeline");
    }, { passive: false });
    this.over.addEventListener("dblclick", () => {
      this.reset();
      moment.emit("timeline");
    });
    let drag = null;
    this.over.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      this.over.setPointerCapture(event.pointerId);
      drag = { moved: false };
      if (event.offsetX > GUTTER) moment.seek(this.rowUnder(event));
    });
    this.over.addEventListener("pointermove", (event) => {
      if (drag) {
        moment.scrubbing = true;
        moment.seek(recording.rowAt(this.time(event.offsetX)));
        tooltip.hide();
      } else this.hover(event);
    });
    const stop = () => {
      drag = null;
      moment.scrubbing = false;
    };
    this.over.addEventListener("pointerup", stop);
    this.over.addEventListener("pointercancel", stop);
    this.over.addEventListener("pointerleave", () => tooltip.hide());
    new ResizeObserver(() => this.draw()).observe(this.canvas);
  }

  /** The token under the pointer, otherwise the last one that had ended by that time. */
  tokenAt(event) {
    if (this.tab !== "lanes") return -1;
    const y = event.offsetY + (this.scroll || 0);
    const { begin, end, device } = this.recording.tokens;
    const lane = this.lanes.findIndex((each) => y >= each.top && y < each.top + each.height - 6);
    if (lane < 0) return -1;
    const level = Math.floor((y - this.lanes[lane].top) / this.rowHeight);
    const slack = 1.5 / ((this.canvas.clientWidth - GUTTER) / (this.span[1] - this.span[0]));
    const time = this.time(event.offsetX);
    for (let at = this.firstAfter(time - this.longest - slack); at < this.order.length; at++) {
      const row = this.order[at];
      if (begin[row] > time + slack) break;
      if (device[row] === lane && this.level[row] === level && end[row] >= time - slack) return row;
    }
    return -1;
  }

  rowUnder(event) {
    const row = this.tokenAt(event);
    return row >= 0 ? row : this.recording.rowAt(this.time(event.offsetX));
  }

  hover(event) {
    const { recording } = this;
    if (this.tab === "iterations") {
      const bars = this.bars;
      const index = bars ? Math.floor((event.offsetY - bars.top) / bars.rowHeight) : -1;
      const { tag, open, close, held_by: heldBy } = recording.iterations;
      const time = this.time(event.offsetX);
      const slack = (this.span[1] - this.span[0]) / this.canvas.clientWidth;
      const at = bars && index >= 0 && event.offsetX >= GUTTER
        ? bars.visible.find((each) => recording.tagIteration[tag[each]] === bars.least + index && open[each] - slack <= time && close[each] + slack >= time) : undefined;
      if (at === undefined) return tooltip.hide();
      return tooltip.show(event.clientX, event.clientY, [
        ["head", recording.tags[tag[at]].text], ["note", `opened at ${duration(open[at])}, closed after ${duration(close[at] - open[at])}`],
        heldBy[at] !== NONE && ["note", `held back by ${recording.nodes[heldBy[at]].name}`],
      ]);
    }
    const row = this.tokenAt(event);
    if (row < 0) return tooltip.hide();
    const { node, tag, begin, end, dead } = recording.tokens;
    return tooltip.show(event.clientX, event.clientY, [
      ["head", recording.nodes[node[row]].name], dead[row] && ["dead", recording.causeText(row)],
      ["note", `${recording.tags[tag[row]].text}  ·  ${duration(end[row] - begin[row])} from ${duration(begin[row])}`],
    ]);
  }

  showTab(tab) {
    this.tab = tab;
    byId("flight").hidden = tab !== "iterations";
    this.draw();
  }
}
