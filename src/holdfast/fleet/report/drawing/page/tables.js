// Tables: one that pages through columns too long for the document, and sorting of static ones.
const PAGE = 50;

class PagedTable {
  // `numbers`: the first of the last columns, which are numbers.
  constructor(host, heads, { name = "Rows", numbers = heads.length } = {}) {
    this.body = el("tbody");
    this.place = el("span", { className: "place" });
    this.back = el("button", { type: "button", onclick: () => this.turn(-PAGE) }, "Previous");
    this.next = el("button", { type: "button", onclick: () => this.turn(PAGE) }, "Next");
    this.numbers = numbers;
    const head = el("tr", {}, ...heads.map((text, i) => el("th", { scope: "col", className: this.kind(i) }, text)));
    host.replaceChildren(
      el("div", { className: "bar" }, this.back, this.next, this.place),
      el("div", { className: "wide", tabIndex: 0, role: "region", ariaLabel: name }, el("table", { className: "full" }, el("caption", {}, name), el("thead", {}, head), this.body)));
  }
  kind(column) { return column >= this.numbers ? "n" : ""; }
  show(count, rowAt) { Object.assign(this, { count, rowAt, first: 0 }); this.fill(); }
  turn(by) { this.first = Math.min(Math.max(0, this.first + by), Math.max(0, this.count - 1)); this.fill(); }
  fill() {
    const last = Math.min(this.count, this.first + PAGE), rows = [];
    for (let i = this.first; i < last; i++) rows.push(el("tr", {}, ...this.rowAt(i).map((cell, column) => el("td", { className: this.kind(column) }, cell))));
    this.body.replaceChildren(...rows);
    this.place.textContent = this.count ? `${counted(this.first + 1)} to ${counted(last)} of ${counted(this.count)}` : "nothing here";
    this.back.disabled = this.first === 0;
    this.next.disabled = last >= this.count;
  }
}

// A table whose rows start with a moment and end with seconds: each row gets a way to its picture.
const makeJumps = (table) => {
  table.tHead.rows[0].append(el("th", { scope: "col" }));
  for (const row of table.tBodies[0].rows) {
    const ms = Date.parse(`${row.cells[0].textContent.replace(" ", "T")}Z`), last = row.cells[row.cells.length - 1];
    const wide = Math.max(1e3, 1e3 * Number(last.dataset.v ?? last.textContent) || 0);
    row.append(el("td", {}, el("button", { type: "button", className: "jump", "data-moment": ms, "data-wide": wide }, "show")));
  }
};

// Headings of static tables become buttons that sort; a cell's data-v is its value.
const makeSortable = (table) => {
  for (const [column, head] of [...table.tHead.rows[0].cells].entries()) {
    if (!head.textContent) continue; // of pictures or buttons
    const button = el("button", { type: "button", className: "sort" }, ...head.childNodes);
    head.replaceChildren(button);
    button.onclick = () => {
      const down = head.getAttribute("aria-sort") === "descending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "ascending" : "descending");
      const value = (row) => {
        const cell = row.cells[column], text = cell.dataset.v ?? cell.textContent, number = Number(text);
        return text === "" ? -Infinity : Number.isNaN(number) ? text : number;
      };
      const compare = (x, y) => {
        const p = value(x), q = value(y);
        return typeof p === typeof q ? (p < q ? -1 : p > q ? 1 : 0) : typeof p === "number" ? -1 : 1;
      };
      const rows = [...table.tBodies[0].rows].sort(compare);
      table.tBodies[0].append(...(down ? rows : rows.reverse()));
    };
  }
};
