// Details of the selected node: its token at the moment, its values by iteration, its inputs, consumers and attributes.
// Without a selection: the step as a whole.

const TABLE = 40; // rows of the table of values

class Details {
  constructor(recording, model, moment) {
    Object.assign(this, { recording, model, moment });
    this.root = byId("details");
    this.output = 0;
    moment.on("selection pins", () => this.show());
    moment.on("row", () => this.update());
  }

  show() {
    const { moment } = this;
    this.output = 0;
    this.parts = null;
    if (moment.selected < 0) this.showStep();
    else this.showNode(moment.selected);
    this.shownNode = moment.selected;
  }

  link(node, text) {
    const { recording } = this;
    return el("button", { type: "button", class: "link", title: `${recording.nodes[node].name}  ${recording.nodes[node].type}`, onclick: () => app.graph.reveal(node) }, text || recording.nodes[node].name);
  }

  // --- the step ---

  showStep() {
    const { recording } = this;
    const { step } = recording;
    const facts = [];
    const fact = (name, ...value) => facts.push(el("dt", {}, name), el("dd", {}, ...value));
    if (recording.length) {
      fact("tokens", `${count(recording.length)}${recording.deadCount ? `, ${count(recording.deadCount)} of them dead` : ""}`);
      fact("time", duration(step.seconds * 1e6));
      fact("devices", String(recording.devices.length));
    }
    fact(recording.length ? "operations" : "in primitive form", plural(recording.nodes.length, "operation"));
    if (step.fetches && step.fetches.length) fact("fetches", clip(step.fetches.join(", "), 200));
    if (step.feeds && step.feeds.length) fact("feeds", clip(step.feeds.join(", "), 200));
    if (recording.dropped.tokens) fact("not recorded", plural(recording.dropped.tokens, "token"));
    if (recording.dropped.values) fact("without value", plural(recording.dropped.values, "token"));
    if (recording.raw.made) fact("recorded", `${recording.raw.made}, headrace ${recording.raw.headrace || ""}`);
    const about = recording.raw.facts ? graphFacts(recording.raw) : { lines: [], problems: [] };
    for (const [name, text] of about.lines) fact(name, text);
    const sections = [el("h2", {}, recording.length ? `Step ${step.number}` : recording.raw.title || "Graph"), el("dl", {}, ...facts)];
    for (const text of about.problems) sections.push(el("p", { class: "failure", role: "alert" }, text));
    if (step.error) sections.splice(1, 0, el("p", { class: "failure", role: "alert" }, step.error));
    if (recording.length) sections.push(...this.slowest());
    if (recording.critical.length) sections.push(this.criticalPath());
    this.root.replaceChildren(...sections);
  }

  slowest() {
    const { recording } = this;
    return [this.longest("Most time", 0), ...(recording.tokens.waited.includes(1) ? [this.longest("Longest waits", 1)] : [])];
  }

  /** The operations that computed, or waited, longest. A wait is that of a receive, a queue or the end of a call. */
  longest(title, waits) {
    const { recording } = this;
    const { node, begin, end, waited } = recording.tokens;
    const times = new Float64Array(recording.nodes.length);
    for (let row = 0; row < recording.length; row++) if (waited[row] === waits) times[node[row]] += end[row] - begin[row];
    const total = times.reduce((sum, time) => sum + time, 0) || 1;
    const top = [...times.keys()].sort((a, b) => times[b] - times[a]).slice(0, 8).filter((at) => times[at] > 0);
    return el("section", {}, el("h3", {}, title), el("table", { class: "bars" }, el("tbody", {}, ...top.map((at) => {
      const bar = el("span", { class: "bar" });
      bar.style.width = `${Math.max(1, (100 * times[at]) / times[top[0]])}%`;
      return el("tr", {}, el("td", { class: "op" }, this.link(at, lastParts(recording.nodes[at].name))), el("td", { class: "num" }, duration(times[at])),
        el("td", { class: "num" }, `${((100 * times[at]) / total).toFixed(0)}%`), el("td", { class: "chart", "aria-hidden": "true" }, bar));
    }))));
  }

  criticalPath() {
    const { recording, moment } = this;
    const { node, begin, end, tag } = recording.tokens;
    let sum = 0;
    for (const row of recording.critical) sum += end[row] - begin[row];
    const rows = [...recording.critical].sort((a, b) => end[b] - begin[b] - (end[a] - begin[a])).slice(0, 6).sort((a, b) => a - b);
    return el("section", {}, el("h3", {}, "Critical path"),
      el("p", { class: "note" }, `${plural(recording.critical.length, "token")}, ${duration(sum)} of work. The longest:`),
      el("ul", { class: "plain" }, ...rows.map((row) => el("li", {},
        el("button", { type: "button", class: "link", onclick: () => { moment.seek(row); app.graph.reveal(node[row]); } }, recording.nodes[node[row]].name),
        el("span", { class: "note" }, ` ${recording.tags[tag[row]].text} · ${duration(end[row] - begin[row])}`)))));
  }

