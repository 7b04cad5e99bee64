// The user's source: a line that is clicked selects its operations, and the line of the current token is lit.

const KEYWORDS = /^(False|None|True|and|as|assert|async|await|break|class|continue|def|del|elif|else|except|finally|for|from|global|if|import|in|is|lambda|nonlocal|not|or|pass|raise|return|try|while|with|yield)$/;
const PIECES = /(#.*$)|([rbfuRBFU]{0,2}(?:"""|'''|"(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?))|(\b\d[\w.]*)|([A-Za-z_]\w*)|([^\w#"']+)/g;

class Source {
  constructor(recording, moment) {
    Object.assign(this, { recording, moment });
    this.root = byId("source");
    this.files = byId("files");
    this.file = -1;
    this.lines = [];
    const counts = recording.files.map(() => 0);
    for (const node of recording.nodes) if (node.source) counts[node.source[0]]++;
    this.offered = recording.files.map((_, at) => at).filter((at) => counts[at]).sort((a, b) => counts[b] - counts[a]);
    this.files.replaceChildren(...this.offered.map((at) => el("option", { value: at }, recording.files[at].name)));
    this.files.addEventListener("change", () => this.open(Number(this.files.value)));
    moment.on("row selection", () => this.mark());
    if (this.offered.length) this.open(this.offered[0]);
    else this.root.replaceChildren(el("p", { class: "note" }, "No operation of this recording has a source line."));
    this.root.addEventListener("keydown", (event) => this.move(event));
  }

  open(file) {
    this.file = file;
    this.files.value = file;
    this.lit = -1;
    const { text } = this.recording.files[file];
    if (text === null) {
      this.lines = [];
      const known = [...this.recording.byLine.keys()].filter((key) => Number(key.split(":")[0]) === file).map((key) => Number(key.split(":")[1])).sort((a, b) => a - b);
      this.root.replaceChildren(el("p", { class: "note" }, "The text of this file was not recorded."), ...known.map((line) => this.line(file, line, "")));
    } else this.root.replaceChildren(...text.replace(/\n$/, "").split("\n").map((each, at) => this.line(file, at + 1, each)));
    this.lines = new Map([...this.root.querySelectorAll("[data-line]")].map((each) => [Number(each.dataset.line), each]));
    this.mark();
  }

  line(file, number_, text) {
    const nodes = this.recording.byLine.get(`${file}:${number_}`) || [];
    const gutter = el("span", { class: "gutter" }, String(number_));
    const badge = el("span", { class: "count", title: nodes.length ? plural(nodes.length, "operation") : null }, nodes.length ? String(nodes.length) : "");
    const code = el("code", {}, ...highlighted(text));
    const attributes = { class: `line${nodes.length ? " has" : ""}`, "data-line": number_ };
    if (!nodes.length) return el("div", attributes, gutter, badge, code);
    return el("div", {
      ...attributes, role: "button", tabindex: this.anyTab ? -1 : ((this.anyTab = true), 0),
      "aria-label": `Line ${number_}, ${plural(nodes.length, "operation")}: ${text.trim()}`,
      onclick: () => this.choose(nodes),
    }, gutter, badge, code);
  }

  /** Selects the operations of a line. */
  choose(nodes) {
    const { moment, recording } = this;
    const shown = nodes.filter((node) => app.model.shown[node]);
    const first = shown.find((node) => recording.firings(node)) ?? shown[0] ?? nodes[0];
    moment.highlight(nodes);
    app.graph.reveal(first);
  }

  move(event) {
    const { target, key } = event;
    if (!target.classList.contains("line")) return;
    if (key === "Enter") target.click();
    else if (key === "ArrowDown" || key === "ArrowUp") {
      const all = [...this.root.querySelectorAll(".line.has")];
      const next = all[all.indexOf(target) + (key === "ArrowDown" ? 1 : -1)];
      if (next) {
        target.tabIndex = -1;
        next.tabIndex = 0;
        next.focus();
      }
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** Shows a line. */
  show(file, line) {
    if (file !== this.file) this.open(file);
    this.scrollTo(line);
  }

  scrollTo(line) {
    const element = this.lines.get && this.lines.get(line);
    if (!element) return;
    const { root } = this;
    const top = element.offsetTop;
    if (top < root.scrollTop + 20 || top > root.scrollTop + root.clientHeight - 40) root.scrollTop = top - root.clientHeight / 2;
  }

  /** Lights the line of the selected node, and that of the current token. */
  mark() {
    const { recording, moment } = this;
    if (this.file < 0) return;
    const sourceOf = (node) => (node >= 0 ? recording.nodes[node].source : null);
    const now = sourceOf(moment.row >= 0 ? recording.tokens.node[moment.row] : -1);
    const chosen = sourceOf(moment.selected);
    const focus = chosen || now;
    if (focus && focus[0] !== this.file && !moment.playing && !moment.scrubbing && focus !== this.focus) {
      this.focus = focus;
      this.open(focus[0]);
      return;
    }
    const set = (name, source) => {
      const line = source && source[0] === this.file ? source[1] : -1;
      if (this[name] === line) return;
      const old = this.lines.get && this.lines.get(this[name]);
      if (old) old.classList.remove(name);
      const element = this.lines.get && this.lines.get(line);
      if (element) element.classList.add(name);
      this[name] = line;
      if (element && (name === "chosen" || !chosen)) this.scrollTo(line);
    };
    set("lit", now);
    set("chosen", chosen);
  }
}

/** A line of Python in spans: enough for the eye, since a string over several lines is not followed. */
function highlighted(text) {
  const out = [];
  for (const [piece, comment, string, digits, word] of text.matchAll(PIECES)) {
    const kind = comment ? "comment" : string ? "string" : digits ? "digits" : word && KEYWORDS.test(word) ? "keyword" : "";
    out.push(kind ? el("span", { class: kind }, piece) : piece);
  }
  return out;
}
