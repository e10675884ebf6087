// Text for people: times, durations, counts. Names reach the page as text nodes only, visible()
// first: what acts or cannot be seen is shown as its escape, as names.py does; no two names look alike.
const HIDDEN = /[\\\p{C}\p{Zl}\p{Zp}\xa0\u034f\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f\u2000-\u200a\u202f\u205f\u2800\u3000\u3164\ufe00-\ufe0f\uffa0\u{16fe4}\u{1d159}\u{e0100}-\u{e01ef}]/gu;
const escaped = (c) => {
  const code = c.codePointAt(0).toString(16);
  return c === "\\" ? "\\\\" : code.length > 4 ? "\\U" + code.padStart(8, "0") : "\\u" + code.padStart(4, "0");
};
const visible = (name) => {
  const text = String(name);
  const isDecomposed = (c) => /\p{M}/u.test(c) || c.normalize("NFC") !== c;
  const shown = text.normalize("NFC") === text ? text.replace(HIDDEN, escaped)
    : Array.from(text, (c) => isDecomposed(c) ? escaped(c) : c.replace(HIDDEN, escaped)).join("");
  return shown.replace(/^ +| +$/g, (spaces) => "\\u0020".repeat(spaces.length));
};
const shorten = (text, limit) => {
  const whole = visible(text);
  if (whole.length <= limit) return whole;
  const tail = Math.floor((limit - 1) / 3);
  return whole.slice(0, limit - 1 - tail) + "…" + whole.slice(whole.length - tail);
};
const two = (n) => String(n).padStart(2, "0");
const clock = (ms, step) => {
  const d = new Date(ms);
  const minutes = `${two(d.getUTCHours())}:${two(d.getUTCMinutes())}`;
  if (step >= 86400e3) return `${two(d.getUTCMonth() + 1)}-${two(d.getUTCDate())}`;
  if (step >= 60e3) return minutes;
  const seconds = `${minutes}:${two(d.getUTCSeconds())}`;
  return step >= 1e3 ? seconds : `${seconds}.${String(d.getUTCMilliseconds()).padStart(3, "0")}`;
};
const instant = (ms) => new Date(Math.round(ms)).toISOString();
const whenText = (ms) => instant(ms).replace("T", " ").replace("Z", "");
const lasting = (ms) => {
  if (ms < 1e3) return `${Math.round(ms)} ms`;
  if (ms < 60e3) return `${(ms / 1e3).toFixed(ms < 10e3 ? 2 : 1)} s`;
  if (ms < 3600e3) return `${Math.floor(ms / 60e3)} min ${Math.round((ms % 60e3) / 1e3)} s`;
  if (ms < 86400e3) return `${Math.floor(ms / 3600e3)} h ${Math.round((ms % 3600e3) / 60e3)} min`;
  return `${Math.floor(ms / 86400e3)} d ${Math.round((ms % 86400e3) / 3600e3)} h`;
};
const counted = (n) => n.toLocaleString("en-US");
// As markup.py writes a cell of the table, from milliseconds.
const inSeconds = (ms) => ms >= 100e3 ? counted(Math.round(ms / 1e3)) : ms < 1e3 ? String(Number((ms / 1e3).toPrecision(2))) : (ms / 1e3).toFixed(1);
const bounds = (least, most) => {
  const [low, high] = [inSeconds(least), inSeconds(most)];
  if (low === high) return high;
  return least > 0 ? `${low} to ${high}` : `at most ${high}`; // as the cells of the tables say it
};

// An element from a tag, properties and children; strings become text nodes, never HTML.
const el = (name, properties = {}, ...children) => {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key in node) node[key] = value; else node.setAttribute(key, value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
};
