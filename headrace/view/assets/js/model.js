// The drawing as data: nested containers (frames and name scopes), visible nodes, and the edges between them after
// set-up operations are folded away.

const TOP = "top";
const BOTTOM = "bottom";
const MOST_ITEMS = 160; // of a box that is not divided
const PART = 60; // items of a part of a divided box

class Model {
  constructor(recording) {
    this.recording = recording;
    this.folded = true; // set-up operations
    this.containers = [];
    this.buildContainers();
    this.fold();
    this.openInitially();
  }

  // --- containers ---

  add(kind, name, parent, frame, prefix) {
    const id = this.containers.length;
    this.containers.push({ id, kind, name, parent, frame, prefix, nodes: [], children: [], open: false, path: [], size: 0 });
    return id;
  }

  buildContainers() {
    const { frames, nodes } = this.recording;
    this.ofFrame = new Array(frames.length);
    this.ofNode = new Uint32Array(nodes.length);
    const own = frames.map(() => []);
    nodes.forEach((node, at) => own[node.frame].push(at));
    const inner = frames.map(() => []);
    frames.forEach((frame, at) => frame.parent >= 0 && inner[frame.parent].push(at));
    frames.forEach((frame, at) => {
      // The scope of a frame's op, or the path before its name, is the place of its box.
      const scopes = own[at].map((node) => nodes[node].scope || "");
      const base = at === 0 ? "" : commonScope(scopes);
      const id = at === 0 ? this.add("root", "", -1, 0, "") : this.ofFrame[at];
      this.ofFrame[at] = id;
      const container = this.containers[id];
      container.prefix = base;
      const groups = new Map([["", id]]);
      const groupOf = (path) => {
        if (groups.has(path)) return groups.get(path);
        const cut = path.lastIndexOf("/");
        const parent = groupOf(cut < 0 ? "" : path.slice(0, cut));
        const prefix = base ? `${base}/${path}` : path;
        const group = this.add("scope", path.slice(cut + 1), parent, at, prefix);
        groups.set(path, group);
        return group;
      };
      const relative = (scope) => {
        if (!base) return scope;
        return scope === base ? "" : scope.startsWith(`${base}/`) ? scope.slice(base.length + 1) : "";
      };
      for (const node of own[at]) this.ofNode[node] = groupOf(relative(nodes[node].scope || ""));
      for (const child of inner[at]) {
        const op = frames[child].op;
        const cut = frames[child].name.lastIndexOf("/");
        const scope = op >= 0 && nodes[op] && nodes[op].frame === at ? nodes[op].scope : cut < 0 ? "" : frames[child].name.slice(0, cut);
        const place = scope && groups.has(relative(scope)) ? groups.get(relative(scope)) : id;
        this.ofFrame[child] = this.add(frames[child].kind, frames[child].name, place, child, "");
      }
    });
    this.ofNode.forEach((container, node) => this.containers[container].nodes.push(node));
    for (const container of this.containers) if (container.parent >= 0) this.containers[container.parent].children.push(container.id);
    this.dissolveSmallScopes();
    this.divideLargeBoxes();
    for (const container of this.ordered()) {
      container.path = container.parent < 0 ? [0] : [...this.containers[container.parent].path, container.id];
    }
  }

  /** A scope with one item, apart from set-up operations, is no box: its contents move out. */
  dissolveSmallScopes() {
    const { nodes } = this.recording;
    for (const container of this.ordered().reverse()) {
      const own = container.nodes.filter((node) => !nodes[node].setup && nodes[node].constant === null).length;
      if (container.kind !== "scope" || own + container.children.length > 1) continue;
      const parent = this.containers[container.parent];
      parent.children.splice(parent.children.indexOf(container.id), 1, ...container.children);
      for (const child of container.children) {
        this.containers[child].parent = parent.id;
        if (this.containers[child].kind === "scope") this.containers[child].name = `${container.name}/${this.containers[child].name}`;
      }
      for (const node of container.nodes) {
        parent.nodes.push(node);
        this.ofNode[node] = parent.id;
      }
      container.kind = "gone";
      container.nodes = [];
      container.children = [];
    }
  }

