// A step that is paused at a breakpoint: its place, live frames, ready and waiting nodes, values, and the commands that let
// it go on. The recording of the page is that of the tokens up to the pause; each pause brings a new one.

const isLive = document.documentElement.dataset.live !== undefined;

const COMMANDS = [
  ["step", "Step", "n", "go on to the next operation"], ["stepi", "Any node", "p", "go on to the next node, primitives such as Switch and Merge too"],
  ["next", "Iteration", "i", "go on to the next iteration of the innermost loop, or out of it"], ["continue", "Continue", "g", "go on to the next breakpoint"],
  ["run", "Run", "e", "go on to the end of the step, without further pauses"], ["quit", "Abort", "x", "cancel the step; press twice"],
];
const LIVE_KEYS = COMMANDS.map(([, , key, text]) => [key.toUpperCase(), text]);
const RETRIES = 3;
const ARMED = 4000; // milliseconds in which the second press of Abort counts

class Live {
  constructor() {
    this.state = { state: 0, kind: "idle" };
    this.level = 0;
    this.actions = {};
    const button = ([name, text, key, title]) => {
      this.actions[key] = () => this.command(name);
      return el("button", { type: "button", class: name, title: `${title} (${key.toUpperCase()})`, "aria-keyshortcuts": key.toUpperCase(), onclick: () => this.command(name) }, text, el("kbd", { "aria-hidden": "true" }, key.toUpperCase()));
    };
    this.status = el("div", { class: "state", role: "status" });
    this.commands = el("div", { class: "commands", role: "group", "aria-label": "Commands" }, ...COMMANDS.map(button));
    this.problem = el("p", { class: "problem", role: "alert", hidden: true });
    this.levels = el("ol", { class: "levels", "aria-label": "Frames around the pause, innermost first" });
    this.name = el("input", { type: "text", id: "value-name", placeholder: "NAME or NAME@ITERATION", autocomplete: "off", spellcheck: "false", "aria-label": "Tensor whose value is shown" });
    this.value = el("pre", { id: "value", tabindex: "0", "aria-label": "Value", hidden: true });
    this.lists = el("div", {});
    const ask = el("form", { onsubmit: (event) => {
      event.preventDefault();
      this.showValue(this.name.value);
    } }, this.name, el("button", { type: "submit" }, "Value"), el("button", { type: "button", title: "Add a breakpoint at this tensor, for the rest of the step", onclick: () => this.addBreakpoint() }, "Break"));
    this.body = el("div", {}, this.levels, ask, this.value, this.lists);
    this.root = el("section", { id: "live", "aria-label": "Breakpoint" }, el("div", { class: "head" }, this.status, this.commands, this.problem), this.body);
    byId("side").prepend(this.root);
    this.show();
  }

  get isPaused() {
    return this.state.kind === "paused";
  }

  // --- states ---

  /** Follows the states of the server until it is closed. */
  async watch() {
    let failures = 0;
    while (this.state.kind !== "closed") {
      try {
        const answer = await fetch(`state/${this.state.state}`);
        if (!answer.ok) throw new RecordingError(`the server answered ${answer.status} for its state`);
        const state = await answer.json();
        failures = 0;
        if (state.state !== this.state.state) await this.enter(state);
      } catch (error) {
        if (error instanceof RecordingError) return showError(error.message);
        if (++failures === RETRIES) {
          this.state = { state: 0, kind: "closed" };
          return this.show();
        }
        await new Promise((done) => setTimeout(done, 300));
      }
    }
  }

  async enter(state) {
    this.state = state;
    this.level = 0;
    this.show();
    if (state.kind !== "paused" && state.kind !== "ended") return;
    const answer = await fetch(`recording/${state.state}`);
    if (answer.status === 409) return; // the step has gone on; the next state is here soon
    if (!answer.ok) throw new RecordingError(`the server answered ${answer.status} for the recording`);
    this.adopt(new Recording(await answer.json()));
    this.show();
    document.documentElement.dataset.state = String(state.state);
  }

  /** Shows a newer recording, in the place of an older one of the same program. */
  adopt(fresh) {
    if (!app.recording) {
      start(fresh);
      app.moment.on("selection", () => this.follow());
    } else if (!isSameProgram(app.recording, fresh)) {
      location.reload();
      return;
    } else {
      Object.assign(app.recording, fresh);
      app.graph.findCritical();
      app.timeline.renew();
      describeStep(app.recording);
      app.details.show();
    }
    const { moment } = app;
    moment.pins.clear();
    moment.filter();
    moment.row = -1;
    moment.seek(this.row());
    moment.emit("pins");
    this.follow();
  }

