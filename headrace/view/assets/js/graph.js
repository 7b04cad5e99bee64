// The graph on two canvases: boxes, nodes and edges below, drawn when the camera moves; the state of the moment above,
// drawn with each token. Titles of boxes are elements over them, so that the keyboard reaches them.

const NODE_HEIGHT = 42;
const PILL_HEIGHT = 26;
const READABLE = 0.5; // scale from which on nodes show all their texts
const NAMED = 0.26; // ... show their names

class GraphView {
  /** `place` has the elements of the drawing: { stage, base, over, titles, busy, zoomed }. */
  constructor(recording, model, moment, place) {
    Object.assign(this, { recording, model, moment }, place);
    this.camera = { x: 0, y: 0, scale: 1 };
    this.boxes = null; // key → [x, y, width, height], of the layout
    this.job = 0;
    this.measure = document.createElement("canvas").getContext("2d");
    this.follow = true;
    this.layout = new Layout((answer) => this.arrange(answer));
    this.listen();
    moment.on("row pins selection critical", (names) => this.changed(names));
    moment.on("camera", () => this.draw());
  }

  get hasRun() {
    return this.recording.length > 0;
  }

  // --- layout ---

  sizes() {
    const { measure, model, recording } = this;
    const width = (text, font) => {
      measure.font = font;
      return measure.measureText(text).width;
    };
    return {
      node: (node) => {
        const name = width(model.label(node), `500 12px ${theme.sans}`);
        if (model.role[node]) return [Math.min(210, name + (this.hasRun ? 84 : 36)), PILL_HEIGHT];
        const type = width(recording.nodes[node].type + model.operands[node], `11px ${theme.sans}`);
        if (!this.hasRun) return [Math.max(70, Math.min(240, name + type + 34)), PILL_HEIGHT + 2];
        return [Math.max(112, Math.min(240, name + type + 38)), NODE_HEIGHT];
      },
      closed: (container) => [Math.max(140, Math.min(280, width(model.title(container), `600 12px ${theme.sans}`) + (container.kind === "scope" ? 92 : 140))), 34],
      header: (container) => {
        const selector = container.kind === "loop" && this.hasRun ? 232 : container.kind === "scope" ? 50 : 100;
        return Math.min(420, width(model.title(container), `600 12px ${theme.sans}`) + selector);
      },
    };
  }

  /** Asks the worker for the positions of everything that is open. */
  layOut(then) {
    const { chains, lines, ...problem } = this.model.problem(this.sizes());
    this.job++;
    this.waiting = { chains, lines, then };
    this.busy.hidden = false;
    this.layout.ask({ id: this.job, ...problem });
  }

  arrange({ id, boxes, lines, error }) {
    if (id !== this.job) return; // a later request is under way
    this.busy.hidden = true;
    if (error) {
      showError(`the layout failed: ${error}`);
      return;
    }
    const anchor = this.anchor && this.boxes && this.boxes[this.anchor];
    const before = anchor && [...anchor];
    this.boxes = boxes;
    this.segments = new Map();
    this.chains = this.waiting.chains;
    const points = new Map();
    for (const [container, all] of Object.entries(lines)) for (const [from, to, each] of all) points.set(`${container}|${from}|${to}`, each);
    for (const line of this.waiting.lines.values()) {
      const found = points.get(`${line.container}|${line.from}|${line.to}`);
      if (found !== undefined) this.segments.set(line.key, this.segment(line, found));
    }
    this.loopBacks();
    this.items = [];
    for (const key of Object.keys(boxes)) if (key[0] === "n") this.items.push(Number(key.slice(1)));
    this.findCritical();
    this.placeTitles();
    if (before && this.boxes[this.anchor]) {
      // The box that was opened or closed stays under the pointer.
      const [x, y] = this.boxes[this.anchor];
      this.camera.x += (before[0] - x) * this.camera.scale;
      this.camera.y += (before[1] - y) * this.camera.scale;
    }
    this.anchor = null;
    const { then } = this.waiting;
    this.waiting = null;
    if (then) then();
    document.documentElement.dataset.laidOut = String(id);
    this.draw();
  }