  /**
   * Divides a box with many items into parts, in topological order, so that edges between parts have one direction. A
   * drawing of a thousand cards helps no reader, and the layout's time grows faster than their number.
   */
  divideLargeBoxes() {
    const rank = this.topologicalRanks();
    for (const container of [...this.containers]) {
      if (container.kind === "gone" || container.nodes.length + container.children.length <= MOST_ITEMS) continue;
      const { nodes } = this.recording;
      const isSetup = (node) => nodes[node].setup || nodes[node].constant !== null;
      const first = (id) => this.containers[id].nodes.reduce((least, node) => Math.min(least, rank[node]),
        this.containers[id].children.reduce((least, child) => Math.min(least, first(child)), Infinity));
      let items = [...container.nodes.map((node) => [rank[node], -1, node]), ...container.children.map((id) => [first(id), id, -1])];
      items = items.sort((a, b) => a[0] - b[0] || a[2] - b[2] || a[1] - b[1]);
      const shown = items.filter(([, , node]) => node < 0 || !isSetup(node)).length;
      if (shown <= MOST_ITEMS) continue;
      const parts = Math.min(MOST_ITEMS, Math.ceil(shown / PART));
      const per = Math.ceil(shown / parts);
      let part = -1;
      let taken = per;
      container.nodes = [];
      container.children = [];
      for (const [, id, node] of items) {
        const counts = node < 0 || !isSetup(node);
        if (counts && taken === per) {
          part = this.add("scope", "", container.id, container.frame, container.prefix);
          container.children.push(part);
          taken = 0;
        }
        if (counts) taken++;
        const home = this.containers[part < 0 ? container.id : part];
        if (node >= 0) {
          home.nodes.push(node);
          this.ofNode[node] = home.id;
        } else {
          home.children.push(id);
          this.containers[id].parent = home.id;
        }
      }
      for (const id of container.children) {
        const each = this.containers[id];
        const named = each.nodes.filter((node) => !isSetup(node));
        if (named.length) each.name = `${this.label(named[0])} … ${this.label(named[named.length - 1])}`;
        else each.name = `${this.title(this.containers[each.children[0]])} …`;
      }
    }
  }

  /** Position of each node in an order in which inputs come first, apart from next iterations. */
  topologicalRanks() {
    const { nodes } = this.recording;
    const rank = new Uint32Array(nodes.length);
    const waiting = new Uint32Array(nodes.length);
    const next = nodes.map(() => []);
    nodes.forEach((node, at) => {
      for (const input of [...node.inputs.map(([each]) => each), ...node.controls]) {
        if (/^(Ref)?NextIteration$/.test(nodes[input].type)) continue;
        waiting[at]++;
        next[input].push(at);
      }
    });
    const ready = [];
    for (let node = nodes.length - 1; node >= 0; node--) if (!waiting[node]) ready.push(node);
    let position = 0;
    while (ready.length) {
      const node = ready.pop();
      rank[node] = position++;
      for (let at = next[node].length - 1; at >= 0; at--) if (--waiting[next[node][at]] === 0) ready.push(next[node][at]);
    }
    return rank;
  }

  /** Containers from the outside in. */
  ordered() {
    const out = [];
    const visit = (id) => {
      out.push(this.containers[id]);
      this.containers[id].children.forEach(visit);
    };
    visit(0);
    return out;
  }

  title(container) {
    const { kind, name } = container;
    if (kind === "scope") return name;
    const outer = this.containers[container.parent];
    return outer && outer.prefix && name.startsWith(`${outer.prefix}/`) ? name.slice(outer.prefix.length + 1) : name || kind;
  }

  label(node) {
    const { name, type, variable } = this.recording.nodes[node];
    if (variable !== null) return variable;
    if (type === "_Arg" || type === "_Retval") {
      const end = /^(?:arg|ret)\.(.+)\.\d+$/.exec(name);
      if (end) return end[1];
    }
    const { prefix } = this.containers[this.ofNode[node]];
    // The next value of a variable is named after it, unless the operation has a name of its own.
    if (this.variableOf && this.variableOf.has(node) && /(^|\/)NextIteration(_\d+)?$/.test(name)) return `next ${this.label(this.variableOf.get(node))}`;
    return prefix && name.startsWith(`${prefix}/`) ? name.slice(prefix.length + 1) : name;
  }

  // --- folding ---

