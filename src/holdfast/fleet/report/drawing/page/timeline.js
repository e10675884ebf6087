// The ownership timeline: what is drawn. Gestures are in gestures.js.
// Rows are CSR (rowStart) over segments; a segment ends where the next begins, at segTo (ms).
// Owner codes: 0 no owner (left to the hatching), 1 + member. A segment in a gap is drawn as a gap
// with a breath of its owner's colour: it is an upper bound, the owner may still have been at work.
const NOBODY = 0, FIRST_MEMBER = 1, PALE = 0.16;
const AXIS = 34, STOOD = 30, MIN_ROW = 3, MAX_ROW = 26, MAX_PLOT = 620;
const TICKS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 10e3, 15e3, 30e3, 60e3, 120e3,
  300e3, 600e3, 900e3, 1800e3, 3600e3, 7200e3, 14400e3, 21600e3, 43200e3, 86400e3, 172800e3,
  604800e3, 1209600e3, 2592000e3, 7776000e3, 31536000e3];

// Unfolds the payload: each segment's pause becomes a segment of its own behind it.
const layRows = (data) => {
  const { edge, row_segments: counts, seg_owner: owner, seg_step: step, seg_gap: pause } = data;
  const rows = counts.length, folded = owner.length;
  let count = folded;
  for (let i = 0; i < folded; i++) if (pause[i]) count++;
  data.rowStart = new Int32Array(rows + 1);
  data.segTo = new Float64Array(count);
  data.owner = new Int32Array(count);
  data.inGap = new Uint8Array(count);
  let out = 0, i = 0;
  for (let r = 0; r < rows; r++) {
    let at = 0;
    for (let k = 0; k < counts[r]; k++, i++) {
      at += step[i];
      data.segTo[out] = edge[at] - pause[i];
      data.owner[out++] = owner[i];
      if (pause[i]) { data.segTo[out] = edge[at]; data.inGap[out] = 1; data.owner[out++] = owner[i]; }
    }
    data.rowStart[r + 1] = out;
  }
  data.span = edge.length ? edge[edge.length - 1] : 1;
  data.genTimes = Float64Array.from(data.gen_edge, (e) => edge[e]);
  return data;
};

class Timeline {
  constructor(canvas, overlay, scroller, spacer) {
    Object.assign(this, { canvas, overlay, scroller, spacer, marks: new Set(), only: -1, cursor: null });
    this.paper = document.createElement("canvas");
    this.a = 0; this.b = 1; this.gutter = 120; this.rowHeight = 12;
  }

  show(data, colours) {
    this.data = data;
    this.rows = data.row_number.length;
    this.rowNames = new Array(this.rows);
    this.marks.clear();
    this.only = -1;
    this.colours = colours;
    this.a = 0; this.b = Math.max(data.span, 1);
    this.rowHeight = Math.min(MAX_ROW, Math.max(MIN_ROW, Math.floor(MAX_PLOT * 0.75 / Math.max(1, this.rows))));
    this.measure();
  }

  // As the group's own tools name it; a connector itself has no number.
  plainName(row) {
    const data = this.data, topic = data.topics[data.row_topic[row]], number = data.row_number[row];
    return number ? `${topic}${data.joint}${number - 1}` : topic;
  }

  rowName(row) {
    return this.rowNames[row] ??= visible(this.plainName(row));
  }

  // Sizes of everything; called when the window or the row height changes.
  measure() {
    const width = this.scroller.clientWidth || 900;
    this.ratio = window.devicePixelRatio || 1;
    this.plotHeight = Math.min(MAX_PLOT, Math.max(this.rows, 1) * this.rowHeight);
    this.width = width;
    this.height = AXIS + this.plotHeight + STOOD;
    this.scroller.style.height = `${this.height}px`;
    this.spacer.style.height = `${AXIS + this.rows * this.rowHeight + STOOD}px`;
    for (const c of [this.canvas, this.overlay]) {
      c.width = Math.round(width * this.ratio); c.height = Math.round(this.height * this.ratio);
      c.style.width = `${width}px`; c.style.height = `${this.height}px`;
    }
    const g = this.canvas.getContext("2d");
    g.font = this.font(11);
    let longest = "";
    for (let r = 0, step = Math.max(1, Math.floor(this.rows / 50)); r < this.rows; r += step) {
      const name = shorten(this.rowName(r), 28);
      if (name.length >= longest.length) longest = name;
    }
    this.gutter = Math.ceil(Math.min(Math.max(66, g.measureText(longest).width) + 16, width * 0.3));
    this.plotWidth = Math.max(50, width - this.gutter - 1);
    this.inks();
  }