  /** The curve of a line, from the bottom of its source to the top of its target. */
  segment(line, points) {
    const end = (key, x, isSource) => {
      const port = this.boxes[`${line.container}/${key}`];
      if (port) {
        const outer = this.boxes[line.container];
        return isSource ? [port[0] + 3, outer[1]] : [port[0] + 3, outer[1] + outer[3]];
      }
      const inner = this.boxes[`${key}/${isSource ? "o" : "i"}${line.source}`];
      const [left, top, width, height] = this.boxes[key];
      const at = inner ? inner[0] + 3 : Math.max(left + 12, Math.min(left + width - 12, x));
      return [at, isSource ? top + height : top];
    };
    const n = points ? points.length / 2 : 0; // none: a long line that is drawn directly
    const from = end(line.from, n > 3 ? points[2] : n ? points[2 * n - 2] : this.centerOf(line.to, line), true);
    const to = end(line.to, n > 3 ? points[2 * n - 4] : from[0], false);
    const knots = [from];
    // Between neighboring ranks dagre's point is in the middle and the curve is smoother without it; of a straight run,
    // only the ends count.
    for (let at = 1; n > 3 && at < n - 1; at++) {
      const x = points[2 * at];
      const isStraight = at > 1 && at < n - 2 && Math.abs(points[2 * at - 2] - x) < 1 && Math.abs(points[2 * at + 2] - x) < 1;
      if (!isStraight) knots.push([x, points[2 * at + 1]]);
    }
    knots.push(to);
    const path = new Path2D();
    path.moveTo(knots[0][0], knots[0][1]);
    const bounds = [Infinity, Infinity, -Infinity, -Infinity];
    for (const [x, y] of knots) {
      bounds[0] = Math.min(bounds[0], x);
      bounds[1] = Math.min(bounds[1], y);
      bounds[2] = Math.max(bounds[2], x);
      bounds[3] = Math.max(bounds[3], y);
    }
    for (let at = 1; at < knots.length; at++) {
      const [x, y] = knots[at - 1];
      const [u, v] = knots[at];
      if (Math.abs(u - x) < 0.5) path.lineTo(u, v);
      else path.bezierCurveTo(x, y + (v - y) * 0.5, u, y + (v - y) * 0.5, u, v);
    }
    const arrow = line.to[0] === "o" || this.boxes[`${line.to}/i${line.source}`] ? null : knots[knots.length - 1];
    return { path, bounds, arrow, kind: line.kind };
  }

  centerOf(key, line) {
    const [x, , width] = this.boxes[`${line.container}/${key}`] || this.boxes[key];
    return x + width / 2;
  }

  /** Curves from the next value of a loop variable back to the variable, drawn for the selected one. */
  loopBacks() {
    this.backs = new Map();
    for (const edge of this.model.edges) {
      if (edge.kind !== "back") continue;
      const from = this.boxes[`n${edge.from}`];
      const to = this.boxes[`n${edge.to}`];
      const outer = this.boxes[`c${this.model.ofNode[edge.to]}`];
      if (!from || !to || !outer) continue;
      // Below the row of next values, along the left border, and above the row of variables.
      const path = new Path2D();
      const left = outer[0] + 7;
      const start = from[0] + from[2] / 2 - 8;
      const stop = to[0] + to[2] / 2 - 8;
      const low = from[1] + from[3] + 10;
      const high = to[1] - 10;
      path.moveTo(start, from[1] + from[3]);
      path.arcTo(start, low, left, low, 8);
      path.arcTo(left, low, left, high, 8);
      path.arcTo(left, high, stop, high, 8);
      path.arcTo(stop, high, stop, to[1], 8);
      path.lineTo(stop, to[1]);
      this.backs.set(`${edge.from}>${edge.to}`, path);
    }
  }