  /** Decides which nodes are drawn, and finds the edges between them through the others. */
  fold() {
    const { nodes } = this.recording;
    this.role = new Array(nodes.length).fill("");
    this.shown = new Uint8Array(nodes.length);
    this.nextOf = new Map(); // Merge of a loop variable → its NextIteration
    this.variableOf = new Map(); // the inverse
    nodes.forEach((node, at) => {
      if (/^(Ref)?Merge$/.test(node.type)) {
        for (const [input] of node.inputs) {
          if (/^(Ref)?NextIteration$/.test(nodes[input].type)) {
            this.role[at] = TOP;
            this.role[input] = BOTTOM;
            this.nextOf.set(at, input);
            this.variableOf.set(input, at);
          }
        }
      } else if (node.type === "LoopCond") this.role[at] = BOTTOM;
    });
    nodes.forEach((node, at) => {
      const isMarked = this.recording.marks && this.recording.marks[at]; // of a stage
      const hidden = this.folded && (node.constant !== null || node.setup) && !this.role[at] && !isMarked;
      this.shown[at] = hidden ? 0 : 1;
    });
    if (!this.shown.includes(1)) this.shown.fill(1);
    this.findEdges();
    if (this.folded && this.hideIdleVariables()) this.findEdges();
    for (const container of this.ordered().reverse()) {
      container.shownNodes = container.nodes.filter((node) => this.shown[node]);
      container.size = container.shownNodes.length;
      for (const child of container.children) container.size += this.containers[child].size;
    }
  }

  /**
   * Hides loop variables whose values no operation reads, in or after the loop: such loops make another device iterate
   * in step (partition), and their control edges say no more. Returns whether there were any.
   */
  hideIdleVariables() {
    let found = false;
    for (const [variable, next] of this.nextOf) {
      if (!this.recording.nodes[variable].setup || !this.recording.nodes[next].setup) continue;
      const isRead = [variable, next].some((node) => this.edgesOf[node].some((at) => {
        const { from, to, kind } = this.edges[at];
        return kind === "data" && from === node && !(from === variable && to === next);
      }));
      if (isRead) continue;
      this.shown[variable] = this.shown[next] = 0;
      found = true;
    }
    return found;
  }

  /** Whether a container is drawn: it has a visible node. */
  isDrawn(id) {
    return this.containers[id].size > 0;
  }

  findEdges() {
    const { nodes, frames } = this.recording;
    const memo = new Map();
    const empty = [];
    // Visible nodes whose tokens reach the outputs of `node` through folded ones.
    const sources = (node) => {
      if (this.shown[node]) return [node];
      if (memo.has(node)) return memo.get(node);
      memo.set(node, empty); // a cycle of folded nodes brings nothing new
      const { type, inputs, constant } = nodes[node];
      const out = new Set();
      if (constant === null) {
        const data = /^(Ref)?Switch$/.test(type) ? inputs.slice(0, 1) : inputs;
        for (const [input] of data) for (const source of sources(input)) out.add(source);
        if (/^(Ref)?Exit$/.test(type)) {
          for (const source of [...out]) {
            // The last value of a loop variable leaves where its next value is made.
            if (this.nextOf.has(source) && this.shown[this.nextOf.get(source)]) {
              out.delete(source);
              out.add(this.nextOf.get(source));
            }
          }
        }
      }
      const found = [...out];
      memo.set(node, found);
      return found;
    };
    const edges = new Map();
    const add = (from, to, kind) => {
      const key = `${from}>${to}`;
      const known = edges.get(key);
      if (!known) edges.set(key, { from, to, kind, into: -1 });
      else if (kind === "data") known.kind = "data";
    };
    const guards = new Map(); // branch container → sources of its predicate
    nodes.forEach((node, at) => {
      if (this.role[at] === TOP && this.nextOf.has(at)) {
        const next = this.nextOf.get(at);
        if (this.shown[at] && this.shown[next]) add(next, at, "back");
      }
      for (const [input] of node.inputs) {
        if (/^(Ref)?Switch$/.test(nodes[input].type) && frames[node.frame].kind === "branch" && nodes[input].inputs.length > 1) {
          const branch = this.ofFrame[node.frame];
          if (!guards.has(branch)) guards.set(branch, new Set());
          for (const source of sources(nodes[input].inputs[1][0])) guards.get(branch).add(source);
        }
      }
      if (!this.shown[at]) return;
      for (const [input] of node.inputs) {
        if (this.nextOf.get(at) === input) continue;
        for (const source of sources(input)) if (source !== at) add(source, at, "data");
      }
      for (const input of node.controls) for (const source of sources(input)) if (source !== at) add(source, at, "control");
    });
    for (const [send, receive] of this.transfers()) {
      if (this.shown[send] && this.shown[receive]) add(send, receive, "transfer");
    }
    this.edges = [...edges.values()];
    for (const [branch, found] of guards) {
      const path = this.containers[branch].path;
      for (const from of found) {
        if (!this.containers[this.ofNode[from]].path.includes(branch) && path.length) {
          this.edges.push({ from, to: -1, kind: "guard", into: branch });
        }
      }
    }
    this.edgesOf = nodes.map(() => []);
    this.edges.forEach((edge, at) => {
      this.edgesOf[edge.from].push(at);
      if (edge.to >= 0) this.edgesOf[edge.to].push(at);
    });
    this.operands = nodes.map((node) => {
      const constants = node.inputs.map(([input]) => this.constantOf(input));
      if (constants.every((each) => each === null)) return "";
      const parts = constants.map((each) => (each === null ? "·" : clip(each, 12)));
      return parts.length <= 4 ? `(${parts.join(", ")})` : `(${parts.slice(0, 3).join(", ")}, …)`;
    });
  }

