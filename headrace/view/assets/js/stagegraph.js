// The drawing of the graph after a stage. Operations that the stage added, removed or changed since another stage have a
// color and a sign; removed ones are drawn where they were.

const MARKS = [["+", "added"], ["−", "removed"], ["~", "changed"]];
const COMPARED = ["type", "outputs", "attrs", "constant", "inputs", "controls"];
const MOST_LISTED = 40; // operations of a kind in the inspector
const MOST_REVEALED = 60; // changes whose boxes are opened at first

/** Every index of the stage graphs is in the range of its table. */
function checkStageGraphs({ stages, stageGraphs, files }) {
  const { frames, parts, devices, nodes, graphs } = stageGraphs;
  const refuse = (place) => {
    throw new RecordingError(`stage_graphs: ${place} is out of range`);
  };
  frames.forEach((frame, at) => (frame.parent < at && frame.parent >= (at ? 0 : -1)) || refuse(`parent of frame ${at}`));
  nodes.forEach((node, at) => {
    if (!frames[node.frame] || !parts[node.part] || devices[node.device] === undefined) refuse(`node ${at}`);
    if (node.source && !files[node.source[0]]) refuse(`source of node ${at}`);
  });
  graphs.forEach((graph, at) => graph.forEach((node) => nodes[node] || refuse(`graph ${at}`)));
  stages.forEach((stage, at) => stage.graph === -1 || graphs[stage.graph] || refuse(`graph of stage ${at}`));
}

/** "CPU:1" of a requested or an assigned device, so that an assignment as requested is no change. */
function deviceKey(name) {
  const found = /(\w+:\d+)$/.exec(name);
  return found ? found[1].toUpperCase() : name;
}

/** The fields in which two entries of an operation differ. */
function differences(a, b, devices) {
  const out = COMPARED.filter((field) => JSON.stringify(a[field]) !== JSON.stringify(b[field]));
  const [from, to] = [devices[a.device], devices[b.device]];
  if (from && deviceKey(from) !== deviceKey(to)) out.push("device"); // an operation without a request may be anywhere
  return out;
}

/**
 * The graph after a stage as a recording without a run, with the marks of its operations, their entries in the other
 * stage, and the fields that changed. `before` is null: nothing is compared.
 */
function stageRecording(recording, before, after) {
  const { frames, parts, devices, nodes: entries, graphs } = recording.stageGraphs;
  const { files } = recording;
  // A name is unique in one part; on several devices, the copies of a name are told apart by their order.
  const keyed = (graph) => {
    const out = new Map();
    for (const at of graph) {
      const base = `${parts[entries[at].part][1]}|${entries[at].name}`;
      let key = base;
      for (let copy = 1; out.has(key); copy++) key = `${base}|${copy}`;
      out.set(key, at);
    }
    return out;
  };
  const now = keyed(graphs[after]);
  const old = before === null ? now : keyed(graphs[before]);
  const keys = [...now.keys(), ...[...old.keys()].filter((key) => !now.has(key))];
  const placeOf = new Map(keys.map((key, at) => [key, at]));
  const inPart = (map) => {
    const out = new Map();
    for (const [key, at] of map) out.set(`${entries[at].part}|${entries[at].name}`, placeOf.get(key));
    return out;
  };
  const [nowAt, oldAt] = [inPart(now), inPart(old)];
  const marks = [];
  const changed = [];
  const nodes = keys.map((key) => {
    const isRemoved = !now.has(key);
    const entry = entries[isRemoved ? old.get(key) : now.get(key)];
    const fields = !isRemoved && old.has(key) && old.get(key) !== now.get(key) ? differences(entries[old.get(key)], entry, devices) : [];
    marks.push(isRemoved ? "−" : old.has(key) ? (fields.length ? "~" : "") : "+");
    changed.push(fields);
    const places = isRemoved ? oldAt : nowAt;
    const place = (name) => places.get(`${entry.part}|${name}`);
    const cut = entry.name.lastIndexOf("/");
    return {
      ...entry, scope: cut < 0 ? "" : entry.name.slice(0, cut),
      inputs: entry.inputs.map(([name, output]) => [place(name), output]).filter(([at]) => at !== undefined),
      controls: entry.controls.map(place).filter((at) => at !== undefined),
    };
  });
  const out = withoutRun({ devices, files, frames, nodes });
  return Object.assign(out, { marks, changed, entries: keys.map((key) => [entries[old.get(key)], entries[now.get(key)]]) });
}

