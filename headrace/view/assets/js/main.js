// Start of the page, and everything that concerns all its parts: tabs, keys, playing, colors.

const app = {};

const KEYS = [
  ["←  →", "one token back, ahead", true], ["Shift ←  →", "previous, next token of the selected node", true], ["Ctrl ←  →", "100 tokens back, ahead", true],
  ["Home  End", "first, last token", true], ["Space", "play, pause", true], ["D", "next dead token", true], ["/", "search"], ["[  ]", "previous, next iteration of the loop around the selected node", true],
  ["C", "critical path", true], ["S", "set-up operations"], ["F", "fit the graph"], ["+  −", "zoom"], ["1  2", "graph, stages", true], ["T", "dark or light"], ["?", "these keys"], ["Esc", "close, deselect"],
];

function showError(text) {
  const box = byId("problem");
  box.textContent = text;
  box.hidden = false;
  byId("busy").hidden = true;
}

async function load() {
  readTheme();
  if (isLive) {
    app.live = new Live();
    return app.live.watch();
  }
  let raw;
  try {
    const text = byId("recording").textContent.trim();
    if (text) raw = JSON.parse(text);
    else {
      const answer = await fetch("recording.json");
      if (!answer.ok) throw new RecordingError(`the server answered ${answer.status} for recording.json`);
      raw = await answer.json();
    }
    byId("recording").textContent = "";
    start(recordingOf(raw));
  } catch (error) {
    showError(error instanceof RecordingError ? error.message : `the recording cannot be read: ${error}`);
    if (!(error instanceof RecordingError)) throw error;
  }
}

function start(recording) {
  document.documentElement.classList.toggle("no-run", !recording.length);
  document.documentElement.classList.toggle("no-source", !recording.length && recording.files.every((file) => file.text === null));
  const moment = new Moment(recording);
  const model = new Model(recording);
  Object.assign(app, { recording, moment, model });
  app.details = new Details(recording, model, moment);
  app.graph = new GraphView(recording, model, moment, {
    stage: byId("stage"), base: byId("graph"), over: byId("overlay"), titles: byId("titles"), busy: byId("busy"), zoomed: byId("zoom"),
  });
  app.graph.layOut(() => {
    app.graph.fit(true);
    app.graph.draw();
    document.documentElement.dataset.ready = performance.now().toFixed(0); // milliseconds since the navigation
  });
  app.source = new Source(recording, moment);
  app.stages = new Stages(recording);
  app.search = new Search(recording, model, moment);
  if (recording.length) app.timeline = new Timeline(recording, model, moment);
  describeStep(recording);
  wire(recording, moment);
  app.details.show();
  let spoken = 0;
  moment.on("row selection", () => {
    clearTimeout(spoken);
    spoken = setTimeout(() => (byId("spoken").textContent = spokenMoment()), 500);
  });
}

function spokenMoment() {
  const { recording, moment } = app;
  if (moment.row < 0) return "";
  const { node, tag, dead } = recording.tokens;
  const { row } = moment;
  return `Token ${row + 1}: ${recording.nodes[node[row]].name}, ${recording.tags[tag[row]].text}${dead[row] ? `, ${recording.causeText(row)}` : ""}`;
}

function describeStep({ step, length, deadCount, nodes, raw }) {
  byId("step").textContent = length ? `step ${step.number}` : "graph";
  const shown = plural(nodes.length, "operation") + (raw.leftOut ? ` · ${count(raw.leftOut)} not drawn` : "");
  byId("summary").textContent = length ? `${plural(length, "token")} · ${duration(step.seconds * 1e6)}${deadCount ? ` · ${count(deadCount)} dead` : ""}` : shown;
  document.title = `${length ? `Step ${step.number}` : raw.title || "Graph"} · headrace`;
  if (step.error) {
    byId("failed").textContent = "failed";
    byId("failed").title = step.error;
    byId("failed").hidden = false;
  }
}

// --- tabs ----------------------------------------------------------------------------------------------------------

function selectTab(tab) {
  const list = tab.closest("[role=tablist]");
  for (const each of list.querySelectorAll("[role=tab]")) {
    const isChosen = each === tab;
    each.setAttribute("aria-selected", String(isChosen));
    each.tabIndex = isChosen ? 0 : -1;
    const panel = byId(each.getAttribute("aria-controls"));
    if (!panel.dataset.shared) panel.hidden = !isChosen;
  }
  if (tab.id === "tab-stages") app.stages.show();
  if (tab.id === "tab-graph") {
    app.graph.draw();
    app.details.show();
  }
  if (tab.id === "tab-graph" || tab.id === "tab-stages") showFolding();
  if (tab.id === "tab-lanes" || tab.id === "tab-iterations") app.timeline.showTab(tab.id.slice(4));
}

