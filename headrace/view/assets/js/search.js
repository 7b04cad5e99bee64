// Search by name, type, device or source line. The best results first: whole names, then beginnings, then the rest.

const MOST_RESULTS = 60;

class Search {
  constructor(recording, model, moment) {
    Object.assign(this, { recording, model, moment });
    this.input = byId("search");
    this.list = byId("results");
    this.active = -1;
    this.texts = recording.nodes.map((node) => {
      const file = node.source && recording.files[node.source[0]];
      const line = file && file.text !== null ? this.lineOf(node.source) : "";
      return `${node.name} ${node.type} ${node.variable || ""} ${file ? `${file.name}:${node.source[1]}` : ""} ${line}`.toLowerCase();
    });
    this.input.addEventListener("input", () => this.find());
    this.input.addEventListener("focus", () => this.input.value && this.find());
    this.input.addEventListener("keydown", (event) => this.key(event));
    this.input.addEventListener("blur", () => setTimeout(() => this.close(), 150));
  }

  lineOf([file, line]) {
    if (!this.split) this.split = new Map();
    if (!this.split.has(file)) this.split.set(file, this.recording.files[file].text.split("\n"));
    return (this.split.get(file)[line - 1] || "").trim();
  }

  find() {
    const words = this.input.value.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) {
      this.moment.highlight([]);
      this.close();
      return;
    }
    const { nodes } = this.recording;
    const found = [];
    this.texts.forEach((text, at) => words.every((word) => text.includes(word)) && found.push(at));
    const rank = (at) => {
      const name = nodes[at].name.toLowerCase();
      const last = name.slice(name.lastIndexOf("/") + 1);
      const first = words[0];
      const place = name === first ? 0 : last === first ? 1 : nodes[at].type.toLowerCase() === first ? 2 : last.startsWith(first) ? 3 : name.includes(first) ? 4 : 5;
      return place + (this.model.shown[at] ? 0 : 10);
    };
    const ranks = new Map(found.map((at) => [at, rank(at)]));
    found.sort((a, b) => ranks.get(a) - ranks.get(b) || a - b);
    this.found = found.slice(0, MOST_RESULTS);
    this.moment.highlight(found);
    this.list.replaceChildren(...this.found.map((at, index) => {
      const node = nodes[at];
      const file = node.source && this.recording.files[node.source[0]];
      return el("li", { role: "option", id: `result-${index}`, "aria-selected": "false", onpointerdown: (event) => { event.preventDefault(); this.choose(index); } },
        el("span", { class: "name" }, node.name), el("span", { class: "note" }, `${node.type}${file ? `  ·  ${file.name}:${node.source[1]}` : ""}`));
    }), found.length ? (found.length > MOST_RESULTS ? el("li", { class: "note" }, `${count(found.length - MOST_RESULTS)} more`) : "") : el("li", { class: "note" }, "no operation matches"));
    this.list.hidden = false;
    this.input.setAttribute("aria-expanded", "true");
    this.activate(this.found.length ? 0 : -1);
  }

  activate(index) {
    this.active = index;
    [...this.list.querySelectorAll("[role=option]")].forEach((each, at) => {
      each.setAttribute("aria-selected", String(at === index));
      if (at === index) each.scrollIntoView({ block: "nearest" });
    });
    this.input.setAttribute("aria-activedescendant", index >= 0 ? `result-${index}` : "");
  }

  key(event) {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      if (this.list.hidden) this.find();
      else this.activate(Math.max(0, Math.min(this.found.length - 1, this.active + (event.key === "ArrowDown" ? 1 : -1))));
    } else if (event.key === "Enter" && this.active >= 0) this.choose(this.active);
    else if (event.key === "Escape") {
      this.input.value = "";
      this.moment.highlight([]);
      this.close();
      this.input.blur();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  choose(index) {
    const node = this.found[index];
    this.close();
    this.input.blur();
    if (byId("view-graph").hidden) selectTab(byId("tab-graph"));
    app.graph.reveal(node);
  }

  close() {
    this.list.hidden = true;
    this.input.setAttribute("aria-expanded", "false");
  }
}