  /** Pairs of a Send and its Recv: partition puts both into the scope of the tensor, and names a Send after its target. */
  transfers() {
    const { nodes, devices } = this.recording;
    const sends = new Map();
    nodes.forEach((node, at) => {
      if (!/^_(Host)?Send$/.test(node.type)) return;
      const scope = node.name.slice(0, node.name.lastIndexOf("/") + 1);
      if (!sends.has(scope)) sends.set(scope, []);
      sends.get(scope).push(at);
    });
    const out = [];
    nodes.forEach((node, at) => {
      if (!/^_(Host)?Recv$/.test(node.type)) return;
      const found = (sends.get(node.name.slice(0, node.name.lastIndexOf("/") + 1)) || []).filter((send) => nodes[send].device !== node.device);
      const target = shortDevice(devices[node.device] || "").replace(/[^\w]/g, "_");
      const named = found.filter((send) => nodes[send].name.endsWith(`to_${target}`));
      const pair = named.length === 1 ? named : found;
      if (pair.length === 1) out.push([pair[0], at]);
    });
    return out;
  }

  /** The text of a constant that reaches a node through the Enters of loops; null: another value does. */
  constantOf(node) {
    const { nodes } = this.recording;
    while (nodes[node].constant === null) {
      if (!/^(Ref)?Enter$/.test(nodes[node].type) || !nodes[node].inputs.length) return null;
      [[node]] = nodes[node].inputs;
    }
    return nodes[node].constant;
  }

  // --- open and closed ---

  /** Opens boxes from the outside in, loops before scopes, as long as the drawing stays readable. */
  openInitially() {
    const LIMIT = 260;
    this.containers[0].open = true;
    let visible = this.containers[0].shownNodes.length + this.containers[0].children.length;
    let level = [...this.containers[0].children];
    while (level.length) {
      const next = [];
      const rank = (id) => (this.containers[id].kind === "scope" ? 1 : 0);
      for (const id of level.sort((a, b) => rank(a) - rank(b) || this.containers[a].size - this.containers[b].size)) {
        const container = this.containers[id];
        const more = container.shownNodes.length + container.children.length;
        if (visible + more > LIMIT) continue;
        container.open = true;
        visible += more;
        next.push(...container.children);
      }
      level = next;
    }
  }

  /** Opens all boxes around a node; returns whether one was closed. */
  reveal(node) {
    let changed = false;
    for (const id of this.containers[this.ofNode[node]].path) {
      if (!this.containers[id].open) {
        this.containers[id].open = true;
        changed = true;
      }
    }
    return changed;
  }

  /** What stands for a node in the drawing: itself, or the outermost closed box around it. */
  standIn(node) {
    for (const id of this.containers[this.ofNode[node]].path) if (!this.containers[id].open) return `c${id}`;
    return this.shown[node] ? `n${node}` : "";
  }

  // --- the problem of the layout ---

