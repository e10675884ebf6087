// Joins the page: reads payloads, fills the controls, keeps the address in step.
const byId = (id) => document.getElementById(id);
let early = globalThis.holdfast.early;

// The first group's columns are being unpacked while the rest of the page is read.
const readGroup = async (index) => {
  const data = layRows(await readPayload(index === 0 && early ? early : unpack(`group-${index}`)));
  early = null;
  return data;
};
// What the first picture does not need waits until it is on the screen.
const afterPaint = (deed) => requestAnimationFrame(() => requestAnimationFrame(deed));

const startTheme = () => {
  const root = document.documentElement, button = byId("theme");
  const dark = () => (root.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  button.onclick = () => { root.dataset.theme = dark() ? "light" : "dark"; dispatchEvent(new Event("holdfast-ink")); };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => dispatchEvent(new Event("holdfast-ink")));
  byId("print").onclick = () => print();
};

// The address: g group, t moment, w width of the view in seconds, p partition.
const readAddress = () => {
  const words = new URLSearchParams(location.hash.slice(1)), moment = Date.parse(words.get("t") ?? "");
  const wide = Number(words.get("w"));
  return { group: words.get("g"), ms: Number.isFinite(moment) ? moment : null, wide: wide > 0 ? wide * 1e3 : null, row: words.get("p") };
};