class StageView extends GraphView {
  drawNode(context, node, x, y, width, height, isReadable) {
    super.drawNode(context, node, x, y, width, height, isReadable);
    const mark = this.recording.marks[node];
    if (!mark) return;
    const { scale } = this.camera;
    const color = theme[MARKS.find(([sign]) => sign === mark)[1]];
    context.beginPath();
    context.roundRect(x, y, width, height, this.model.role[node] ? height / 2 : 6);
    context.fillStyle = color;
    context.globalAlpha = isReadable ? 0.1 : 0.35;
    context.fill();
    context.globalAlpha = 1;
    context.strokeStyle = color;
    context.lineWidth = Math.max(1.6, 1.2 / scale);
    context.setLineDash(mark === "−" ? [4, 3] : []);
    context.stroke();
    context.setLineDash([]);
    const radius = Math.max(7, Math.min(5 / scale, 14));
    context.beginPath();
    context.arc(x, y, radius, 0, 2 * Math.PI);
    context.fill();
    context.fillStyle = theme.card;
    context.font = `700 ${radius * 1.7}px ${theme.mono}`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.fillText(mark, x, y + radius * 0.08);
  }

  /** Closed boxes count the changes inside. */
  placeTitles() {
    super.placeTitles();
    const { model, recording } = this;
    const counts = (container) => {
      const out = MARKS.map(([sign]) => container.nodes.filter((node) => recording.marks[node] === sign).length);
      for (const child of container.children) counts(model.containers[child]).forEach((n, at) => (out[at] += n));
      return out;
    };
    for (const head of this.titles.children) {
      const container = model.containers[Number(head.firstChild.dataset.box)];
      if (container.open) continue;
      counts(container).forEach((n, at) => n && head.append(el("span", { class: `marks ${MARKS[at][1]}`, title: `${n} ${MARKS[at][1]}` }, `${MARKS[at][0]}${n}`)));
    }
  }
}

class StageDrawing {
  constructor(recording) {
    checkStageGraphs(recording);
    this.recording = recording;
    this.root = byId("stage-drawing");
    this.view = null;
    this.shown = ""; // the stages that the view shows
    this.graph = null;
  }

  get isShown() {
    return Boolean(this.graph) && !byId("view-stages").hidden;
  }

  /** Draws the graph of the stage `after`, compared with `before`; -1: with none. */
  show(before, after) {
    const { stages, stageGraphs } = this.recording;
    const [old, now] = [before < 0 ? -1 : stages[before].graph, stages[after].graph];
    const missing = now < 0 ? stages[after] : before >= 0 && old < 0 ? stages[before] : null;
    if (!this.view) this.build();
    this.message.textContent = missing ? `${missing.name} has no drawing. ${stageGraphs.note || "Its graph has no primitive form, or its part of the stage has no graph."}` : "";
    this.message.hidden = !missing;
    this.place.stage.classList.toggle("empty", now < 0);
    this.legend.hidden = now < 0;
    const wanted = `${old}:${now}`;
    if (wanted !== this.shown) {
      this.shown = wanted;
      this.graph = now < 0 ? null : stageRecording(this.recording, old < 0 ? null : old, now);
      if (this.graph) this.draw(old >= 0);
    } else if (this.graph) this.view.draw();
    this.inspect();
  }

  build() {
    const canvas = (name) => el("canvas", { "aria-hidden": "true", class: name });
    const place = {
      stage: el("div", { class: "stage", "aria-label": "Graph after the stage" }), base: canvas("base"), over: canvas("over"),
      titles: el("div", { class: "titles" }), busy: el("div", { class: "busy", role: "status", hidden: true }, "laying out …"), zoomed: el("span", { class: "zoom" }),
    };
    this.message = el("p", { class: "note", role: "status", hidden: true });
    this.legend = el("div", { class: "legend", role: "group", "aria-label": "Changes" });
    const button = (label, text, action) => el("button", { type: "button", "aria-label": label, onclick: action }, text);
    const camera = el("div", { class: "camera", role: "group", "aria-label": "Camera of the stage" }, button("Zoom out", "−", () => this.view.zoom(0.8)), place.zoomed,
      button("Zoom in", "+", () => this.view.zoom(1.25)), button("Fit the stage", "fit", () => this.view.fit()));
    place.stage.append(place.base, place.over, place.titles, place.busy, this.legend, camera);
    this.root.replaceChildren(this.message, place.stage);
    this.place = place;
    const empty = withoutRun({ devices: [], files: [], frames: [{ name: "", kind: "root", parent: -1, op: -1, limit: 0 }], nodes: [] });
    this.moment = new Moment(empty);
    this.moment.on("selection", () => this.inspect());
    this.view = new StageView(empty, null, this.moment, place);
  }

