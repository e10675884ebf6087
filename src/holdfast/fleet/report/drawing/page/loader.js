// Runs first: unpacks the page's script and the first group's columns while the rest is read.
// The policy names this script and the one inside the payload "app", each by its hash.
const byId = (id) => document.getElementById(id);
const root = document.documentElement;
// 13 bits in two characters of 91, "#" to "~" without "<"; the writer is payload.py.
const bytesOf = (text) => {
  const odd = text.length & 1, last = text.length - odd, out = new Uint8Array((last / 2 * 13 >> 3) - odd);
  const codes = new TextEncoder().encode(text);
  for (let i = 0, at = 0, bits = 0, n = 0; i < last; i += 2) {
    const a = codes[i], b = codes[i + 1];
    bits |= (a - (a > 60 ? 36 : 35)) * 91 + b - (b > 60 ? 36 : 35) << n;
    out[at++] = bits; bits >>= 8; n += 5;
    if (n > 7) { out[at++] = bits; bits >>= 8; n -= 8; }
  }
  return out;
};
const unpack = async (id) => {
  const { readable, writable } = new DecompressionStream("gzip"), writer = writable.getWriter();
  writer.write(bytesOf(byId(id).textContent)).then(() => writer.close()).catch(() => {});
  return new Uint8Array(await new Response(readable).arrayBuffer());
};
const whenParsed = new Promise((done) => {
  if (document.readyState === "loading") addEventListener("DOMContentLoaded", done); else done();
});
const fail = (error) => {
  root.classList.remove("wait");
  console.error(error);
  if (byId("readout")) byId("readout").textContent = `This picture could not be drawn: ${error.message}`;
};
const begin = async () => {
  root.classList.add("js");
  const holdfast = globalThis.holdfast = { started: performance.now(), unpack, bytesOf, whenParsed, fail };
  if (byId("page")) {
    root.classList.add("wait");
    holdfast.early = unpack("group-0");
  }
  const script = document.createElement("script");
  script.textContent = new TextDecoder().decode(await unpack("app"));
  document.head.append(script);
  if (!holdfast.runs) throw new Error("the script in this file is not its own");
};
begin().catch((error) => whenParsed.then(() => fail(error)));
