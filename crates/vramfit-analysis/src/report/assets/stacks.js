
// Several totals to one scale, each divided among owners; the numbers are in the tooltips and below.

function drawStacks(content) {
  const stacks = content.stacks.map((stack) => ({ label: textAt(stack.label), kind: unpack(stack.kind), name: unpack(stack.name), bytes: unpack(stack.bytes) }));
  const totals = stacks.map((stack) => stack.bytes.reduce((sum, part) => sum + part, 0));
  const largest = Math.max(1, ...totals);
  const list = makeElement("div", { className: "stacks" });
  for (const [row, stack] of stacks.entries()) {
    const track = makeElement("div", { className: "stack", role: "img", ariaLabel: `${stack.label}: ${bytes(totals[row])}` });
    for (const [part, amount] of stack.bytes.entries()) {
      const segment = makeElement("div");
      segment.style.width = `${amount / largest * 100}%`;
      themeListeners.push(() => { segment.style.background = kindColor(stack.kind[part]); });
      const details = () => describe(stack.kind[part], `${textAt(stack.name[part])} in ${stack.label}`, exactBytes(amount), ...stacks.filter((other) => other !== stack).map((other) => comparison(other, stack.kind[part])));
      segment.addEventListener("pointermove", (event) => showTooltip(details(), event.clientX, event.clientY));
      segment.addEventListener("pointerleave", () => showTooltip(null));
      track.append(segment);
    }
    list.append(makeElement("span", {}, stack.label), track, makeElement("span", { className: "amount" }, bytes(totals[row])));
  }
  return makeElement("div", {}, list, makeLegend(stacks.flatMap((stack) => [...stack.kind])));
}

/** Says what another total has of the same kind. */
function comparison(other, kind) {
  const at = other.kind.indexOf(kind);
  return `${other.label}: ${at < 0 ? "none" : bytes(other.bytes[at])}`;
}