  draw(isCompared) {
    const { view, moment, graph } = this;
    const model = new Model(graph);
    const changes = graph.marks.map((mark, at) => (mark ? at : -1)).filter((at) => at >= 0);
    for (const node of changes.slice(0, MOST_REVEALED)) model.reveal(node);
    moment.recording = graph;
    moment.selected = -1;
    moment.highlighted = new Set();
    Object.assign(view, { recording: graph, model, boxes: null, hovered: -1 });
    view.layOut(() => view.fit(true));
    this.legend.replaceChildren(...(isCompared ? MARKS.map(([sign, name]) => {
      const found = changes.filter((node) => graph.marks[node] === sign);
      let next = 0;
      return el("button", { type: "button", class: name, disabled: !found.length, title: `Show the next ${name} operation`, onclick: () => view.reveal(found[next++ % found.length]) },
        el("span", { class: "sign", "aria-hidden": "true" }, sign), `${count(found.length)} ${name}`);
    }) : [el("span", { class: "note" }, plural(graph.nodes.length, "operation"))]));
  }

  // --- the inspector ---

  inspect() {
    if (!this.isShown) return;
    byId("details").replaceChildren(...(this.moment.selected < 0 ? this.list() : this.operation(this.moment.selected)));
  }

  link(node) {
    return el("button", { type: "button", class: "link", onclick: () => this.view.reveal(node) }, this.graph.nodes[node].name);
  }

  list() {
    const { marks, nodes } = this.graph;
    const out = [el("h2", {}, "Stage")];
    for (const [sign, name] of MARKS) {
      const found = nodes.map((_, at) => at).filter((at) => marks[at] === sign);
      if (!found.length) continue;
      out.push(el("section", {}, el("h3", { class: name }, `${sign} ${count(found.length)} ${name}`), el("ul", { class: "plain" },
        ...found.slice(0, MOST_LISTED).map((at) => el("li", {}, this.link(at), el("span", { class: "note" }, ` ${nodes[at].type}`))),
        found.length > MOST_LISTED ? el("li", { class: "note" }, `… ${count(found.length - MOST_LISTED)} more`) : "")));
    }
    if (out.length === 1) out.push(el("p", { class: "note" }, "No operation is marked. The drawing shows each stage in primitive form."));
    return out;
  }

  operation(at) {
    const { graph, moment } = this;
    const node = graph.nodes[at];
    const [old, now] = graph.entries[at];
    const [sign, name] = MARKS.find(([each]) => each === graph.marks[at]) || ["", ""];
    const close = el("button", { type: "button", class: "icon", "aria-label": "Close the details", onclick: () => moment.select(-1) }, "×");
    const text = (entry, field) => {
      if (!entry) return "";
      if (field === "device") return shortDevice(graph.devices[entry.device]);
      if (field === "outputs") return entry.outputs.map(([dtype, shape]) => dtype + shapeText(shape)).join(", ");
      if (field === "inputs") return entry.inputs.map(([each, output]) => (output ? `${each}:${output}` : each)).join(", ");
      if (field === "controls") return entry.controls.join(", ");
      return entry[field] === null ? "" : String(entry[field]);
    };
    const row = (field) => {
      const value = clip(text(now || old, field), 400);
      const isChanged = graph.changed[at].includes(field);
      if (!value && !isChanged) return "";
      return el("tr", {}, el("th", { scope: "row" }, field), el("td", { class: "mono value" },
        ...(isChanged ? [el("del", { class: "removed" }, clip(text(old, field), 400) || "none"), " → ", el("ins", { class: "added" }, value || "none")] : [value])));
    };
    const file = node.source && graph.files[node.source[0]];
    return [el("header", {}, el("h2", { title: node.name }, node.name), close),
      el("p", { class: "kind" }, el("span", { class: "badge" }, node.type), sign ? el("span", { class: name }, `${sign} ${name}`) : "",
        file ? el("button", { type: "button", class: "link", onclick: () => app.source.show(node.source[0], node.source[1]) }, `${file.name}:${node.source[1]}`) : ""),
      el("section", {}, el("table", { class: "io entry" }, el("tbody", {}, ...["type", "inputs", "controls", "outputs", "attrs", "constant", "device"].map(row))))];
  }
}
