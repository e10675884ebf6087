// Gestures on the timeline: pointer, wheel, keyboard. Every change goes through moveTo, which draws.
const HOUR_MS = 3_600_000;
class Gestures {
  constructor(timeline, { tip, readout, onPin }) {
    Object.assign(this, { timeline, tip, readout, onPin, pinned: false, drag: null, frame: 0 });
    const { scroller } = timeline;
    scroller.addEventListener("scroll", () => this.later(), { passive: true });
    scroller.addEventListener("wheel", (e) => this.wheel(e), { passive: false });
    scroller.addEventListener("pointerdown", (e) => this.press(e));
    scroller.addEventListener("pointermove", (e) => this.move(e));
    scroller.addEventListener("pointerup", (e) => this.release(e));
    scroller.addEventListener("pointercancel", () => { this.drag = null; });
    scroller.addEventListener("pointerleave", () => this.leave());
    scroller.addEventListener("dblclick", (e) => this.zoom(0.4, this.local(e).x));
    scroller.addEventListener("keydown", (e) => this.key(e));
  }

  local(event) {
    const box = this.timeline.canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  }

  later() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => { this.frame = 0; this.now(); });
  }
  now() { this.timeline.draw(); this.timeline.drawCursor(); }

  // Show [a, b] ms, kept inside the known window with a small margin and never under 1 ms.
  moveTo(a, b) {
    const t = this.timeline, full = Math.max(t.data.span, 1), margin = full * 0.02;
    const wide = Math.min(Math.max(b - a, 1), full + 2 * margin);
    const middle = (a + b) / 2;
    let low = Math.min(Math.max(middle - wide / 2, -margin), full + margin - wide);
    if (wide >= full) low = Math.max(Math.min(low, 0), full - wide);
    const started = performance.now();
    t.a = low; t.b = low + wide;
    this.now();
    performance.measure("holdfast-redraw", { start: started, end: performance.now() });
  }
  zoom(factor, x = null) {
    const t = this.timeline;
    const at = x === null || x < t.gutter ? (t.cursor && t.cursor.ms > t.a && t.cursor.ms < t.b ? t.cursor.ms : (t.a + t.b) / 2) : t.time(x);
    const wide = (t.b - t.a) * factor;
    const full = Math.max(t.data.span, 1);
    if (wide >= full) this.moveTo(0, full);
    else this.moveTo(at - (at - t.a) * factor, at + (t.b - at) * factor);
  }
  pan(share) {
    const t = this.timeline, by = (t.b - t.a) * share;
    this.moveTo(t.a + by, t.b + by);
  }
  // What somebody who has just opened the page asks about; all of it where that is not much more.
  lastHour() {
    const { span } = this.timeline.data;
    if (span <= 2 * HOUR_MS) this.all(); else this.moveTo(span - HOUR_MS, span);
  }
  all() { this.moveTo(0, Math.max(this.timeline.data.span, 1)); }
  taller(factor) {
    const t = this.timeline, top = t.firstRow();
    t.rowHeight = Math.min(MAX_ROW, Math.max(MIN_ROW, Math.round(t.rowHeight * factor) || MIN_ROW));
    t.measure();
    t.scroller.scrollTop = top * t.rowHeight;
    this.now();
  }

  wheel(event) {
    const { x } = this.local(event);
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      this.zoom(Math.exp(Math.sign(event.deltaY) * Math.min(Math.abs(event.deltaY), 100) / 400), x);
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      this.pan((event.deltaX || event.deltaY) / this.timeline.plotWidth);
    }
  }
  press(event) {
    if (event.button !== 0 || event.clientX > this.timeline.scroller.getBoundingClientRect().left + this.timeline.width) return;
    const { x, y } = this.local(event);
    this.drag = { x, y, a: this.timeline.a, b: this.timeline.b, top: this.timeline.scroller.scrollTop, far: false, id: event.pointerId };
  }
  move(event) {
    const { x, y } = this.local(event), { drag, timeline: t } = this;
    if (drag) {
      if (!drag.far && Math.abs(x - drag.x) + Math.abs(y - drag.y) < 4) return;
      if (!drag.far) t.scroller.setPointerCapture(drag.id);
      drag.far = true;
      this.hideTip();
      const by = (drag.x - x) / t.plotWidth * (drag.b - drag.a);
      t.scroller.scrollTop = drag.top + drag.y - y;
      this.moveTo(drag.a + by, drag.b + by);
    } else if (!this.pinned) this.point(x, y);
    else this.showTip(this.describe(t.rowAt(y), t.time(x)), x, y);
  }
  release(event) {
    const { drag } = this;
    this.drag = null;
    if (!drag || drag.far) return;
    const { x, y } = this.local(event);
    this.pinned = false;
    this.point(x, y);
    this.pin();
  }
  pin() {
    this.pinned = Boolean(this.timeline.cursor);
    if (this.pinned) this.onPin(this.timeline.cursor);
  }
  leave() {
    this.hideTip();
    if (this.pinned) return;
    this.timeline.cursor = null;
    this.timeline.drawCursor();
  }

  point(x, y) {
    const t = this.timeline, row = t.rowAt(y), ms = t.time(x);
    const inside = x >= t.gutter && x < t.width && ms >= 0 && ms <= t.data.span && row < t.rows;
    t.cursor = inside && y < t.height ? { ms, row } : null;
    t.drawCursor();
    if (t.cursor) this.showTip(this.describe(row, ms), x, y); else this.hideTip();
  }
  set(ms, row) {
    const t = this.timeline;
    t.cursor = { ms: Math.min(Math.max(ms, 0), t.data.span), row: Math.min(Math.max(row, 0), t.rows - 1) };
    const top = t.cursor.row * t.rowHeight, seen = t.scroller.scrollTop;
    if (top < seen || top + t.rowHeight > seen + t.plotHeight) t.scroller.scrollTop = top - t.plotHeight / 2;
    if (t.cursor.ms < t.a || t.cursor.ms > t.b) this.moveTo(t.cursor.ms - (t.b - t.a) / 2, t.cursor.ms + (t.b - t.a) / 2);
    else this.now();
    this.readout.textContent = this.describe(t.cursor.row, t.cursor.ms).join(" · ");
  }

  // Lines of text about a row at a moment; row -1 is the axis.
  describe(row, ms) {
    const t = this.timeline, { data } = t;
    const lines = [whenText(data.t0 + ms) + " UTC"];
    const g = upperBound(data.genTimes, ms) - 1;
    if (row >= 0 && row < t.rows) {
      const i = t.segmentAt(row, ms), from = t.segmentStart(row, i), to = t.segmentEnd(i);
      const length = `${lasting(to - from)} from ${clock(data.t0 + from, 1)}`;
      const code = data.owner[i];
      lines.unshift(t.rowName(row));
      if (code === NOBODY) lines.push(`no owner for ${length}`);
      else lines.push(`owner ${this.memberText(code - FIRST_MEMBER)}`, data.inGap[i] ? `no owner, at most ${length} (inferred)` : `for ${length}`);
    }
    if (g >= 0) {
      const cause = data.causes[data.gen_cause[g]];
      const shift = row < 0 && data.gen_moved[g] ? `, ${counted(data.gen_moved[g])} moved` : "";
      lines.push(`generation ${data.gen_number[g]}, ${counted(data.gen_members[g])} members${cause ? `, ${visible(cause)}` : ""}${shift}`);
      if (row < 0) lines.push(`downtime ${bounds(data.gen_downtime_least[g], data.gen_downtime_most[g])} partition-seconds`);
    }
    return lines;
  }
  memberText(m) {
    const { data } = this.timeline, label = shorten(data.identities[data.member_identity[m]], 60);
    const id = shorten(data.members[m], 90), host = data.hosts[data.member_host[m]];
    return (label === id ? id : `${label} (${id})`) + (host ? ` on ${shorten(host, 40)}` : "");
  }
  showTip(lines, x, y) {
    const { tip, timeline: t } = this;
    tip.replaceChildren(...lines.map((line, i) => el(i ? "div" : "strong", {}, line)));
    tip.hidden = false;
    const left = x + 16 + tip.offsetWidth > t.width ? x - tip.offsetWidth - 12 : x + 16;
    tip.style.transform = `translate(${Math.max(0, left)}px, ${y + 18}px)`;
    this.readout.textContent = lines.join(" · ");
  }
  hideTip() { this.tip.hidden = true; }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const t = this.timeline, { data } = t;
    const cursor = t.cursor ?? { ms: (Math.max(t.a, 0) + Math.min(t.b, data.span)) / 2, row: t.firstRow() };
    const step = (t.b - t.a) * (event.shiftKey ? 0.2 : 0.02);
    const nextGen = (by) => {
      const g = upperBound(data.genTimes, cursor.ms) - 1 + by;
      return data.genTimes[Math.min(Math.max(g, 0), data.genTimes.length - 1)] ?? 0;
    };
    const deeds = {
      ArrowLeft: () => this.set(cursor.ms - step, cursor.row), ArrowRight: () => this.set(cursor.ms + step, cursor.row),
      ArrowUp: () => this.set(cursor.ms, cursor.row - 1), ArrowDown: () => this.set(cursor.ms, cursor.row + 1),
      PageUp: () => this.set(cursor.ms, cursor.row - 20), PageDown: () => this.set(cursor.ms, cursor.row + 20),
      Home: () => this.set(0, cursor.row), End: () => this.set(data.span, cursor.row),
      "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2), 0: () => this.all(),
      a: () => this.pan(-0.25), d: () => this.pan(0.25),
      n: () => this.set(nextGen(1), cursor.row), p: () => this.set(nextGen(-1) - 1e-6, cursor.row),
      "]": () => this.taller(1.4), "[": () => this.taller(0.7),
      Enter: () => { t.cursor = cursor; this.pin(); },
      Escape: () => { this.pinned = false; t.cursor = null; this.hideTip(); t.drawCursor(); },
    };
    if (!Object.hasOwn(deeds, event.key)) return;
    event.preventDefault();
    deeds[event.key]();
  }
}
