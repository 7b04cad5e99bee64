// Lays out nested boxes. Each open container is one problem for dagre, in which an open child is a node of the child's
// size; so a container that did not change, nor its children, is taken from the cache. The text of dagre stands before
// this text, in the same function, which runs in a worker, or in the page where workers are forbidden.

const cache = new Map();
const MOST_DUMMIES = 1200;
const CACHED = 400; // problems; a page that opens and folds boxes for hours stays small

function answer({ id, root, containers }) {
  const started = performance.now();
  try {
    const boxes = {};
    const lines = {};
    const laid = {};
    layOut(root, containers, laid);
    place(root, 0, 0, containers, laid, boxes, lines);
    return { id, boxes, lines, milliseconds: performance.now() - started };
  } catch (error) {
    return { id, error: String((error && error.stack) || error) };
  }
}

if (typeof document === "undefined") self.onmessage = (event) => self.postMessage(answer(event.data));
else self.layOutInPage = answer;

/** Sizes of a container and of all open ones inside, from the inside out. */
function layOut(name, containers, laid) {
  const container = containers[name];
  for (const child of container.children) layOut(child, containers, laid);
  const items = container.items.map(([key, width, height, role]) =>
    laid[key] ? [key, laid[key].width, laid[key].height, role] : [key, width, height, role]);
  const problem = { ...container, items };
  const text = JSON.stringify(problem);
  let found = cache.get(text);
  if (!found) {
    found = solve(problem);
    if (cache.size >= CACHED) cache.delete(cache.keys().next().value);
    cache.set(text, found);
  }
  laid[name] = found;
}

/** Absolute positions, from the outside in. */
function place(name, x, y, containers, laid, boxes, lines) {
  const mine = laid[name];
  boxes[name] = [x, y, mine.width, mine.height];
  for (const [key, left, top, width, height] of mine.boxes) {
    if (laid[key]) place(key, x + left, y + top, containers, laid, boxes, lines);
    else boxes[mine.ports.has(key) ? `${name}/${key}` : key] = [x + left, y + top, width, height];
  }
  lines[name] = mine.lines.map(([from, to, points]) => [from, to, points && points.map((v, at) => v + (at % 2 ? y : x))]);
}

/** Ranks by the longest path from a source; on a cycle, the last rank that was found. */
function ranks(keys, edges) {
  const out = new Map(keys.map((key) => [key, 0]));
  const waiting = new Map(keys.map((key) => [key, 0]));
  const next = new Map(keys.map((key) => [key, []]));
  for (const [from, to] of edges) {
    waiting.set(to, waiting.get(to) + 1);
    next.get(from).push(to);
  }
  const ready = keys.filter((key) => !waiting.get(key));
  while (ready.length) {
    const key = ready.pop();
    for (const to of next.get(key)) {
      out.set(to, Math.max(out.get(to), out.get(key) + 1));
      waiting.set(to, waiting.get(to) - 1);
      if (!waiting.get(to)) ready.push(to);
    }
  }
  return out;
}

/**
 * Splits edges into those that dagre routes and those that are drawn directly. An edge takes a dummy node for each rank
 * that it passes, and the time grows with their square: a constant that each operation of a long chain reads would take
 * minutes. The longest edges are drawn directly, as long as their targets have another one.
 */
function split(keys, edges) {
  const rank = ranks(keys, edges);
  const span = ([from, to]) => Math.abs(rank.get(to) - rank.get(from));
  let dummies = 0;
  const inputs = new Map();
  for (const edge of edges) {
    dummies += 2 * span(edge);
    inputs.set(edge[1], (inputs.get(edge[1]) || 0) + 1);
  }
  const direct = new Set();
  for (const edge of [...edges].sort((a, b) => span(b) - span(a))) {
    if (dummies <= MOST_DUMMIES || span(edge) < 3) break;
    if (inputs.get(edge[1]) < 2) continue;
    inputs.set(edge[1], inputs.get(edge[1]) - 1);
    dummies -= 2 * span(edge);
    direct.add(edge);
  }
  return [edges.filter((edge) => !direct.has(edge)), [...direct]];
}