  /** Items, edges and ports of each open container, for the worker. `sizeOf` measures nodes and titles. */
  problem(sizeOf) {
    const containers = {};
    const visit = (id) => {
      const container = this.containers[id];
      const items = container.shownNodes.map((node) => [`n${node}`, ...sizeOf.node(node), this.role[node]]);
      const children = [];
      for (const child of container.children) {
        if (!this.isDrawn(child)) continue;
        if (this.containers[child].open) {
          children.push(`c${child}`);
          items.push([`c${child}`, 0, 0, ""]);
          visit(child);
        } else items.push([`c${child}`, ...sizeOf.closed(this.containers[child]), ""]);
      }
      containers[`c${id}`] = {
        items, children, edges: new Map(), inPorts: new Set(), outPorts: new Set(),
        header: id ? 30 : 0, pad: id ? 14 : 24, width: id ? sizeOf.header(container) : 0,
      };
    };
    visit(0);
    // Each edge is a chain of lines: out of the boxes around its source, across the box that holds both ends, and into
    // those around its target. Lines with the same source share their ports.
    const lines = new Map(); // container|from|to|source → {container, from, to, source, kinds}
    const chains = this.edges.map((edge) => {
      if (edge.kind === "back" || (edge.into >= 0 && !this.isDrawn(edge.into))) return [];
      const up = this.openPath(this.ofNode[edge.from]);
      const target = edge.into >= 0 ? edge.into : this.ofNode[edge.to];
      const down = edge.into >= 0 ? this.openPath(this.containers[edge.into].parent) : this.openPath(target);
      let shared = 0;
      while (shared < up.length && shared < down.length && up[shared] === down[shared]) shared++;
      const chain = [];
      const line = (container, from, to) => {
        const key = `${container}|${from}|${to}|${edge.from}`;
        if (!lines.has(key)) lines.set(key, { key, container: `c${container}`, from, to, source: edge.from, kind: edge.kind });
        else if (edge.kind === "data") lines.get(key).kind = "data";
        chain.push(key);
        const problem = containers[`c${container}`];
        const pair = `${from}|${to}`;
        problem.edges.set(pair, (problem.edges.get(pair) || 0) + 1);
      };
      const itemIn = (level, path, last) => (level + 1 < path.length ? `c${path[level + 1]}` : last);
      const ends = (path, node) => {
        const closed = this.closedAfter(path, node);
        return closed >= 0 ? `c${closed}` : `n${node}`;
      };
      const fromEnd = ends(up, edge.from);
      const toEnd = edge.into >= 0 ? this.guardEnd(edge.into, down) : ends(down, edge.to);
      const from = itemIn(shared - 1, up, fromEnd);
      const to = itemIn(shared - 1, down, toEnd);
      if (from === to) return [];
      for (let level = up.length - 1; level >= shared; level--) {
        const port = `o${edge.from}`;
        containers[`c${up[level]}`].outPorts.add(port);
        line(up[level], itemIn(level, up, fromEnd), port);
      }
      line(up[shared - 1], from, to);
      for (let level = shared; level < down.length; level++) {
        const port = `i${edge.from}`;
        containers[`c${down[level]}`].inPorts.add(port);
        line(down[level], port, itemIn(level, down, toEnd));
      }
      return chain;
    });
    for (const problem of Object.values(containers)) {
      problem.edges = [...problem.edges].map(([pair, weight]) => [...pair.split("|"), Math.min(weight, 4)]);
      problem.inPorts = [...problem.inPorts];
      problem.outPorts = [...problem.outPorts];
    }
    return { root: "c0", containers, chains, lines };
  }

  /** Open containers from the root towards `id`. */
  openPath(id) {
    const out = [];
    for (const each of this.containers[id].path) {
      if (!this.containers[each].open) break;
      out.push(each);
    }
    return out;
  }

  closedAfter(path, node) {
    const full = this.containers[this.ofNode[node]].path;
    return full.length > path.length ? full[path.length] : -1;
  }

  guardEnd(branch, path) {
    const full = this.containers[branch].path;
    return `c${full[path.length]}`;
  }
}

function commonScope(scopes) {
  if (!scopes.length) return "";
  let common = scopes[0].split("/");
  for (const scope of scopes) {
    const parts = scope.split("/");
    let at = 0;
    while (at < common.length && at < parts.length && common[at] === parts[at]) at++;
    common = common.slice(0, at);
  }
  return common.join("/");
}

function clip(text, length) {
  return text.length > length ? `${text.slice(0, length - 1)}…` : text;
}
