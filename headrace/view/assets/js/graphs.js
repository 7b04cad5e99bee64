// Graphs without a run: the document of a graph as a recording without tokens, so that all parts of the page read it.

const GRAPH_FORMAT = "headrace-graph";
const COLUMNS = {
  tokens: { node: "u4", tag: "u4", begin: "f8", end: "f8", dead: "u1", cause: "u4", value: "u4", device: "u4", waited: "u1" },
  values: { dtype: "u4", shape: "u4", min: "f8", max: "f8", mean: "f8", nans: "u4", bytes: "f8", elements: "u4" },
  iterations: { tag: "u4", open: "f8", close: "f8", held_by: "u4", device: "u4" },
  crossings: { edge: "u4", tag: "u4", from: "u4", to: "u4", sent: "f8", received: "f8", dead: "u1" },
};

function emptyColumn(dtype) {
  return { dtype, n: 0, base64: "" };
}

/** A recording without tokens, of { devices, files, frames, nodes }. */
function withoutRun(program) {
  const raw = {
    format: "headrace-recording", version: 2, headrace: program.headrace, title: program.title, facts: program.facts || [],
    problems: program.problems || [], leftOut: program.left_out || 0,
    step: { number: 0, seconds: 0, error: null, fetches: [], feeds: [] },
    strings: [], tags: [{ frame: 0, iteration: 0, parent: -1, text: "" }], causes: [], stages: [], critical: emptyColumn("u4"),
    stage_graphs: { frames: [], parts: [], devices: [], nodes: [], graphs: [], note: "" },
    devices: program.devices, files: program.files, frames: program.frames, nodes: program.nodes,
  };
  for (const [table, columns] of Object.entries(COLUMNS)) {
    raw[table] = Object.fromEntries(Object.entries(columns).map(([name, dtype]) => [name, emptyColumn(dtype)]));
  }
  return new Recording(raw);
}

/** The recording of a document of either kind. */
function recordingOf(raw) {
  if (!raw || raw.format !== GRAPH_FORMAT) return new Recording(raw);
  if (raw.version !== 1) throw new RecordingError(`the graph has version ${raw.version}; this page reads version 1`);
  return withoutRun(raw);
}

/** The lines about a graph in the inspector, and the errors of its analysis. */
function graphFacts({ facts, problems, leftOut }) {
  const lines = facts.map(([name, text]) => [name, text]);
  if (leftOut) lines.push(["not drawn", `${plural(leftOut, "operation")}; headrace inspect --html --full draws all`]);
  return { lines, problems };
}