/** One container: the positions of its items relative to its corner, and the points of its lines. */
function solve({ items, children, edges: all, inPorts, outPorts, header, width: least, pad }) {
  const [edges, direct] = split([...items.map(([key]) => key), ...inPorts, ...outPorts], all);
  const roomy = children.length > 0;
  const ports = new Set([...inPorts, ...outPorts]);
  const connected = new Set();
  for (const [from, to] of all) connected.add(from).add(to);
  const loose = items.filter(([key]) => !connected.has(key));
  const held = items.filter(([key]) => connected.has(key));
  const boxes = [];
  const lines = [];
  let right = 0;
  let bottom = 0;
  if (held.length) {
    const graph = new dagre.graphlib.Graph();
    const many = held.length + ports.size > 220;
    graph.setGraph({ rankdir: "TB", nodesep: 20, edgesep: 12, ranksep: ports.size || roomy ? 42 : 32, ranker: many ? "longest-path" : "network-simplex" });
    graph.setDefaultEdgeLabel(() => ({}));
    const roles = new Map();
    for (const [key, width, height, role] of held) {
      graph.setNode(key, { width, height });
      if (role) roles.set(key, role);
    }
    for (const key of inPorts) graph.setNode(key, { width: 6, height: 1 }), roles.set(key, "top");
    for (const key of outPorts) graph.setNode(key, { width: 6, height: 1 }), roles.set(key, "bottom");
    const degrees = new Map();
    for (const [from, to, weight] of edges) {
      graph.setEdge(from, to, { weight, minlen: 1 });
      degrees.set(from, (degrees.get(from) || 0) + weight);
      degrees.set(to, (degrees.get(to) || 0) + weight);
    }
    // dagre has no constraint that pins a node to the first or last rank. An edge from a node above everything, heavier
    // than the others together, is one.
    if (!many && roles.size) {
      for (const [key, role] of roles) {
        const weight = (degrees.get(key) || 0) + 1;
        const isPort = ports.has(key);
        if (role === "top") {
          if (!graph.hasNode("^")) graph.setNode("^", { width: 1, height: 1 });
          graph.setEdge("^", key, { weight, minlen: isPort ? 1 : 2 });
        } else {
          if (!graph.hasNode("$")) graph.setNode("$", { width: 1, height: 1 });
          graph.setEdge(key, "$", { weight, minlen: isPort ? 1 : 2 });
        }
      }
    }
    dagre.layout(graph);
    let left = Infinity;
    let top = Infinity;
    for (const key of graph.nodes()) {
      if (key === "^" || key === "$") continue;
      const at = graph.node(key);
      left = Math.min(left, at.x - at.width / 2);
      top = Math.min(top, at.y - at.height / 2);
    }
    for (const { v, w } of graph.edges()) {
      if (v === "^" || w === "$") continue;
      for (const point of graph.edge(v, w).points) left = Math.min(left, point.x);
    }
    for (const key of graph.nodes()) {
      if (key === "^" || key === "$") continue;
      const at = graph.node(key);
      const box = [key, at.x - at.width / 2 - left, at.y - at.height / 2 - top, at.width, at.height];
      boxes.push(box);
      right = Math.max(right, box[1] + box[3]);
      bottom = Math.max(bottom, box[2] + box[4]);
    }
    for (const { v, w } of graph.edges()) {
      if (v === "^" || w === "$") continue;
      const points = [];
      for (const point of graph.edge(v, w).points) {
        points.push(point.x - left, point.y - top);
        right = Math.max(right, point.x - left);
      }
      lines.push([v, w, points]);
    }
    for (const [from, to] of direct) lines.push([from, to, null]);
  }
  // Items without edges would be one long row: they fill rows below the others.
  if (loose.length) {
    const area = loose.reduce((sum, [, width, height]) => sum + (width + 20) * (height + 20), 0);
    const limit = Math.max(right, Math.sqrt(area * 1.8), 240);
    let x = 0;
    let y = bottom ? bottom + 30 : 0;
    let row = 0;
    for (const [key, width, height] of loose) {
      if (x && x + width > limit) [x, y, row] = [0, y + row + 20, 0];
      boxes.push([key, x, y, width, height]);
      x += width + 20;
      row = Math.max(row, height);
      right = Math.max(right, x - 20);
      bottom = Math.max(bottom, y + height);
    }
  }
  const width = Math.max(right + 2 * pad, least);
  const shift = (width - right) / 2;
  for (const box of boxes) [box[1], box[2]] = [box[1] + shift, box[2] + header + pad];
  for (const [, , points] of lines) {
    for (let at = 0; points && at < points.length; at += 2) [points[at], points[at + 1]] = [points[at] + shift, points[at + 1] + header + pad];
  }
  return { width, height: bottom + header + 2 * pad, boxes, lines, ports };
}