  // --- a node ---

  showNode(at) {
    const { recording, moment } = this;
    const node = recording.nodes[at];
    const device = recording.devices[node.device];
    const close = el("button", { type: "button", class: "icon", "aria-label": "Close the details", onclick: () => moment.select(-1) }, "×");
    const head = el("header", {}, el("h2", { title: node.name }, node.name), close);
    const line = el("p", { class: "kind" }, el("span", { class: "badge" }, node.type), node.variable === null ? "" : el("span", {}, `loop variable ${node.variable}`),
      device ? el("span", { class: "note", title: device }, shortDevice(device)) : "",
      node.source && recording.files[node.source[0]] ? el("button", { type: "button", class: "link", onclick: () => app.source.show(node.source[0], node.source[1]) }, `${recording.files[node.source[0]].name}:${node.source[1]}`) : "");
    this.parts = { token: el("section", { class: "token" }), plot: null };
    const sections = [head, line];
    if (recording.length) sections.push(this.parts.token);
    if (recording.firings(at) > 1) sections.push(this.plot(at));
    else if (!recording.length) sections.push(el("section", {}, el("h3", {}, "Outputs"), el("ul", { class: "plain" }, ...node.outputs.map(([dtype, shape]) => el("li", { class: "mono" }, dtype + shapeText(shape))))));
    sections.push(this.inputs(at));
    if (recording.consumers[at].length) {
      sections.push(el("section", {}, el("h3", {}, "Consumers"), this.list(recording.consumers[at], (each) => [this.link(each), el("span", { class: "note" }, ` ${recording.nodes[each].type}`)])));
    }
    const attrs = node.constant !== null ? [node.constant, node.attrs].filter(Boolean).join("\n") : node.attrs;
    if (attrs) sections.push(el("section", {}, el("h3", {}, node.constant !== null ? "Constant" : "Attributes"), el("pre", {}, clip(attrs, 2000))));
    this.root.replaceChildren(...sections);
    this.update();
  }

  list(items, make) {
    const shown = items.slice(0, 30);
    return el("ul", { class: "plain" }, ...shown.map((item) => el("li", {}, ...make(item))),
      items.length > shown.length ? el("li", { class: "note" }, `… ${count(items.length - shown.length)} more`) : "");
  }

  inputs(at) {
    const { recording } = this;
    const node = recording.nodes[at];
    this.parts.inputs = [];
    const rows = node.inputs.map(([input, output]) => {
      const value = el("td", { class: "mono value" });
      this.parts.inputs.push([value, input, output]);
      const { name, constant } = recording.nodes[input];
      if (constant !== null) value.textContent = clip(constant, 80);
      return el("tr", {}, el("td", {}, this.link(input, output ? `${name}:${output}` : name)), value);
    });
    const controls = node.controls.length ? el("p", { class: "note" }, "after ", ...node.controls.slice(0, 10).flatMap((each, i) => [i ? ", " : "", this.link(each)])) : "";
    return el("section", {}, el("h3", {}, "Inputs"), rows.length ? el("table", { class: "io" }, el("tbody", {}, ...rows)) : controls ? "" : el("p", { class: "note" }, "none"), controls);
  }

  /** The parts that depend on the moment. */
  update() {
    const { recording, moment, parts } = this;
    if (!parts || moment.selected < 0 || !recording.length) return;
    const row = moment.tokenOf(moment.selected);
    if (row !== parts.row || !parts.token.childNodes.length) {
      parts.row = row;
      parts.token.replaceChildren(...this.token(row));
      for (const [cell, input, output] of parts.inputs) {
        if (recording.nodes[input].constant !== null) continue;
        const value = recording.value(this.inputToken(row, input), output);
        cell.textContent = value ? clip(value.elements || number(value.mean), 80) : "";
      }
    }
    if (parts.plot) this.drawPlot();
  }

  /** The token of an input that a token consumed: the last one before it. */
  inputToken(row, input) {
    const { recording } = this;
    if (row < 0) return -1;
    const { starts, rows } = recording.byNode;
    const { tag } = recording.tokens;
    const from = starts[input];
    let at = after(rows, from, starts[input + 1], row);
    // Several iterations are in flight at once: the one with the same tag, if it is near.
    for (let back = at - 1; back >= from && back > at - 40; back--) if (tag[rows[back]] === tag[row]) return rows[back];
    return at > from ? rows[--at] : -1;
  }