const start = async () => {
  const page = readValues("page");
  const timeline = new Timeline(byId("canvas"), byId("overlay"), byId("scroller"), byId("spacer"));
  let current = -1, data = null, written = "", shownMoment = 0, heat = null;
  const say = (text) => { byId("readout").textContent = text; };

  const address = (cursor) => {
    const words = new URLSearchParams({ g: page.groups[current] });
    const ms = cursor ? cursor.ms : (timeline.a + timeline.b) / 2;
    words.set("t", instant(data.t0 + ms));
    words.set("w", String(Math.round(timeline.b - timeline.a) / 1e3));
    if (cursor && cursor.row >= 0) words.set("p", timeline.plainName(cursor.row));
    written = `#${words}`;
    history.replaceState(null, "", written);
  };
  const gestures = new Gestures(timeline, {
    tip: byId("tip"), readout: byId("readout"),
    onPin: (cursor) => { address(cursor); fillMoment(cursor.ms); },
  });

  const legend = () => {
    const shown = data.identities.slice(0, 64).map((name, i) => {
      const swatch = el("span", { className: "swatch" });
      swatch.style.background = page.colours[i % page.colours.length];
      const toggle = () => { timeline.only = timeline.only === i ? -1 : i; light(); gestures.now(); };
      return el("li", {}, el("button", { type: "button", onclick: toggle, "aria-pressed": "false" }, swatch, el("bdi", {}, shorten(name, 40))));
    });
    const rest = data.identities.length - shown.length;
    byId("legend").replaceChildren(...shown, ...(rest > 0 ? [el("li", {}, `and ${counted(rest)} more: search finds them`)] : []));
  };
  const light = () => {
    [...byId("legend").querySelectorAll("button")].forEach((b, i) => b.setAttribute("aria-pressed", String(timeline.only === i)));
  };

  let intervals = null, moment = null;
  const ownerCells = (segment) => {
    const code = data.owner[segment];
    if (code < FIRST_MEMBER) return ["no owner", ""];
    const m = code - FIRST_MEMBER;
    const name = shorten(data.identities[data.member_identity[m]], 40);
    return [el("span", {}, el("bdi", {}, name), data.inGap[segment] ? " (no owner, inferred)" : ""), el("bdi", {}, shorten(data.members[m], 80))];
  };
  const fillIntervals = () => (intervals ??= new PagedTable(byId("intervals"), ["Partition", "Owner", "Member id", "From (UTC)", "To (UTC)", "Seconds"], { name: "Intervals" })).show(data.owner.length, (i) => {
    const row = upperBound(data.rowStart, i) - 1;
    const from = timeline.segmentStart(row, i), to = timeline.segmentEnd(i);
    return [el("bdi", {}, timeline.rowName(row)), ...ownerCells(i), whenText(data.t0 + from), whenText(data.t0 + to), ((to - from) / 1e3).toFixed(3)];
  });
  const fillMoment = (ms) => {
    shownMoment = ms;
    byId("moment-when").textContent = whenText(data.t0 + ms) + " UTC";
    if (byId("moment-box").open) (moment ??= new PagedTable(byId("moment"), ["Partition", "Owner", "Member id", "Since (UTC)"], { name: "Owners at the moment" })).show(timeline.rows, (row) => {
      const i = timeline.segmentAt(row, ms);
      return [el("bdi", {}, timeline.rowName(row)), ...ownerCells(i), whenText(data.t0 + timeline.segmentStart(row, i))];
    });
  };
  const drawLag = (index) => {
    const canvas = document.querySelector(`section.group[data-group="${index}"] canvas.heat`), section = canvas?.closest("section");
    if (!section) { heat = null; return; }
    heat = new HeatMap(section, data);
    heat.draw();
    partitionTable(section, data);
  };
  const whenOpen = (id, fill) => { byId(id).ontoggle = () => { if (byId(id).open) fill(); }; };

  const showGroup = async (index) => {
    data = await readGroup(index);
    current = index;
    byId("group").value = String(index);
    for (const part of document.querySelectorAll("section.group")) part.hidden = part.dataset.group !== String(index);
    timeline.show(data, page.colours);
    gestures.pinned = false; timeline.cursor = null; timeline.scroller.scrollTop = 0;
    gestures.lastHour();
    // A task later, the rest of the page is laid out: the heat map is as wide as its place.
    afterPaint(() => setTimeout(() => { if (current === index) { legend(); light(); drawLag(index); } }));
    if (byId("intervals-box").open) fillIntervals();
    fillMoment(data.span);
  };

  // Of a served page: a newer one of the same group takes its place, under the view of now.
  globalThis.holdfast.renew = async (newer) => {
    const { cursor, scroller } = timeline, { t0 } = data, top = scroller.scrollTop, whole = timeline.a <= 0 && timeline.b >= data.span;
    const a = t0 + timeline.a, b = t0 + timeline.b, pinned = gestures.pinned && cursor ? { ms: t0 + cursor.ms, row: timeline.plainName(cursor.row) } : null;
    for (const { id, textContent } of newer.querySelectorAll('script[type="application/octet-stream"]')) byId(id).textContent = textContent;
    for (const part of [byId("window"), byId("first"), byId("figures"), ...document.querySelectorAll("section.group")]) {
      const fresh = newer.getElementById(part.id), open = new Set([...part.querySelectorAll("details[open] > summary")].map((s) => s.textContent));
      for (const summary of fresh.querySelectorAll("details > summary")) summary.parentElement.open = open.has(summary.textContent);
      part.replaceWith(fresh);
      dressTables(fresh);
    }
    await showGroup(current);
    if (!whole) gestures.moveTo(a - data.t0, b - data.t0);
    scroller.scrollTop = top;
    const row = pinned ? [...Array(timeline.rows).keys()].find((r) => timeline.plainName(r) === pinned.row) : undefined;
    if (row === undefined || pinned.ms < data.t0) return;
    gestures.set(pinned.ms - data.t0, row);
    gestures.pinned = true;
    fillMoment(pinned.ms - data.t0);
  };

  const followAddress = async () => {
    if (location.hash === written && written) return;
    const wanted = readAddress();
    if (wanted.group === null && current >= 0) return; // a link to another place of the page
    const again = current >= 0, index = Math.max(0, page.groups.indexOf(wanted.group ?? page.groups[0]));
    if (index !== current) await showGroup(index);
    if (wanted.ms === null) {
      if (again) document.querySelector(`section.group[data-group="${index}"]`).scrollIntoView();
      return;
    }
    const ms = wanted.ms - data.t0, wide = wanted.wide ?? (timeline.b - timeline.a);
    let row = 0;
    while (row < timeline.rows && timeline.plainName(row) !== wanted.row) row++;
    if (ms < 0 || ms > data.span) { say("The link points outside the time that this report covers."); return; }
    gestures.moveTo(ms - wide / 2, ms + wide / 2);
    gestures.set(ms, row < timeline.rows ? row : timeline.firstRow());
    gestures.pinned = true;
    fillMoment(ms);
  };

  const find = (event) => {
    const text = byId("find").value.trim().toLowerCase();
    timeline.marks.clear();
    timeline.only = -1;
    if (text) {
      for (let r = 0; r < timeline.rows; r++) if (timeline.rowName(r).toLowerCase().includes(text)) timeline.marks.add(r);
      const who = data.members.findIndex((id, m) => id.toLowerCase().includes(text) || data.identities[data.member_identity[m]].toLowerCase().includes(text));
      if (who >= 0) timeline.only = data.member_identity[who];
    }
    light();
    const rows = [...timeline.marks], seen = timeline.cursor ? rows.findIndex((r) => r > timeline.cursor.row) : 0;
    if (rows.length && (event?.key === "Enter" || rows.length < timeline.rows)) {
      gestures.set(timeline.cursor?.ms ?? (timeline.a + timeline.b) / 2, rows[event?.key === "Enter" ? Math.max(0, seen) : 0]);
    } else gestures.now();
    const found = [rows.length ? `${counted(rows.length)} partitions` : "", timeline.only >= 0 ? `member ${shorten(data.identities[timeline.only], 40)}` : ""].filter(Boolean);
    byId("found").textContent = text ? found.join(" and ") || "nothing found" : "";
  };

  page.groups.forEach((name, i) => byId("group").append(el("option", { value: String(i) }, shorten(name, 80))));
  byId("group").parentElement.hidden = page.groups.length < 2;
  byId("group").onchange = () => showGroup(Number(byId("group").value)).then(() => address(null));
  byId("find").oninput = find;
  byId("find").onkeydown = (event) => { if (event.key === "Enter") find(event); };
  byId("zoom-in").onclick = () => gestures.zoom(0.5);
  byId("zoom-out").onclick = () => gestures.zoom(2);
  byId("earlier").onclick = () => gestures.pan(-0.5);
  byId("later").onclick = () => gestures.pan(0.5);
  byId("all").onclick = () => gestures.all();
  byId("taller").onclick = () => gestures.taller(1.4);
  byId("flatter").onclick = () => gestures.taller(0.7);
  byId("link").onclick = async () => {
    address(timeline.cursor);
    const done = await navigator.clipboard?.writeText(location.href).then(() => true, () => false);
    say(done ? "The link is on the clipboard." : "The address of this page now leads to this view.");
  };
  whenOpen("intervals-box", fillIntervals);
  whenOpen("moment-box", () => fillMoment(shownMoment));
  document.addEventListener("click", (event) => {
    const at = event.target.closest?.("[data-moment]");
    if (!at) return;
    const ms = Number(at.dataset.moment) - data.t0, wide = Math.min(data.span, Math.max(Number(at.dataset.wide) * 6, data.span / 50));
    gestures.moveTo(ms - wide / 2, ms + wide / 2);
    gestures.set(ms, timeline.cursor?.row ?? timeline.firstRow());
    gestures.pin();
    byId("scroller").scrollIntoView({ block: "nearest" });
    byId("scroller").focus({ preventScroll: true });
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) { event.preventDefault(); byId("find").focus(); }
  });
  const again = () => { if (data) { const { a, b } = timeline; timeline.measure(); gestures.moveTo(a, b); heat?.draw(); } };
  addEventListener("resize", again);
  addEventListener("holdfast-ink", again);
  addEventListener("beforeprint", again);
  addEventListener("afterprint", again);
  addEventListener("hashchange", followAddress);

  await followAddress();
};

const dressTables = (part) => {
  for (const table of part.querySelectorAll("table.jumps")) makeJumps(table);
  for (const table of part.querySelectorAll("table.sortable")) makeSortable(table);
};
const finish = () => {
  document.documentElement.classList.remove("wait");
  startTheme();
  dressTables(document);
};
whenParsed.then(async () => {
  if (!byId("page")) return finish();
  await start();
  afterPaint(() => {
    performance.measure("holdfast-first-draw", { start: STARTED });
    performance.measure("holdfast-first-draw-from-navigation", { start: 0 });
    finish();
  });
}).catch(fail);