  font(size) { return `${size}px system-ui, "Segoe UI", "Liberation Sans", sans-serif`; }

  inks() {
    const style = getComputedStyle(document.documentElement);
    this.ink = {};
    for (const name of ["surface", "ink", "muted", "line", "hatch", "gap", "accent"]) {
      this.ink[name] = style.getPropertyValue(`--${name}`).trim();
    }
    const tile = document.createElement("canvas"), size = Math.round(8 * this.ratio);
    tile.width = tile.height = size;
    const t = tile.getContext("2d");
    t.strokeStyle = this.ink.hatch;
    t.lineWidth = 1.2 * this.ratio;
    t.beginPath();
    for (const shift of [-size, 0, size]) { t.moveTo(shift, size); t.lineTo(shift + size, 0); }
    t.stroke();
    this.tile = tile;
    this.words = new Uint32Array(this.colours.length);
    this.colours.forEach((hex, i) => { this.words[i] = packed(hex); });
    this.gaps = new Uint32Array(this.colours.length);
    this.colours.forEach((hex, i) => { this.gaps[i] = packed(mixed(hex, this.ink.gap, PALE)); });
  }

  x(ms) { return this.gutter + (ms - this.a) / (this.b - this.a) * this.plotWidth; }
  time(x) { return this.a + (x - this.gutter) / this.plotWidth * (this.b - this.a); }
  firstRow() { return Math.floor(this.scroller.scrollTop / this.rowHeight); }
  rowAt(y) { return y < AXIS || y >= AXIS + this.plotHeight ? -1 : Math.floor((y - AXIS + this.scroller.scrollTop) / this.rowHeight); }

  // Segment of a row at a time, or -1 outside the known window.
  segmentAt(row, ms) {
    const { data } = this;
    if (row < 0 || row >= this.rows || ms < 0 || ms > data.span) return -1;
    const high = data.rowStart[row + 1];
    return Math.min(upperBound(data.segTo, ms, data.rowStart[row], high), high - 1);
  }
  segmentStart(row, i) { return i === this.data.rowStart[row] ? 0 : this.data.segTo[i - 1]; }
  segmentEnd(i) { return this.data.segTo[i]; }

  draw() {
    const g = this.canvas.getContext("2d"), { ratio } = this;
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.fillStyle = this.ink.surface;
    g.fillRect(0, 0, this.width, this.height);
    this.drawRows(g);
    this.drawGenerations(g);
    this.drawStood(g);
    this.drawGutter(g);
    this.drawAxis(g);
  }

  drawRows(g) {
    const first = this.firstRow(), shift = this.scroller.scrollTop - first * this.rowHeight;
    const count = Math.min(this.rows - first, Math.ceil((this.plotHeight + shift) / this.rowHeight));
    if (count <= 0) return;
    const wide = Math.max(1, Math.round(this.plotWidth * this.ratio));
    const image = new ImageData(wide, count), pixels = new Uint32Array(image.data.buffer);
    this.labels = [];
    for (let r = 0; r < count; r++) this.paintRow(first + r, pixels, r * wide, wide);
    this.paper.width = wide; this.paper.height = count;
    this.paper.getContext("2d").putImageData(image, 0, 0);
    g.save();
    g.beginPath(); g.rect(this.gutter, AXIS, this.plotWidth, this.plotHeight); g.clip();
    g.fillStyle = g.createPattern(this.tile, "repeat");
    g.setTransform(1, 0, 0, 1, 0, 0);
    const k = this.ratio;
    g.fillRect(this.gutter * k, AXIS * k, this.plotWidth * k, this.plotHeight * k);
    g.setTransform(k, 0, 0, k, 0, 0);
    g.imageSmoothingEnabled = false;
    g.drawImage(this.paper, this.gutter, AXIS - shift, this.plotWidth, count * this.rowHeight);
    if (this.rowHeight >= 5) {
      g.fillStyle = this.ink.surface;
      const gap = this.rowHeight >= 10 ? 2 : 1;
      for (let r = 1; r <= count; r++) g.fillRect(this.gutter, AXIS - shift + r * this.rowHeight - gap, this.plotWidth, gap);
    }
    this.drawLabels(g, first, shift);
    g.restore();
  }