// --- playing -------------------------------------------------------------------------------------------------------

function play() {
  const { moment, recording } = app;
  if (!recording.length) return;
  if (moment.playing) {
    pause();
    return;
  }
  if (moment.row >= recording.length - 1) moment.seek(0);
  moment.playing = true;
  byId("play").setAttribute("aria-pressed", "true");
  byId("play").textContent = "❚❚";
  let last = performance.now();
  let position = moment.row;
  const tick = (now) => {
    if (!moment.playing) return;
    // The whole step in 25 seconds, but no more than all tokens one by one at 5 a second.
    const rate = Math.max(5, recording.length / 25) * Number(byId("speed").value);
    position += ((now - last) / 1000) * rate;
    last = now;
    moment.scrubbing = rate > 30;
    moment.seek(Math.floor(position));
    if (position >= recording.length - 1) pause();
    else requestAnimationFrame(tick);
  };
  requestAnimationFrame(tick);
}

function pause() {
  const { moment } = app;
  moment.playing = false;
  moment.scrubbing = false;
  byId("play").setAttribute("aria-pressed", "false");
  byId("play").textContent = "▶";
  moment.emit("row");
}

/** Moves to the next or previous token of the selected node. */
function stepNode(by) {
  const { moment, recording } = app;
  if (!recording.length) return;
  const node = moment.selected >= 0 ? moment.selected : recording.tokens.node[moment.row];
  const { starts, rows } = recording.byNode;
  const at = after(rows, starts[node], starts[node + 1], by > 0 ? moment.row : moment.row - 1);
  const next = by > 0 ? at : at - 1;
  if (next >= starts[node] && next < starts[node + 1]) moment.seek(rows[next]);
}

function nextDead() {
  const { moment, recording } = app;
  const { dead } = recording.tokens;
  for (let step = 1; step <= recording.length; step++) {
    const row = (moment.row + step) % recording.length;
    if (dead[row]) {
      moment.seek(row);
      return;
    }
  }
}

function stepIteration(by) {
  const { moment, recording } = app;
  if (!recording.length) return;
  const node = moment.selected >= 0 ? moment.selected : recording.tokens.node[moment.row];
  const frame = recording.loopOf(recording.nodes[node].frame);
  if (frame < 0) return;
  const tag = moment.tagOf(frame);
  const offered = moment.choices(frame);
  const at = offered.indexOf(tag < 0 ? -1 : recording.tagIteration[tag]);
  const next = offered[Math.max(0, Math.min(offered.length - 1, at + by))];
  if (next !== undefined) moment.pin(frame, next);
}

// --- controls ------------------------------------------------------------------------------------------------------

function toggleCritical() {
  app.moment.showCritical = !app.moment.showCritical;
  byId("critical").setAttribute("aria-pressed", String(app.moment.showCritical));
  app.moment.emit("critical");
}

/** The drawing that is in view: the graph, or that of a stage. */
function drawing() {
  return app.stages && app.stages.drawing.isShown ? app.stages.drawing.view : app.graph;
}

function showFolding() {
  byId("setup").setAttribute("aria-pressed", String(!drawing().model.folded));
}

function toggleSetup() {
  const view = drawing();
  view.model.folded = !view.model.folded;
  view.model.fold();
  showFolding();
  view.layOut();
}

function toggleTheme() {
  const root = document.documentElement;
  const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
  repaint();
}

function repaint() {
  readTheme();
  drawing().draw();
  if (app.timeline) app.timeline.draw();
  if (app.stages.drawing.isShown) app.stages.drawing.inspect();
  else app.details.show();
}

function help(isOpen) {
  const dialog = byId("help");
  if (isOpen && !dialog.open) dialog.showModal();
  else if (!isOpen && dialog.open) dialog.close();
}