  /** Pairs of visible nodes that follow each other on the critical path. */
  findCritical() {
    const { recording, model } = this;
    this.criticalPairs = new Set();
    let last = -1;
    for (const row of recording.critical) {
      const node = recording.tokens.node[row];
      if (!model.shown[node]) continue;
      if (last >= 0) this.criticalPairs.add(`${last}>${node}`);
      last = node;
    }
  }

  // --- titles of boxes ---

  placeTitles() {
    const { model } = this;
    const focused = document.activeElement && document.activeElement.dataset.box;
    const titles = [];
    this.selectors = new Map();
    for (const container of model.ordered()) {
      const box = this.boxes[`c${container.id}`];
      if (!box || container.id === 0) continue;
      const title = model.title(container);
      const button = el("button", {
        class: "fold", type: "button", "aria-expanded": String(container.open), "data-box": container.id,
        "aria-label": `${container.open ? "Close" : "Open"} ${container.kind} ${title}`,
        onclick: () => this.toggle(container.id),
      }, el("span", { class: "chevron", "aria-hidden": "true" }, container.open ? "▾" : "▸"), el("span", { class: "name" }, title));
      const head = el("div", { class: `title ${container.kind}${container.open ? "" : " closed"}` }, button);
      if (container.kind === "loop" && container.open && this.hasRun) head.append(this.selector(container.frame, title));
      else head.append(el("span", { class: "note" }, container.kind === "scope" ? (container.open ? "" : plural(container.size, "op")) : container.open ? container.kind : `${container.kind} · ${plural(container.size, "op")}`));
      head.style.left = `${box[0]}px`;
      head.style.top = `${box[1]}px`;
      head.style.width = `${box[2]}px`;
      head.style.height = container.open ? "30px" : `${box[3]}px`;
      titles.push(head);
    }
    this.titles.replaceChildren(...titles);
    if (focused) {
      const again = this.titles.querySelector(`button[data-box="${focused}"]`);
      if (again) again.focus({ preventScroll: true });
    }
    this.showIterations();
  }

  /** Controls that choose the iteration of a loop. */
  selector(frame, title) {
    const { moment } = this;
    const choose = (iteration) => {
      if (moment.offered(frame).has(iteration)) moment.pin(frame, iteration);
      else this.showIterations();
    };
    const input = el("input", {
      type: "text", inputmode: "numeric", class: "iteration", "aria-label": `Iteration of loop ${title}`, size: 4,
      onchange: (event) => choose(Number.parseInt(event.target.value, 10)),
    });
    const total = el("span", { class: "total" });
    const move = (by) => {
      const offered = moment.choices(frame);
      const at = offered.indexOf(Number.parseInt(input.value, 10));
      choose(offered[Math.max(0, Math.min(offered.length - 1, at + by))]);
    };
    const live = el("button", {
      type: "button", class: "follow", "aria-pressed": "true", title: "Follow the current token",
      "aria-label": `Loop ${title} follows the current token`, onclick: () => moment.pin(frame, null),
    }, "live");
    this.selectors.set(frame, { input, total, live });
    return el("span", { class: "selector", role: "group", "aria-label": `Iterations of loop ${title}` },
      el("button", { type: "button", "aria-label": `Previous iteration of loop ${title}`, onclick: () => move(-1) }, "‹"),
      input, total,
      el("button", { type: "button", "aria-label": `Next iteration of loop ${title}`, onclick: () => move(1) }, "›"),
      live);
  }

  showIterations() {
    const { moment, recording } = this;
    for (const [frame, { input, total, live }] of this.selectors || []) {
      const tag = moment.tagOf(frame);
      const offered = moment.offered(frame);
      const text = tag >= 0 ? String(recording.tagIteration[tag]) : "–";
      if (document.activeElement !== input || !moment.playing) input.value = text;
      const most = offered.size ? `of ${count(offered.size)}` : "";
      if (total.textContent !== most) total.textContent = most;
      live.setAttribute("aria-pressed", String(!moment.pins.has(frame)));
    }
  }