  // One row of pixels. A pause keeps at least one pixel while its neighbours have three.
  paintRow(row, pixels, base, wide) {
    const { data, a, b } = this, { segTo, owner, inGap } = data;
    const high = data.rowStart[row + 1], scale = wide / (b - a), dim = this.only >= 0;
    let i = this.segmentAt(row, Math.max(0, a));
    if (i < 0) return;
    let x0 = Math.max(0, Math.round((this.segmentStart(row, i) - a) * scale));
    for (; i < high && x0 < wide; i++) {
      let x1 = Math.round((segTo[i] - a) * scale);
      const code = owner[i];
      const who = code < FIRST_MEMBER ? -1 : data.member_identity[code - FIRST_MEMBER];
      if (inGap[i] && x1 === x0 && x0 > 0 && x0 + 1 < wide) {
        if (pixels[base + x0 - 1] === (x0 > 2 ? pixels[base + x0 - 3] : -1)) pixels[base + x0 - 1] = this.gaps[who % this.gaps.length];
        continue;
      }
      if (x1 <= x0) continue;
      if (x1 > wide) x1 = wide;
      if (inGap[i]) pixels.fill(this.gaps[who % this.gaps.length], base + x0, base + x1);
      else if (who >= 0) {
        let word = this.words[who % this.words.length];
        if (dim && who !== this.only) word = (word & 0xffffff) | 0x38000000;
        pixels.fill(word, base + x0, base + x1);
        if (x1 - x0 > 44 * this.ratio && this.labels.length < 400) this.labels.push(row, who, x0 / this.ratio, x1 / this.ratio);
      }
      x0 = x1;
    }
  }

  drawLabels(g, first, shift) {
    if (this.rowHeight < 13) return;
    g.font = this.font(11);
    g.textBaseline = "middle";
    const { labels, data } = this;
    for (let k = 0; k < labels.length; k += 4) {
      const [row, who, x0, x1] = labels.slice(k, k + 4);
      if (this.only >= 0 && who !== this.only) continue;
      const text = shorten(data.identities[who], 24);
      if (g.measureText(text).width > x1 - x0 - 10) continue;
      g.fillStyle = inkOn(this.colours[who % this.colours.length]);
      g.fillText(text, this.gutter + x0 + 5, AXIS - shift + (row - first + 0.5) * this.rowHeight - 0.5);
    }
  }

  // Generations as vertical lines, at most one every two pixels.
  drawGenerations(g) {
    const { genTimes, gen_number: number } = this.data;
    const shown = [];
    g.font = this.font(9.5);
    g.textBaseline = "alphabetic";
    g.fillStyle = this.ink.muted;
    let free = this.gutter;
    for (let i = 0, last = -9; i < genTimes.length; i++) {
      const x = this.x(genTimes[i]);
      if (x < this.gutter || x > this.width || x - last < 2) continue;
      shown.push(x);
      last = x;
      if (x < free) continue;
      const text = String(number[i]), room = g.measureText(text).width + 8;
      if (x + room < this.width) { g.fillText(text, x + 3, AXIS - 3); free = x + room; }
    }
    const crowded = shown.length > this.plotWidth / 14;
    g.fillStyle = this.ink.ink;
    g.globalAlpha = crowded ? 0.22 : 0.6;
    for (const x of shown) g.fillRect(Math.round(x), crowded ? AXIS : AXIS - 7, 1, this.height);
    g.globalAlpha = 1;
  }

  // What each rebalance cost, in the unit of the table: solid at least, pale at most so many
  // partition-seconds. Rebalances that are nearer to each other than a bar is wide share one.
  drawStood(g) {
    const { genTimes, gen_downtime_least: least, gen_downtime_most: most } = this.data, wide = 4;
    const top = AXIS + this.plotHeight + 4, high = STOOD - 5, bars = new Map();
    g.fillStyle = this.ink.surface;
    g.fillRect(0, top - 4, this.width, STOOD);
    let highest = 0;
    for (let i = upperBound(genTimes, this.a - 1); i < genTimes.length && genTimes[i] <= this.b; i++) {
      const at = Math.floor((this.x(genTimes[i]) - this.gutter) / wide), bar = bars.get(at) ?? [0, 0];
      bars.set(at, [bar[0] + least[i], bar[1] + most[i]]);
      highest = Math.max(highest, bar[1] + most[i]);
    }
    g.fillStyle = this.ink.accent;
    for (const [at, both] of bars) both.forEach((ms, k) => {
      const tall = ms ? Math.max(1, high * ms / highest) : 0;
      g.globalAlpha = k ? 0.35 : 1;
      g.fillRect(this.gutter + at * wide, top + high - tall, wide - 1, tall);
    });
    g.globalAlpha = 1;
    g.fillStyle = this.ink.muted;
    g.font = this.font(9.5);
    g.textBaseline = "alphabetic";
    g.textAlign = "right";
    g.fillText("downtime", this.gutter - 7, top + 10);
    if (highest) g.fillText(`up to ${inSeconds(highest)}`, this.gutter - 7, top + high - 2);
    g.textAlign = "left";
  }