  token(row) {
    const { recording, moment } = this;
    const node = recording.nodes[moment.selected];
    if (row < 0) {
      const firings = recording.firings(moment.selected);
      return [el("p", { class: "note" }, firings ? `not fired yet; ${plural(firings, "token")} in this step` : "never fires in this step")];
    }
    const { tag, begin, end, dead, device } = recording.tokens;
    const out = [el("p", { class: "when" }, el("span", { class: "tag" }, recording.tags[tag[row]].text),
      el("span", { class: "note" }, `${duration(end[row] - begin[row])} from ${duration(begin[row])}${recording.devices.length > 1 ? ` on ${shortDevice(recording.devices[device[row]])}` : ""}`),
      row !== moment.row ? el("button", { type: "button", class: "link", onclick: () => moment.seek(row) }, row > moment.row ? "go ahead to it" : "go back to it") : "")];
    if (dead[row]) {
      const at = recording.tokens.cause[row];
      const cause = at === NONE ? null : recording.causes[at];
      out.push(el("p", { class: "dead" }, recording.causeText(row)));
      if (cause && cause.node >= 0 && recording.nodes[cause.node]) out.push(el("p", {}, this.link(cause.node, `show ${cause.op}`)));
      return out;
    }
    const rows = node.outputs.map(([dtype, shape], output) => {
      const value = recording.value(row, output);
      if (!value) return el("tr", {}, el("td", { class: "mono" }, dtype + shapeText(shape)), el("td", { colspan: 2, class: "note" }, "value not kept"));
      const stats = Number.isNaN(value.mean) || value.shape === "[]" ? "" : `min ${number(value.min)}  mean ${number(value.mean)}  max ${number(value.max)}`;
      return el("tr", {}, el("td", { class: "mono" }, value.dtype + (value.shape || shapeText(shape))),
        el("td", {}, el("div", { class: "mono value", title: value.elements }, clip(value.elements, 160)),
          stats ? el("div", { class: "note" }, stats) : "", value.nans ? el("div", { class: "failure" }, plural(value.nans, "NaN")) : "",
          value.bytes > 64 ? el("div", { class: "note" }, bytesText(value.bytes)) : ""));
    });
    if (rows.length) out.push(el("table", { class: "io" }, el("tbody", {}, ...rows)));
    return out;
  }

  // --- values by iteration ---