  toggle(id) {
    const container = this.model.containers[id];
    container.open = !container.open;
    this.anchor = `c${id}`;
    this.layOut();
  }

  // --- camera ---

  listen() {
    let drag = null;
    this.stage.addEventListener("wheel", (event) => {
      event.preventDefault();
      if (event.ctrlKey || event.metaKey || !event.shiftKey) {
        const factor = Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0015));
        const box = this.stage.getBoundingClientRect();
        this.zoom(factor, event.clientX - box.left, event.clientY - box.top);
      } else {
        this.camera.x -= event.deltaX || event.deltaY;
        this.moment.emit("camera");
      }
    }, { passive: false });
    this.stage.addEventListener("pointerdown", (event) => {
      if (event.button || event.target.closest("button, input")) return;
      drag = { x: event.clientX, y: event.clientY, moved: false };
      this.stage.setPointerCapture(event.pointerId);
    });
    this.stage.addEventListener("pointermove", (event) => {
      if (drag) {
        const [dx, dy] = [event.clientX - drag.x, event.clientY - drag.y];
        if (!drag.moved && Math.abs(dx) + Math.abs(dy) < 4) return;
        drag = { x: event.clientX, y: event.clientY, moved: true };
        this.camera.x += dx;
        this.camera.y += dy;
        this.moment.emit("camera");
        tooltip.hide();
      } else this.hover(event);
    });
    this.stage.addEventListener("pointerup", (event) => {
      if (drag && !drag.moved) this.moment.select(this.nodeAt(event));
      drag = null;
    });
    this.stage.addEventListener("pointercancel", () => (drag = null));
    this.stage.addEventListener("pointerleave", () => {
      tooltip.hide();
      this.hovered = -1;
    });
    new ResizeObserver(() => this.boxes && this.draw()).observe(this.stage);
  }

  zoom(factor, x = this.stage.clientWidth / 2, y = this.stage.clientHeight / 2) {
    const scale = Math.max(0.03, Math.min(3, this.camera.scale * factor));
    this.camera.x = x - (x - this.camera.x) * (scale / this.camera.scale);
    this.camera.y = y - (y - this.camera.y) * (scale / this.camera.scale);
    this.camera.scale = scale;
    this.moment.emit("camera");
  }

  fit(isFirst = false) {
    const [x, y, width, height] = this.boxes.c0;
    const [w, h] = [this.stage.clientWidth, this.stage.clientHeight];
    let scale = Math.min(1.15, w / width, h / height);
    // A tall graph begins at its top, so that it can be read.
    if (isFirst && scale < 0.75) scale = Math.max(scale, Math.min(0.75, w / width));
    scale = Math.max(0.03, scale);
    this.camera = { scale, x: (w - width * scale) / 2 - x * scale, y: Math.max(0, (h - height * scale) / 2) - y * scale };
    if (width * scale > w) this.camera.x = (w - width * scale) / 2 - x * scale;
    this.moment.emit("camera");
  }

  /** Moves the camera so that a node, or the closed box around it, is in view. */
  show(node, always = true) {
    if (node < 0 || !this.boxes) return;
    const box = this.boxes[this.model.standIn(node)];
    if (!box) return;
    const { camera, stage } = this;
    const margin = 60;
    const x = (box[0] + box[2] / 2) * camera.scale + camera.x;
    const y = (box[1] + box[3] / 2) * camera.scale + camera.y;
    const outside = x < margin || y < margin || x > stage.clientWidth - margin || y > stage.clientHeight - margin;
    const isSmall = always && camera.scale < READABLE;
    if (!outside && !isSmall) return;
    if (isSmall) camera.scale = 0.8;
    camera.x = stage.clientWidth / 2 - (box[0] + box[2] / 2) * camera.scale;
    camera.y = stage.clientHeight / 2 - (box[1] + box[3] / 2) * camera.scale;
    this.moment.emit("camera");
  }

  /** Opens the boxes around a node, selects it and shows it. */
  reveal(node) {
    this.moment.select(node);
    if (!this.model.shown[node]) {
      this.model.folded = false;
      this.model.fold();
      showFolding();
      this.model.reveal(node);
      this.layOut(() => this.show(node));
    } else if (this.model.reveal(node)) this.layOut(() => this.show(node));
    else this.show(node, true);
  }

  // --- pointer ---

  nodeAt(event) {
    if (!this.boxes) return -1;
    const area = this.stage.getBoundingClientRect();
    const x = (event.clientX - area.left - this.camera.x) / this.camera.scale;
    const y = (event.clientY - area.top - this.camera.y) / this.camera.scale;
    for (const node of this.items) {
      const [left, top, width, height] = this.boxes[`n${node}`];
      if (x >= left && x <= left + width && y >= top && y <= top + height) return node;
    }
    return -1;
  }

  /** Where a node is on the screen, for tests and for the tooltip of the keyboard. */
  whereIs(node) {
    const box = this.boxes[`n${node}`];
    if (!box) return null;
    const area = this.stage.getBoundingClientRect();
    const { x, y, scale } = this.camera;
    return [area.left + (box[0] + box[2] / 2) * scale + x, area.top + (box[1] + box[3] / 2) * scale + y];
  }

  hover(event) {
    const node = event.target.closest("button, input") ? -1 : this.nodeAt(event);
    this.stage.style.cursor = node >= 0 ? "pointer" : "";
    if (node < 0) tooltip.hide();
    else tooltip.show(event.clientX, event.clientY, this.describe(node));
    if (node !== this.hovered) {
      this.hovered = node;
      this.drawOver();
    }
  }

  describe(node) {
    const { recording, moment } = this;
    const { name, type, outputs, source, variable } = recording.nodes[node];
    const row = moment.tokenOf(node);
    const lines = [["head", name], variable !== null && ["note", `loop variable ${variable}`], ["note", `${type}${outputs.length ? `  →  ${outputs.map(([dtype, shape]) => dtype + shapeText(shape)).join(", ")}` : ""}`]];
    if (row >= 0) {
      if (recording.tokens.dead[row]) lines.push(["dead", recording.causeText(row)]);
      else {
        const value = recording.value(row, 0);
        if (value) lines.push(["mono", clip(value.elements, 60)]);
      }
      lines.push(["note", `${recording.tags[recording.tokens.tag[row]].text}  ·  ${duration(recording.tokens.end[row] - recording.tokens.begin[row])}`]);
    } else if (this.hasRun) lines.push(["note", recording.firings(node) ? "not fired yet" : "never fires in this step"]);
    if (source) lines.push(["note", `${recording.files[source[0]].name}:${source[1]}`]);
    return lines;
  }

  // --- drawing ---

  changed(names) {
    if (!this.boxes) return;
    if (names.includes("pins") || names.includes("row")) this.showIterations();
    if (names.includes("row") && this.follow && !this.moment.scrubbing) {
      this.show(this.recording.tokens.node[this.moment.row], false);
    }
    if (names.includes("critical")) this.draw();
    else this.drawOver();
  }

  view() {
    const { x, y, scale } = this.camera;
    return [-x / scale, -y / scale, (this.stage.clientWidth - x) / scale, (this.stage.clientHeight - y) / scale];
  }

  draw() {
    if (!this.boxes) return;
    const { camera, model, boxes } = this;
    const context = prepare(this.base);
    const [left, top, right, bottom] = this.view();
    context.translate(camera.x, camera.y);
    context.scale(camera.scale, camera.scale);
    const isReadable = camera.scale >= READABLE;
    for (const container of model.ordered()) {
      const box = boxes[`c${container.id}`];
      if (!box || container.id === 0) continue;
      if (box[0] > right || box[1] > bottom || box[0] + box[2] < left || box[1] + box[3] < top) continue;
      const color = theme[container.kind];
      context.beginPath();
      context.roundRect(box[0], box[1], box[2], box[3], 8);
      context.globalAlpha = 1;
      context.fillStyle = container.open ? theme.page : theme.card;
      context.fill();
      context.globalAlpha = container.open ? 0.055 : 0.12;
      context.fillStyle = color;
      context.fill();
      context.globalAlpha = container.kind === "scope" ? 0.35 : 0.55;
      context.strokeStyle = color;
      context.lineWidth = Math.max(1, 0.8 / camera.scale);
      context.setLineDash(container.kind === "scope" ? [4, 3] : []);
      context.stroke();
      context.setLineDash([]);
      context.globalAlpha = 1;
    }
    // Edges: one stroke for all of a kind, since their curves are ready.
    context.lineWidth = Math.max(1.1, 0.7 / camera.scale);
    context.strokeStyle = theme.edge;
    context.fillStyle = theme.edge;
    for (const segment of this.segments.values()) {
      const [x0, y0, x1, y1] = segment.bounds;
      if (x0 > right || y0 > bottom || x1 < left || y1 < top) continue;
      if (camera.scale < 0.12 && x1 - x0 + y1 - y0 < 60) continue;
      if (segment.kind !== "data") context.setLineDash(segment.kind === "control" ? [2, 4] : [6, 4]);
      context.stroke(segment.path);
      if (segment.kind !== "data") context.setLineDash([]);
      if (segment.arrow && camera.scale > 0.25) arrowHead(context, segment.arrow);
    }
    for (const node of this.items) {
      const [x, y, width, height] = boxes[`n${node}`];
      if (x > right || y > bottom || x + width < left || y + height < top) continue;
      this.drawNode(context, node, x, y, width, height, isReadable);
    }
    if (!isReadable) this.drawNames(context, left, top, right, bottom);
    this.titles.style.transform = `translate(${camera.x}px, ${camera.y}px) scale(${camera.scale})`;
    this.titles.classList.toggle("far", camera.scale < READABLE);
    this.zoomed.textContent = `${Math.round(camera.scale * 100)}%`;
    this.drawOver();
  }

  /** Names of boxes in the size of the screen, where their titles would be too small. */
  drawNames(context, left, top, right, bottom) {
    const { scale } = this.camera;
    context.font = `600 ${11 / scale}px ${theme.sans}`;
    context.textBaseline = "top";
    context.textAlign = "left";
    for (const container of this.model.ordered()) {
      const box = this.boxes[`c${container.id}`];
      if (!box || container.id === 0 || box[2] * scale < 50) continue;
      if (box[0] > right || box[1] > bottom || box[0] + box[2] < left || box[1] + box[3] < top) continue;
      context.fillStyle = container.kind === "scope" ? theme.muted : theme[container.kind];
      context.fillText(fit(context, this.model.title(container), box[2] - 12 / scale), box[0] + 6 / scale, box[1] + Math.min(5 / scale, 8));
    }
  }

  drawNode(context, node, x, y, width, height, isReadable) {
    const { model, recording } = this;
    const isPill = Boolean(model.role[node]);
    const { constant, type } = recording.nodes[node];
    context.beginPath();
    context.roundRect(x, y, width, height, isPill ? height / 2 : 6);
    context.fillStyle = theme.card;
    context.fill();
    context.lineWidth = 1;
    context.strokeStyle = isPill ? theme.loop : theme.strong;
    context.globalAlpha = isPill ? 0.7 : 1;
    context.stroke();
    context.globalAlpha = 1;
    context.textBaseline = "middle";
    const { scale } = this.camera;
    if (!isReadable) {
      if (scale < NAMED || width * scale < 24) return;
      context.font = `500 ${9 / scale}px ${theme.sans}`;
      context.textAlign = "center";
      context.fillStyle = isPill ? theme.loop : theme.text;
      context.fillText(fit(context, model.label(node), width - 3 / scale), x + width / 2, y + height / 2);
      return;
    }
    if (isPill && !this.hasRun) {
      context.font = `500 12px ${theme.sans}`;
      context.textAlign = "center";
      context.fillStyle = theme.loop;
      context.fillText(fit(context, model.label(node), width - 16), x + width / 2, y + height / 2);
      return;
    }
    context.textAlign = "left";
    const middle = isPill || !this.hasRun ? y + height / 2 : y + 14;
    context.font = `500 12px ${theme.sans}`;
    context.fillStyle = isPill ? theme.loop : theme.text;
    const label = fit(context, model.label(node), width - (isPill && this.hasRun ? 70 : 24));
    context.fillText(label, x + 13, middle);
    if (isPill) return;
    const used = context.measureText(label).width;
    context.font = `11px ${theme.sans}`;
    context.fillStyle = theme.muted;
    context.textAlign = "right";
    const text = constant === null ? type + model.operands[node] : clip(constant, 16);
    context.fillText(fit(context, text, width - used - 30), x + width - 10, middle);
  }

  drawOver() {
    if (!this.boxes) return;
    const { camera, model, moment, recording, boxes } = this;
    const context = prepare(this.over);
    const [left, top, right, bottom] = this.view();
    context.translate(camera.x, camera.y);
    context.scale(camera.scale, camera.scale);
    const isReadable = camera.scale >= READABLE;
    const current = this.hasRun ? recording.tokens.node[moment.row] : -1;
    if (moment.showCritical) this.drawCritical(context);
    this.drawEdgesOf(context, moment.selected, theme.selected);
    if (this.hovered >= 0 && this.hovered !== moment.selected) this.drawEdgesOf(context, this.hovered, theme.muted);
    if (current >= 0) this.drawInputs(context, current);
    const { dead } = recording.tokens;
    context.textBaseline = "middle";
    for (const node of this.items) {
      const [x, y, width, height] = boxes[`n${node}`];
      if (x > right || y > bottom || x + width < left || y + height < top) continue;
      const isPill = Boolean(model.role[node]);
      const row = this.hasRun ? moment.tokenOf(node) : -1;
      if (row >= 0) {
        const isDead = dead[row] === 1;
        const isAhead = row > moment.row;
        if (!isReadable) {
          const isNamed = camera.scale >= NAMED;
          context.globalAlpha = (isAhead ? 0.4 : isDead ? 0.7 : 1) * (isNamed ? 0.26 : 0.75);
          context.fillStyle = isDead ? theme.dead : theme.live;
          if (isNamed) {
            context.beginPath();
            context.roundRect(x, y, width, height, isPill ? height / 2 : 6);
            context.fill();
          } else context.fillRect(x, y, width, height);
          context.globalAlpha = 1;
        } else {
          if (isDead) {
            context.beginPath();
            context.roundRect(x, y, width, height, isPill ? height / 2 : 6);
            context.fillStyle = theme.wash;
            context.fill();
            context.setLineDash([3, 3]);
            context.lineWidth = 1.2;
            context.strokeStyle = theme.dead;
            context.stroke();
            context.setLineDash([]);
          }
          this.drawState(context, x, y, width, height, isPill, row, isDead, isAhead);
        }
      }
      if (moment.highlighted.has(node)) outline(context, x, y, width, height, isPill, theme.found, 2.2, camera.scale, 3);
      if (moment.showCritical && recording.criticalNodes[node]) outline(context, x, y, width, height, isPill, theme.critical, 2, camera.scale, 0);
      if (node === moment.selected) outline(context, x, y, width, height, isPill, theme.selected, 2, camera.scale, 0);
    }
    if (current >= 0) {
      const key = model.standIn(current);
      const box = boxes[key];
      if (box) outline(context, ...box, key[0] === "n" && Boolean(model.role[current]), theme.current, 2.6, camera.scale, current === moment.selected ? 3.5 : 0);
    }
    if (moment.selected >= 0 && !boxes[`n${moment.selected}`]) {
      const box = boxes[model.standIn(moment.selected)];
      if (box) outline(context, ...box, false, theme.selected, 2, camera.scale, 0);
    }
  }

  /** The mark of a node's state, and its value. */
  drawState(context, x, y, width, height, isPill, row, isDead, isAhead) {
    context.fillStyle = isDead ? theme.dead : theme.live;
    context.globalAlpha = isAhead ? 0.35 : 1;
    if (isPill) {
      context.textAlign = "right";
      context.font = `11px ${theme.mono}`;
      context.fillStyle = isDead ? theme.dead : theme.text;
      context.fillText(fit(context, isDead ? "dead" : this.valueText(row), 58), x + width - 12, y + height / 2);
    } else {
      context.beginPath();
      context.roundRect(x + 4, y + 6, 3, height - 12, 1.5);
      context.fill();
      context.textAlign = "left";
      context.font = `11px ${theme.mono}`;
      context.fillStyle = isDead ? theme.dead : theme.muted;
      context.fillText(fit(context, isDead ? "dead" : this.valueText(row), width - 24), x + 13, y + 29);
    }
    context.globalAlpha = 1;
  }

  valueText(row) {
    const value = this.recording.value(row, 0);
    if (!value) return this.recording.nodes[this.recording.tokens.node[row]].outputs.length ? "" : "done";
    if (value.nans) return `${value.elements}  ${plural(value.nans, "NaN")}`;
    return value.elements || number(value.mean);
  }

  strokeChain(context, edge) {
    if (this.waiting) return; // the model has new edges, and their chains are not laid out yet
    for (const key of this.chains[edge]) {
      const segment = this.segments.get(key);
      if (!segment) continue;
      context.stroke(segment.path);
      if (segment.arrow) arrowHead(context, segment.arrow);
    }
  }

  drawEdgesOf(context, node, color) {
    if (node < 0) return;
    context.strokeStyle = color;
    context.fillStyle = color;
    context.lineWidth = Math.max(1.6, 1.2 / this.camera.scale);
    for (const at of this.model.edgesOf[node]) {
      const edge = this.model.edges[at];
      if (edge.kind === "back") {
        const path = this.backs.get(`${edge.from}>${edge.to}`);
        context.setLineDash([5, 4]);
        if (path) context.stroke(path);
        context.setLineDash([]);
      } else this.strokeChain(context, at);
    }
  }

  /** The edges that brought the current token. */
  drawInputs(context, node) {
    context.strokeStyle = theme.current;
    context.fillStyle = theme.current;
    context.lineWidth = Math.max(1.6, 1.2 / this.camera.scale);
    for (const at of this.model.edgesOf[node]) {
      const edge = this.model.edges[at];
      if (edge.to === node && (edge.kind === "data" || edge.kind === "transfer")) this.strokeChain(context, at);
      else if (edge.to === node && edge.kind === "back" && this.hasRun) {
        const tag = this.recording.tokens.tag[this.moment.row];
        const path = this.backs.get(`${edge.from}>${edge.to}`);
        if (path && this.recording.tagIteration[tag] > 0) context.stroke(path);
      }
    }
  }

  drawCritical(context) {
    context.strokeStyle = theme.critical;
    context.fillStyle = theme.critical;
    context.lineWidth = Math.max(2, 1.4 / this.camera.scale);
    this.model.edges.forEach((edge, at) => {
      if (!this.criticalPairs.has(`${edge.from}>${edge.to}`)) return;
      if (edge.kind === "back") {
        const path = this.backs.get(`${edge.from}>${edge.to}`);
        if (path) context.stroke(path);
      } else this.strokeChain(context, at);
    });
  }
}

function outline(context, x, y, width, height, isPill, color, thickness, scale, gap) {
  context.beginPath();
  const grow = gap;
  context.roundRect(x - grow, y - grow, width + 2 * grow, height + 2 * grow, isPill ? height / 2 + grow : 6 + grow);
  context.lineWidth = Math.max(thickness, 1.5 / scale);
  context.strokeStyle = color;
  context.stroke();
}

function arrowHead(context, [x, y]) {
  context.beginPath();
  context.moveTo(x, y);
  context.lineTo(x - 3.5, y - 6.5);
  context.lineTo(x + 3.5, y - 6.5);
  context.fill();
}