function wire(recording, moment) {
  byId("keys").replaceChildren(...[...(isLive ? LIVE_KEYS : []), ...KEYS.filter(([, , isOfRun]) => recording.length || !isOfRun)].map(([keys, text]) => el("tr", {}, el("th", { scope: "row" }, ...keys.split("  ").flatMap((key, at) => [at ? " " : "", el("kbd", {}, key)])), el("td", {}, text))));
  const on = (id, action) => byId(id).addEventListener("click", action);
  on("first", () => moment.seek(0));
  on("back", () => moment.seek(moment.row - 1));
  on("play", play);
  on("ahead", () => moment.seek(moment.row + 1));
  on("last", () => moment.seek(recording.length - 1));
  on("critical", toggleCritical);
  on("setup", toggleSetup);
  on("theme", toggleTheme);
  on("keys-button", () => help(true));
  on("help-close", () => help(false));
  on("fit", () => app.graph.fit());
  on("zoom-in", () => app.graph.zoom(1.25));
  on("zoom-out", () => app.graph.zoom(0.8));
  byId("follow-token").addEventListener("click", (event) => {
    app.graph.follow = !app.graph.follow;
    event.currentTarget.setAttribute("aria-pressed", String(app.graph.follow));
  });
  byId("critical").disabled = !recording.critical.length;
  for (const tab of document.querySelectorAll("[role=tab]")) {
    tab.addEventListener("click", () => selectTab(tab));
    tab.addEventListener("keydown", (event) => {
      if (event.key !== "ArrowRight" && event.key !== "ArrowLeft") return;
      const all = [...tab.closest("[role=tablist]").querySelectorAll("[role=tab]")];
      const next = all[(all.indexOf(tab) + (event.key === "ArrowRight" ? 1 : all.length - 1)) % all.length];
      selectTab(next);
      next.focus();
      event.preventDefault();
      event.stopPropagation();
    });
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  document.addEventListener("keydown", pressed);
  splitters();
}

const ACTIONS = {
  "Home": () => app.moment.seek(0), "End": () => app.moment.seek(app.recording.length - 1), " ": play, "/": () => byId("search").focus(),
  "?": () => help(!byId("help").open), "d": nextDead, "c": () => !byId("critical").disabled && toggleCritical(), "s": toggleSetup, "f": () => drawing().fit(),
  "t": toggleTheme, "[": () => stepIteration(-1), "]": () => stepIteration(1), "+": () => drawing().zoom(1.25), "=": () => drawing().zoom(1.25), "-": () => drawing().zoom(0.8),
  "1": () => selectTab(byId("tab-graph")), "2": () => app.recording.length && selectTab(byId("tab-stages")),
  "Escape": () => {
    tooltip.hide();
    if (app.stages.drawing.isShown) app.stages.drawing.moment.select(-1);
    if (app.moment.highlighted.size) app.moment.highlight([]);
    app.moment.select(-1);
  },
};

function pressed(event) {
  const { target, key } = event;
  if (target.matches("input:not([type=range]), select, textarea")) {
    if (key === "Escape") target.blur();
    return;
  }
  if (byId("help").open && key !== "?") return; // the dialog closes itself by Escape
  if (key === " " && target.matches("button, [role=button]")) return;
  const { moment } = app;
  const by = key === "ArrowRight" ? 1 : key === "ArrowLeft" ? -1 : 0;
  if (by && !event.altKey && !event.metaKey) {
    if (event.shiftKey) stepNode(by);
    else moment.seek(moment.row + by * (event.ctrlKey ? 100 : 1));
    event.preventDefault();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const name = key.length === 1 ? key.toLowerCase() : key;
  const action = (app.live && app.live.actions[name]) || ACTIONS[name];
  if (!action) return;
  event.preventDefault();
  action();
}

/** Borders between the parts that the pointer and the keyboard move. */
function splitters() {
  const root = document.documentElement;
  const move = (handle, name, sign, axis, least, most) => {
    const size = () => Number.parseFloat(getComputedStyle(root).getPropertyValue(name));
    const set = (value) => {
      root.style.setProperty(name, `${Math.max(least, Math.min(most(), value))}px`);
      handle.setAttribute("aria-valuenow", String(Math.round(size())));
    };
    handle.addEventListener("pointerdown", (event) => {
      const from = size();
      const start_ = event[axis];
      handle.setPointerCapture(event.pointerId);
      const drag = (each) => set(from + sign * (each[axis] - start_));
      handle.addEventListener("pointermove", drag);
      handle.addEventListener("pointerup", () => handle.removeEventListener("pointermove", drag), { once: true });
    });
    handle.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: 20, ArrowUp: 20, ArrowRight: -20, ArrowDown: -20 }[event.key];
      if (!by) return;
      set(size() + by);
      event.preventDefault();
      event.stopPropagation();
    });
  };
  move(byId("split-side"), "--side", -1, "clientX", 240, () => innerWidth * 0.6);
  move(byId("split-time"), "--time", -1, "clientY", 90, () => innerHeight * 0.6);
}

load();