  plot(at) {
    const { recording, moment } = this;
    const rows = moment.series(at);
    const canvas = el("canvas", { class: "plot", role: "img", "aria-label": `Values of ${recording.nodes[at].name} by iteration; the table below has the numbers` });
    const table = el("tbody");
    this.parts.plot = { at, rows, canvas, table, first: -1 };
    const outputs = recording.nodes[at].outputs.length;
    const choice = outputs > 1 ? el("select", { "aria-label": "Output", onchange: (event) => { this.output = Number(event.target.value); this.parts.plot.image = null; this.parts.plot.first = -1; this.drawPlot(); } },
      ...Array.from({ length: outputs }, (_, each) => el("option", { value: each }, `output ${each}`))) : "";
    canvas.addEventListener("click", (event) => {
      const { rows: all } = this.parts.plot;
      const where = Math.round(((event.offsetX - 44) / (canvas.clientWidth - 52)) * (all.length - 1));
      this.goTo(all[Math.max(0, Math.min(all.length - 1, where))]);
    });
    return el("section", {}, el("h3", {}, "By iteration ", choice), canvas,
      el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Values by iteration" },
        el("table", { class: "values" }, el("thead", {}, el("tr", {}, ...["iteration", "value", "min", "max"].map((name) => el("th", { scope: "col" }, name)))), table)));
  }

  goTo(row) {
    const { moment } = this;
    if (moment.pins.size) moment.pinTo(row);
    moment.seek(row);
  }

  drawPlot() {
    const { recording, moment } = this;
    const { plot } = this.parts;
    const { rows, canvas } = plot;
    if (!canvas.clientWidth) {
      requestAnimationFrame(() => this.parts && this.parts.plot === plot && canvas.isConnected && this.drawPlot());
      if (!canvas.isConnected) return;
    }
    const context = prepare(canvas);
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    if (!plot.image) plot.image = this.plotData(rows, width - 52);
    const { columns, low, high } = plot.image;
    const x = (at) => 44 + (rows.length < 2 ? 0 : (at / (rows.length - 1)) * (width - 52));
    const y = (value) => 8 + (1 - (value - low) / (high - low || 1)) * (height - 24);
    context.font = `10px ${theme.mono}`;
    context.fillStyle = theme.muted;
    context.textAlign = "right";
    context.textBaseline = "middle";
    if (columns.length) {
      context.fillText(number(high), 40, 10);
      if (high !== low) context.fillText(number(low), 40, height - 16);
      context.strokeStyle = theme.line;
      context.lineWidth = 1;
      context.strokeRect(44.5, 4.5, width - 49, height - 17);
      context.beginPath();
      for (const [at, min] of columns) context.lineTo(x(at), y(min));
      for (const [at, , max] of [...columns].reverse()) context.lineTo(x(at), y(max));
      context.fillStyle = theme.selected;
      context.globalAlpha = 0.16;
      context.fill();
      context.globalAlpha = 1;
      context.beginPath();
      for (const [at, , , mean] of columns) context.lineTo(x(at), y(mean));
      context.strokeStyle = theme.selected;
      context.lineWidth = 1.4;
      context.stroke();
      if (columns.length < 60) for (const [at, , , mean] of columns) dot(context, x(at), y(mean), 2, theme.selected);
    }
    context.textAlign = "center";
    context.fillStyle = theme.muted;
    context.fillText(columns.length ? "" : "no numbers", width / 2, height / 2);
    const now = moment.tokenOf(plot.at);
    const at = now < 0 ? -1 : after(rows, 0, rows.length, now) - 1;
    if (at >= 0) {
      context.strokeStyle = theme.current;
      context.lineWidth = 1.5;
      context.beginPath();
      context.moveTo(x(at), 4);
      context.lineTo(x(at), height - 12);
      context.stroke();
      const value = recording.value(now, this.output);
      if (value && Number.isFinite(value.mean)) dot(context, x(at), y(value.mean), 3.2, theme.current);
    }
    this.fillTable(at);
  }

  /** The curve in at most two points per pixel: index, minimum, maximum, mean. */
  plotData(rows, width) {
    const { recording } = this;
    const columns = [];
    let [low, high] = [Infinity, -Infinity];
    const per = Math.max(1, Math.ceil(rows.length / (2 * Math.max(50, width))));
    for (let from = 0; from < rows.length; from += per) {
      let [min, max, sum, n] = [Infinity, -Infinity, 0, 0];
      for (let at = from; at < Math.min(rows.length, from + per); at++) {
        const first = recording.tokens.value[rows[at]];
        if (first === NONE || recording.tokens.dead[rows[at]]) continue;
        const index = first + this.output;
        if (index >= recording.values.length || !Number.isFinite(recording.values.mean[index])) continue;
        min = Math.min(min, recording.values.min[index]);
        max = Math.max(max, recording.values.max[index]);
        sum += recording.values.mean[index];
        n++;
      }
      if (!n) continue;
      columns.push([from, min, max, sum / n]);
      low = Math.min(low, min);
      high = Math.max(high, max);
    }
    return { columns, low, high };
  }

  /** The table around the current iteration; a window of it, since a loop may have a million. */
  fillTable(at) {
    const { recording } = this;
    const { plot } = this.parts;
    const first = Math.max(0, Math.min(plot.rows.length - TABLE, at - TABLE / 2));
    if (plot.first < 0 || at < plot.first || at >= plot.first + TABLE) {
      plot.first = Math.floor(first);
      const cells = [];
      for (let index = plot.first; index < Math.min(plot.rows.length, plot.first + TABLE); index++) {
        const row = plot.rows[index];
        const value = recording.value(row, this.output);
        const isDead = recording.tokens.dead[row];
        const go = el("button", { type: "button", class: "link", onclick: () => this.goTo(row) }, recording.tags[recording.tokens.tag[row]].text);
        cells.push(el("tr", { "data-index": index, class: isDead ? "dead" : null }, el("td", {}, go),
          el("td", { class: "mono" }, isDead ? "dead" : value ? clip(value.elements || number(value.mean), 20) : "–"),
          el("td", { class: "num" }, value && !isDead ? number(value.min) : ""), el("td", { class: "num" }, value && !isDead ? number(value.max) : "")));
      }
      plot.table.replaceChildren(...cells);
    }
    for (const row of plot.table.querySelectorAll("[aria-current]")) row.removeAttribute("aria-current");
    const now = plot.table.querySelector(`[data-index="${at}"]`);
    if (now) {
      now.setAttribute("aria-current", "true");
      const box = plot.table.closest(".scroll");
      const top = now.offsetTop - box.clientHeight / 2;
      if (Math.abs(box.scrollTop - top) > box.clientHeight / 2 - 24) box.scrollTop = top;
    }
  }
}

/** The last two parts of a name, where it is long. */
function lastParts(name) {
  if (name.length <= 24) return name;
  const parts = name.split("/");
  return clip(parts.length > 2 ? `…/${parts.slice(-2).join("/")}` : name, 30);
}

function dot(context, x, y, radius, color) {
  context.beginPath();
  context.arc(x, y, radius, 0, 2 * Math.PI);
  context.fillStyle = color;
  context.fill();
}
