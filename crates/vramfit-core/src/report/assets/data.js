
// The data block, unpacked. See `columns.rs` and `data.rs`, which write it.

const data = JSON.parse(document.getElementById("data").textContent);

const DIGIT = new Int8Array(128).fill(-1);
for (const [value, digit] of [..."ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"].entries()) {
  DIGIT[digit.charCodeAt(0)] = value;
}

/** Unpacks a column of integers. Exact up to 2^53. */
function unpack(column) {
  const { digits, scale, steps } = column;
  const values = new Float64Array(column.count);
  let row = 0, value = 0, place = 1, last = 0;
  for (let at = 0; at < digits.length; at++) {
    const digit = DIGIT[digits.charCodeAt(at)];
    // Not by shifting bits: addresses need more than 32 of them.
    value += (digit & 31) * place;
    place *= 32;
    if (digit < 32) {
      const half = Math.floor(value / 2);
      last = (value % 2 ? -half : half) + (steps ? last : 0);
      values[row++] = last * scale;
      value = 0;
      place = 1;
    }
  }
  return values;
}

const textTable = {
  words: data.strings.words,
  of: unpack(data.strings.of),
  ends: unpack(data.strings.lengths),
  texts: [],
};
for (let place = 1; place < textTable.ends.length; place++) textTable.ends[place] += textTable.ends[place - 1];

/** Returns the text at a place of the table; put together when first asked for. */
function textAt(place) {
  if (place === undefined) return undefined;
  return textTable.texts[place] ??= Array.from(
    textTable.of.subarray(place ? textTable.ends[place - 1] : 0, textTable.ends[place]),
    (word) => textTable.words[word],
  ).join("");
}
