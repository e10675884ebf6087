// The table of all partitions of a group: found by name or member, furthest behind first.
const partitionTable = (section, data) => {
  const find = section.querySelector(".find-partition"), every = section.querySelector(".all-partitions");
  if (!find) return;
  const host = section.querySelector(".partitions"), worst = section.querySelector(".worst"), found = section.querySelector(".found-partitions");
  const process = new Map(data.members.map((id, m) => [id, data.identities[data.member_identity[m]]]));
  const topicOf = (i) => visible(data.lag_topics[data.lag_topic[i]]), nameOf = (i) => `${topicOf(i)}-${data.lag_partition[i]}`;
  const ownerOf = (i) => data.lag_owner[i] ? data.lag_owners[data.lag_owner[i] - 1] : null;
  const memberOf = (i) => {
    const id = ownerOf(i);
    return id === null ? (data.lag_owners.length ? "no member" : "") : el("bdi", { title: visible(id) }, shorten(process.get(id) ?? id, 40));
  };
  const spanOf = (s) => s < 120 ? `${s} s` : s < 3570 ? `${Math.round(s / 60)} min` : lasting(1e3 * s); // as spans.py
  const offset = (value) => value ? counted(value - 1) : "–";
  const age = (i) => data.lag_seconds[i] ? (data.lag_at_least[i] && data.lag_seconds[i] > 1 ? "≥ " : "") + spanOf(data.lag_seconds[i] - 1) : "–";
  const cells = (i) => [el("bdi", {}, nameOf(i)), memberOf(i), offset(data.lag_committed[i]), offset(data.lag_end[i]), offset(data.lag_value[i]), age(i)];
  let order = null, table = null;
  const fill = () => {
    const text = find.value.trim().toLowerCase();
    const hits = (name) => name !== null && name.toLowerCase().includes(text);
    order ??= [...data.lag_value.keys()].sort((a, b) => data.lag_value[b] - data.lag_value[a] || a - b);
    const owners = new Set(data.lag_owners.flatMap((id, k) => hits(id) || hits(process.get(id) ?? null) ? [k + 1] : []));
    const rows = text ? order.filter((i) => owners.has(data.lag_owner[i]) || hits(nameOf(i))) : order;
    host.hidden = false;
    if (worst) worst.hidden = true;
    table ??= new PagedTable(host, ["Partition", "Member", "Committed", "Log end", "Lag", "Time lag"], { name: "All partitions", numbers: 2 });
    table.show(rows.length, (k) => cells(rows[k]));
    found.textContent = `${counted(rows.length)} partition${rows.length === 1 ? "" : "s"}`;
  };
  const show = () => {
    if (find.value.trim() || !worst) return fill();
    host.hidden = true; worst.hidden = false; found.textContent = "";
  };
  find.oninput = show;
  every.onclick = fill;
};