  /** Row of the firing at which the step is paused. */
  row() {
    const { nodes, tags, tokens, length } = app.recording;
    if (this.isPaused) {
      const { op, tag } = this.state.pause;
      for (let row = length - 1; row >= 0; row--) if (nodes[tokens.node[row]].name === op && tags[tokens.tag[row]].text === tag) return row;
    }
    return length - 1;
  }

  // --- commands ---

  /** The answer of the paused step, or null: the problem is shown. */
  async post(command) {
    let found;
    try {
      const answer = await fetch("do", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ ...command, state: this.state.state }) });
      found = await answer.json();
    } catch {
      found = { problem: "the program does not answer" };
    }
    return found;
  }

  async command(name) {
    if (!this.isPaused || this.isBusy) return;
    if (name === "quit" && !(performance.now() - this.armed < ARMED)) {
      this.armed = performance.now();
      this.tell("Abort cancels the step, which then fails. Press again to cancel it.");
      return;
    }
    this.tell("");
    this.isBusy = true;
    const found = await this.post({ do: name });
    this.isBusy = false;
    if (found.problem) this.tell(found.problem);
  }

  tell(text) {
    this.problem.textContent = text;
    this.problem.hidden = !text;
  }

  async addBreakpoint() {
    const name = this.name.value.split("@")[0].trim();
    const found = await this.post({ do: "break", name });
    this.tell(found.problem || `The step will pause at ${name}, too.`);
  }

  // --- values ---

  /** Shows the value of the selected node, otherwise that at which the step is paused. */
  follow() {
    const { moment, recording } = app;
    byId("side").classList.toggle("alone", this.isPaused && moment.selected < 0);
    if (!this.isPaused) return;
    const node = moment.selected;
    if (node < 0) {
      this.name.value = this.state.pause.reason || this.state.pause.op;
      this.setValue(this.name.value, this.state.pause.values.join("\n"));
      return;
    }
    const loop = recording.loopOf(recording.nodes[node].frame);
    const iteration = loop >= 0 && moment.pins.has(loop) ? `@${moment.pins.get(loop)}` : "";
    this.showValue(recording.nodes[node].name + iteration);
  }

  async showValue(text) {
    this.name.value = text;
    const [name, iteration] = text.split("@");
    if (!name.trim()) return;
    const asked = (this.asked = {});
    const command = { do: "value", name: name.trim(), level: this.level };
    if (iteration !== undefined) command.iteration = Number.parseInt(iteration, 10);
    const found = await this.post(command);
    if (asked !== this.asked) return; // a later question is under way
    if (found.problem) this.setValue(text, found.problem);
    else this.setValue(`${found.name}${found.tag ? ` in ${found.tag}` : ""}`, found.text);
  }

  setValue(name, text) {
    this.value.hidden = !text;
    this.value.textContent = `${name} = ${text}`;
  }

  // --- the panel ---

  show() {
    const { state } = this;
    this.root.classList.toggle("paused", this.isPaused);
    const badge = { idle: "waiting", running: "running", paused: "paused", ended: "ended", closed: "closed" }[state.kind];
    if (state.kind === "ended") this.end = `Step ${state.step} has ${state.error ? `failed: ${clip(state.error, 300)}` : "ended."}`;
    const said = {
      idle: "No step is paused at a breakpoint yet.", running: `Step ${state.step} goes on.`, ended: this.end,
      closed: `${this.end || ""} The program has closed this page.`,
    }[state.kind];
    this.status.replaceChildren(el("span", { class: "badge" }, badge), ...(this.isPaused ? this.place() : [el("span", {}, said)]));
    for (const each of this.commands.children) each.disabled = !this.isPaused;
    this.commands.hidden = this.body.hidden = state.kind === "idle" || state.kind === "closed";
    this.tell("");
    if (!this.isPaused) return;
    this.showLevels();
    this.showLists();
  }

  place() {
    const { op, type, where, source } = this.state.pause;
    return [this.link(op, op), el("span", { class: "note" }, type), el("p", {}, where && `in ${where}`), el("p", { class: "note" }, source)];
  }

  /** A link to a node of the graph; plain text if the graph has none of that name. */
  link(name, text) {
    const node = app.recording ? app.recording.nodes.findIndex((each) => each.name === name) : -1;
    if (node < 0) return el("span", {}, text);
    return el("button", { type: "button", class: "link", onclick: () => app.graph.reveal(node) }, text);
  }

  /** The frames around the pause: the chosen one is where names are looked up, and its line is shown. */
  showLevels() {
    this.levels.replaceChildren(...this.state.pause.levels.map((level, at) => {
      const text = level.kind === "step" ? "the step" : `${level.kind} ${level.name}${level.kind === "loop" ? `, iteration ${level.iteration}` : ""}`;
      return el("li", {}, el("button", { type: "button", "aria-pressed": String(at === this.level), title: `${level.op}  ${level.source}`, onclick: () => this.choose(at) }, text));
    }));
  }

  choose(level) {
    this.level = level;
    this.showLevels();
    const { op, source } = this.state.pause.levels[level];
    const { recording } = app;
    const line = /^(.*):(\d+)/.exec(source);
    const file = line ? recording.files.findIndex(({ name }) => name === line[1]) : -1;
    if (file >= 0) app.source.show(file, Number(line[2]));
    if (this.name.value) this.showValue(this.name.value);
    this.levels.children[level].firstChild.focus();
    byId("spoken").textContent = `${op} ${source}`;
  }

  showLists() {
    const { frames, ready, started, waiting } = this.state.pause;
    const isOpen = new Set([...this.lists.querySelectorAll("details[open]")].map((each) => each.id));
    if (!this.lists.childElementCount) isOpen.add("live-frames");
    const list = (id, title, { n, entries }, item) => el("details", { id, open: isOpen.has(id) }, el("summary", {}, `${title} (${count(n)})`),
      el("ul", { class: "plain" }, ...entries.map(item), n > entries.length ? el("li", { class: "note" }, `and ${count(n - entries.length)} more`) : ""));
    const entry = ({ op, type, tag, device, dead, missing }) => el("li", { class: dead ? "dead" : "" }, this.link(op, op), " ", el("span", { class: "note" },
      [type, tag, device && shortDevice(device), dead && "dead", missing.length && `waits for ${missing.join(", ")}`].filter(Boolean).join(" · ")));
    this.lists.replaceChildren(
      list("live-frames", "Open frames", frames, (frame) => this.frame(frame)),
      list("live-ready", "Ready", ready, entry), list("live-started", "Started", started, entry), list("live-waiting", "Waiting for tokens", waiting, entry));
  }

  frame({ kind, name, tag, device, iterations, limit, held }) {
    const numbers = kind === "loop" ? iterations.entries.map(([at, left]) => el("button", { type: "button", class: "link", title: `${plural(left, "node")} left; shows the values of iteration ${at}`, onclick: () => this.pin(`${tag}#${at}`) }, `#${at}`)) : [];
    const left = kind === "loop" ? "" : plural(iterations.entries.reduce((sum, [, n]) => sum + n, 0), "node") + " left";
    const facts = [left, kind === "loop" && `${iterations.n} of ${limit} iterations`, held && `${plural(held, "token")} held`, device && shortDevice(device)].filter(Boolean).join(" · ");
    return el("li", { class: "frame" }, el("span", { class: "name", title: tag }, kind === "step" ? "the step" : tag || name), ...numbers, el("span", { class: "note" }, facts));
  }

  /** Shows the values of an open iteration in the graph, and of those around it. */
  pin(text) {
    const { recording, moment } = app;
    const { tags, tagParent, tagFrame, tagIteration, frames } = recording;
    let tag = tags.findIndex((each) => each.text === text);
    if (tag < 0) return this.tell(`no token of ${text} is recorded`);
    for (; tag > 0; tag = tagParent[tag]) if (frames[tagFrame[tag]].kind === "loop") moment.pins.set(tagFrame[tag], tagIteration[tag]);
    moment.filter();
    moment.emit("pins");
    return this.follow();
  }
}

function isSameProgram(one, two) {
  return one.nodes.length === two.nodes.length && one.frames.length === two.frames.length
    && one.nodes.every((node, at) => node.name === two.nodes[at].name && node.type === two.nodes[at].type);
}
