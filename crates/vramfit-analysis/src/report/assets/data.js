
// The data block, unpacked. `packing.rs` and `data.rs` write it.

const data = JSON.parse(document.getElementById("data").textContent);

const DIGIT = new Int8Array(128).fill(-1);
for (const [value, digit] of [..."ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"].entries()) {
  DIGIT[digit.charCodeAt(0)] = value;
}

/** Unpacks a column of integers. Exact up to 2^53. */
function unpack(column) {
  const { digits, scale, is_delta: isDelta } = column;
  const values = new Float64Array(column.count);
  let row = 0, value = 0, weight = 1, last = 0;
  for (let at = 0; at < digits.length; at++) {
    const digit = DIGIT[digits.charCodeAt(at)];
    // Not by shifting bits: addresses need more than 32 of them.
    value += (digit & 31) * weight;
    weight *= 32;
    if (digit < 32) {
      const half = Math.floor(value / 2);
      last = (value % 2 ? -half : half) + (isDelta ? last : 0);
      values[row++] = last * scale;
      value = 0;
      weight = 1;
    }
  }
  return values;
}

const textTable = {
  words: data.strings.words,
  indices: unpack(data.strings.indices),
  ends: unpack(data.strings.lengths),
  texts: [],
};
for (let index = 1; index < textTable.ends.length; index++) textTable.ends[index] += textTable.ends[index - 1];

/** Returns a text of the table; joined when it is first needed. */
function textAt(index) {
  if (index === undefined) return undefined;
  return textTable.texts[index] ??= Array.from(
    textTable.indices.subarray(index ? textTable.ends[index - 1] : 0, textTable.ends[index]),
    (word) => textTable.words[word],
  ).join("");
}
