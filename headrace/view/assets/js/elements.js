// Elements of the document, colors of the theme, and the tooltip. Text of a recording becomes text nodes only.

function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}

function byId(id) {
  return document.getElementById(id);
}

const theme = {};

/** Reads the colors of the style sheet, for the canvases. */
function readTheme() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["page", "panel", "card", "line", "strong", "text", "muted", "faint", "live", "current", "selected",
    "dead", "critical", "loop", "branch", "function", "scope", "edge", "wash", "found", "added", "removed", "changed"]) {
    theme[name] = style.getPropertyValue(`--${name}`).trim();
  }
  theme.sans = style.getPropertyValue("--sans").trim();
  theme.mono = style.getPropertyValue("--mono").trim();
}

/** Gives a canvas the size of its element in device pixels, and returns its context in CSS pixels. */
function prepare(canvas) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  const height = canvas.clientHeight;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

const tooltip = {
  show(x, y, lines) {
    const box = byId("tooltip");
    box.replaceChildren(...lines.filter(Boolean).map(([kind, text]) => el("div", { class: kind }, text)));
    box.hidden = false;
    const { width, height } = box.getBoundingClientRect();
    box.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - width - 8))}px`;
    box.style.top = `${y + 18 + height > innerHeight - 4 ? Math.max(4, y - height - 12) : y + 18}px`;
  },
  hide() {
    byId("tooltip").hidden = true;
  },
};

/** Text shortened to a width, with memory: the same names are measured again and again. */
const fitted = new Map();
function fit(context, text, width) {
  const key = `${context.font}|${Math.round(width)}|${text}`;
  let found = fitted.get(key);
  if (found === undefined) {
    found = text;
    if (context.measureText(text).width > width) {
      let [from, to] = [0, text.length];
      while (from < to) {
        const middle = (from + to + 1) >>> 1;
        if (context.measureText(`${text.slice(0, middle)}…`).width <= width) from = middle;
        else to = middle - 1;
      }
      found = from ? `${text.slice(0, from)}…` : "";
    }
    if (fitted.size > 20000) fitted.clear();
    fitted.set(key, found);
  }
  return found;
}