  drawGutter(g) {
    g.fillStyle = this.ink.surface;
    g.fillRect(0, AXIS, this.gutter, this.plotHeight);
    g.font = this.font(11);
    g.textBaseline = "middle";
    g.textAlign = "right";
    const every = Math.max(1, Math.ceil(13 / this.rowHeight)), first = this.firstRow();
    for (let r = Math.ceil(first / every) * every; r < this.rows; r += every) {
      const y = AXIS + (r + 0.5) * this.rowHeight - this.scroller.scrollTop;
      if (y > AXIS + this.plotHeight) break;
      if (y < AXIS) continue;
      const marked = this.marks.has(r);
      g.fillStyle = marked ? this.ink.accent : this.ink.muted;
      g.fillText(fitted(g, this.rowName(r), this.gutter - 14), this.gutter - 7, y);
      if (every > 1) g.fillRect(this.gutter - 4, y - 0.5, 4, 1);
    }
    g.fillStyle = this.ink.accent;
    for (const r of this.marks) {
      const y = AXIS + r * this.rowHeight - this.scroller.scrollTop;
      if (y >= AXIS - this.rowHeight && y < AXIS + this.plotHeight) g.fillRect(this.gutter - 3, y, 3, Math.max(2, this.rowHeight - 1));
    }
    g.textAlign = "left";
  }

  drawAxis(g) {
    g.fillStyle = this.ink.surface;
    g.fillRect(0, 0, this.width, 22);
    g.font = this.font(11);
    g.textBaseline = "alphabetic";
    const room = 84, least = (this.b - this.a) * room / this.plotWidth;
    const step = TICKS.find((t) => t >= least) ?? least, zero = this.data.t0;
    g.fillStyle = this.ink.muted;
    for (let t = Math.ceil((zero + this.a) / step) * step; t <= zero + this.b; t += step) {
      const x = this.x(t - zero);
      g.fillRect(Math.round(x), 16, 1, 5);
      const label = clock(t, step), half = g.measureText(label).width / 2;
      if (x + half < this.width && x - half > this.gutter - 20) g.fillText(label, x - half, 12);
    }
    g.fillText("UTC", 6, 12);
    g.fillText("generation", 6, AXIS - 4);
    g.fillStyle = this.ink.line;
    g.fillRect(this.gutter, 21, this.plotWidth, 1);
  }

  // Cross-hair of the pointer or of the keyboard, on its own canvas: the picture stays as it is.
  drawCursor() {
    if (!this.cursor && !this.crossed) return;
    this.crossed = Boolean(this.cursor);
    const g = this.overlay.getContext("2d"), { ratio, cursor } = this;
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.clearRect(0, 0, this.width, this.height);
    if (!cursor) return;
    const x = Math.round(this.x(cursor.ms)), top = AXIS + cursor.row * this.rowHeight - this.scroller.scrollTop;
    g.save();
    g.beginPath(); g.rect(this.gutter, AXIS - 12, this.plotWidth, this.height); g.clip();
    g.fillStyle = this.ink.accent;
    g.fillRect(x, AXIS - 12, 1, this.height);
    if (cursor.row >= 0) {
      g.strokeStyle = this.ink.ink;
      g.lineWidth = 1.5;
      const i = this.segmentAt(cursor.row, cursor.ms);
      if (i >= 0) {
        const x0 = this.x(this.segmentStart(cursor.row, i)), x1 = this.x(this.segmentEnd(i));
        g.strokeRect(Math.max(x0, this.gutter - 3), top, Math.min(x1, this.width + 3) - Math.max(x0, this.gutter - 3), Math.max(3, this.rowHeight - 1));
      }
    }
    g.restore();
  }
}

const packed = (hex) => {
  const n = parseInt(hex.slice(1), 16);
  return (0xff000000 | ((n & 255) << 16) | (n & 0xff00) | (n >> 16)) >>> 0;
};
const mixed = (hex, other, share) => {
  const at = (text, i) => parseInt(text.slice(i, i + 2), 16);
  const part = (i) => Math.round(at(other, i) + (at(hex, i) - at(other, i)) * share);
  return "#" + [1, 3, 5].map((i) => part(i).toString(16).padStart(2, "0")).join("");
};
const inkOn = (hex) => {
  const n = parseInt(hex.slice(1), 16);
  return 0.299 * (n >> 16) + 0.587 * ((n >> 8) & 255) + 0.114 * (n & 255) > 140 ? "#10201d" : "#ffffff";
};
const fitted = (g, text, room) => {
  if (g.measureText(text).width <= room) return text;
  let limit = Math.min(text.length, 60);
  while (limit > 4 && g.measureText(shorten(text, limit)).width > room) limit--;
  return shorten(text, limit);
};
