// The lag heat map of a group: a row of cells per topic, a cell per partition, shade by log of lag.
// Cells of many partitions are smaller: the canvas of 200,000 stays within what browsers can draw.
const cellOf = (n) => (n <= 3000 ? 15 : n <= 20000 ? 8 : 4), STEPS = 7;
const heatStep = (lag) => (lag <= 0 ? 0 : Math.min(STEPS, 1 + Math.floor(Math.log10(lag))));

class HeatMap {
  constructor(section, data) {
    this.canvas = section.querySelector("canvas.heat");
    this.told = section.querySelector(".heat-told");
    this.data = data;
    this.canvas.onpointermove = (event) => this.point(event.offsetX, event.offsetY);
    this.canvas.onkeydown = (event) => this.key(event);
    this.at = -1;
  }

  // Places of the cells: topics one below the other, long ones wrapped.
  lay() {
    const { lag_topic: topic } = this.data, cell = this.cell = cellOf(topic.length), wide = this.canvas.parentElement.clientWidth || 900;
    this.left = Math.min(190, wide * 0.3);
    this.columns = Math.max(8, Math.floor((wide - this.left - 2) / cell));
    this.x = new Int32Array(topic.length);
    this.y = new Int32Array(topic.length);
    this.heads = [];
    let line = -1, column = 0, last = -1;
    for (let i = 0; i < topic.length; i++) {
      if (topic[i] !== last) { line++; column = 0; last = topic[i]; this.heads.push([last, line]); }
      if (column === this.columns) { line++; column = 0; }
      this.x[i] = this.left + cell * column++;
      this.y[i] = cell * line;
    }
    const ratio = window.devicePixelRatio || 1, high = cell * (line + 1) + 2;
    this.canvas.width = wide * ratio; this.canvas.height = high * ratio;
    this.canvas.style.width = `${wide}px`; this.canvas.style.height = `${high}px`;
    const g = this.canvas.getContext("2d");
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    return g;
  }

  draw() {
    const g = this.lay(), { cell } = this, style = getComputedStyle(document.documentElement), { data } = this;
    const ink = (name) => style.getPropertyValue(`--${name}`).trim();
    g.clearRect(0, 0, this.canvas.width, this.canvas.height);
    g.font = '11px system-ui, "Segoe UI", "Liberation Sans", sans-serif';
    g.textBaseline = "middle"; g.textAlign = "right";
    g.fillStyle = ink("muted");
    let named = -Infinity; // a small cell is lower than its topic's name
    for (const [topic, line] of this.heads) {
      if (cell * (line - named) < 12) continue;
      named = line;
      g.fillText(fitted(g, visible(data.lag_topics[topic]), this.left - 10), this.left - 7, Math.max(cell * line + cell / 2, 6));
    }
    g.strokeStyle = ink("line");
    for (let i = 0; i < this.x.length; i++) {
      const known = data.lag_value[i] > 0, step = heatStep(data.lag_value[i] - 1);
      g.fillStyle = known && step ? `rgba(${ink("heat")}, ${0.12 + 0.88 * step / STEPS})` : "transparent";
      g.fillRect(this.x[i], this.y[i], cell - (cell > 4 ? 2 : 1), cell - (cell > 4 ? 2 : 1));
      if (cell > 4) g.strokeRect(this.x[i] + 0.5, this.y[i] + 0.5, cell - 3, cell - 3);
      if (!known) {
        g.beginPath(); g.moveTo(this.x[i], this.y[i] + cell - 2); g.lineTo(this.x[i] + cell - 2, this.y[i]); g.stroke();
      }
    }
  }

  tell(i) {
    const { data } = this, lag = data.lag_value[i] - 1, owner = data.lag_owner[i] - 1;
    const text = lag < 0 ? "lag unknown" : `lag ${counted(lag)}`;
    const who = owner < 0 ? "no owner" : `owner ${shorten(data.lag_owners[owner], 80)}`;
    this.told.textContent = `${visible(data.lag_topics[data.lag_topic[i]])}-${data.lag_partition[i]} · ${text} · ${who}`;
    this.at = i;
  }
  point(x, y) {
    const i = this.x.findIndex((left, k) => x >= left && x < left + this.cell && y >= this.y[k] && y < this.y[k] + this.cell);
    if (i >= 0) this.tell(i);
  }
  key(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.columns, ArrowDown: this.columns }[event.key];
    if (!by || !this.x.length) return;
    event.preventDefault();
    this.tell(Math.min(Math.max(this.at + by, 0), this.x.length - 1));
  }
}
