// Text for people: times, durations, counts. Names reach the page as text nodes only, visible()
// first: what would act on the page's direction or vanish is shown as its escape (names.py).
const HIDDEN = /[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]/g;
const ASTRAL = /[\ud800-\udbff][\udc00-\udfff]/;
const visible = (text) => {
  const escaped = (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0");
  return String(text).split(/([\ud800-\udbff][\udc00-\udfff])/)
    .map((part) => (ASTRAL.test(part) ? part : part.replace(HIDDEN, escaped))).join("");
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

// An element from a tag, properties and children; strings become text nodes, never HTML.
const el = (name, properties = {}, ...children) => {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key in node) node[key] = value; else node.setAttribute(key, value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
};
