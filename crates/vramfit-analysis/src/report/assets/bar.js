
// The used part of a whole, divided among its owners.

/** Draws bars below each other, which begin at the same place. */
function drawBars(bars) {
  const host = makeElement("div", {}, ...bars.map(drawBar));
  const labelLengths = bars.map((bar) => textAt(bar.label).length);
  host.style.setProperty("--label", `${Math.min(Math.max(...labelLengths, 0), 40)}ch`);
  return host;
}

function drawBar(bar) {
  const owners = { kind: unpack(bar.owners.kind), name: unpack(bar.owners.name), bytes: unpack(bar.owners.bytes) };
  // All to scale: what exceeds the limit is hatched, behind a tick at the limit.
  const most = bar.part + bar.uncertain, scale = Math.max(most, bar.whole, 1);
  const relative = (amount) => `${amount / scale * 100}%`;
  const uncertain = bar.uncertain ? ` + 0 to ${bytes(bar.uncertain)}` : "";
  const amount = `${bytes(bar.part)}${uncertain} of ${bytes(bar.whole)}`;
  const track = makeElement("div", { className: "track", role: "img", ariaLabel: `${textAt(bar.label)} ${amount}` });
  const addPart = (className, width, nodes) => {
    const part = makeElement("div", { className });
    part.style.width = relative(width);
    part.addEventListener("pointermove", (event) => showTooltip(nodes(), event.clientX, event.clientY));
    part.addEventListener("pointerleave", () => showTooltip(null));
    track.append(part);
    return part;
  };
  for (const [row, size] of owners.bytes.entries()) {
    const kind = owners.kind[row];
    const part = addPart("owner", size, () => describe(kind, textAt(owners.name[row]), exactBytes(size), `${percent(size / bar.part)} of ${bytes(bar.part)}`));
    themeListeners.push(() => { part.style.background = kindColor(kind); });
  }
  if (!owners.bytes.length) addPart("fill", bar.part, () => describe(null, amount));
  if (bar.uncertain) addPart("uncertain", bar.uncertain, () => describe(null, `library routines may take up to ${exactBytes(bar.uncertain)} more`));
  if (most > bar.whole && bar.whole) {
    const over = makeElement("div", { className: bar.part > bar.whole ? "excess" : "limit" });
    over.style.left = relative(bar.whole);
    over.style.width = relative(Math.max(0, bar.part - bar.whole));
    track.append(over);
  }
  track.title = `${count(bar.part)} of ${count(bar.whole)} bytes`;
  const name = bar.part > bar.whole ? "bar over" : bar.part ? "bar" : "bar none";
  const host = makeElement("div", {}, makeElement("div", { className: name }, makeElement("span", {}, textAt(bar.label)), track, makeElement("span", { className: "amount" }, amount)));
  if (owners.bytes.length) host.append(ownerLegend(owners, bar));
  return host;
}

/** Names the owners with their bytes; those with too little to be seen are one entry. */
function ownerLegend(owners, bar) {
  const list = makeElement("ul", { className: "legend" });
  let [small, hidden] = [0, 0];
  const add = (paint, text) => {
    const swatch = makeElement("i");
    paint(swatch);
    list.append(makeElement("li", {}, swatch, text));
  };
  for (const [row, size] of owners.bytes.entries()) {
    if (size < bar.part / 100) {
      small += size;
      hidden += 1;
      continue;
    }
    const paint = (swatch) => themeListeners.push(() => { swatch.style.background = kindColor(owners.kind[row]); });
    add(paint, `${textAt(owners.name[row])} ${bytes(size)}`);
  }
  if (hidden) list.append(makeElement("li", {}, `${plural(hidden, "other", "others")} ${bytes(small)}`));
  if (bar.uncertain) add((swatch) => { swatch.className = "uncertain"; }, `library routines 0 to ${bytes(bar.uncertain)}`);
  if (bar.part > bar.whole && bar.whole) add((swatch) => { swatch.className = "excess"; }, "beyond the limit");
  return list;
}
