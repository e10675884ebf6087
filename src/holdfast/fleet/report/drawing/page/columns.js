// Columns of one payload: head and byte planes, unpacked by loader.js. The writer is payload.py.
const { started: STARTED, unpack, bytesOf, whenParsed, fail } = globalThis.holdfast;
globalThis.holdfast.runs = true;

const readColumn = (bytes, at, count, width, ascending) => {
  const out = width < 4 ? new Int32Array(count) : new Float64Array(count);
  let weight = 1;
  for (let plane = 0; plane < width; plane++, weight *= 256, at += count) {
    for (let i = 0; i < count; i++) out[i] += bytes[at + i] * weight;
  }
  if (!ascending) return out;
  const sums = new Float64Array(count);
  for (let i = 0, sum = 0; i < count; i++) sums[i] = sum += out[i];
  return sums;
};

const readValues = (id) => JSON.parse(new TextDecoder().decode(bytesOf(document.getElementById(id).textContent)));

const readPayload = async (unpacking) => {
  const bytes = await unpacking;
  let at = 4 + new DataView(bytes.buffer).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(bytes.subarray(4, at)));
  const columns = {};
  for (const [name, count, width, ascending] of head.columns) {
    columns[name] = readColumn(bytes, at, count, width, ascending);
    at += count * width;
  }
  return { ...head.values, ...columns };
};

// First index whose value is greater than x, in an ascending column.
const upperBound = (column, x, low = 0, high = column.length) => {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (column[middle] > x) high = middle; else low = middle + 1;
  }
  return low;
};
