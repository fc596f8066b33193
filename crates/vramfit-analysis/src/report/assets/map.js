
// A memory map: each region of the pool in rows, by address, and a request that failed. All have one scale: a full row
// is as many bytes everywhere.

const MAP_ROW_HEIGHT = 24;
const MAP_ROW_GAP = 4;
// As many rows has a region with many segments, and a request that is larger than any region.
const MAP_MAX_ROWS = 8;
const MAP_SEGMENTS_PER_ROW = 24;

/** Returns how many bytes a full row is, for all regions and the request. */
function mapRowBytes(content) {
  const wanted = (region) => Math.min(MAP_MAX_ROWS, 1 + Math.floor(unpack(region.bytes).length / MAP_SEGMENTS_PER_ROW));
  return Math.max(1, (content.request || 0) / MAP_MAX_ROWS, ...content.regions.map((region) => region.size / wanted(region)));
}

/** Returns how many rows bytes take. The tolerance is that of a size divided by a number of rows. */
function mapRows(size, row) {
  return Math.max(1, Math.ceil(size / row - 1e-9));
}

function drawMap(content) {
  const host = makeElement("div");
  const kinds = new Set();
  if (textAt(content.caption)) host.append(makeElement("p", { className: "soft" }, ...withCode(textAt(content.caption))));
  const panel = makeElement("div", { className: "pinned hint", ariaLive: "polite" }, "Hover over a segment for details; the arrow keys move between segments.");
  const row = mapRowBytes(content);
  if (content.regions.length) host.append(makeElement("p", { className: "soft" }, `A full row is ${bytes(row)} everywhere.`));
  for (const region of content.regions) {
    const size = unpack(region.bytes), kind = unpack(region.kind), label = unpack(region.label);
    const from = new Float64Array(size.length);
    for (let segment = 1; segment < size.length; segment++) from[segment] = from[segment - 1] + size[segment - 1];
    kind.forEach((value) => kinds.add(value));
    const rows = mapRows(region.size, row);
    let hovered = -1;

    /** Calls `paint` with each rectangle of a segment, which may extend over several rows. */
    const boxes = (segment, width, paint) => {
      const end = from[segment] + size[segment];
      for (let at = Math.floor(from[segment] / row); at < rows && at * row < end; at++) {
        const left = Math.max(0, from[segment] - at * row) / row * width;
        const right = Math.min(row, end - at * row) / row * width;
        paint(left, at * (MAP_ROW_HEIGHT + MAP_ROW_GAP), right - left);
      }
    };
    const canvas = new LayeredCanvas(rows * (MAP_ROW_HEIGHT + MAP_ROW_GAP) - MAP_ROW_GAP, `Region of ${bytes(region.size)}, ${plural(size.length, "segment", "segments")}`, (ctx, width, height) => {
      for (let segment = 0; segment < size.length; segment++) {
        ctx.fillStyle = kindColor(kind[segment]);
        boxes(segment, width, (left, top, wide) => {
          ctx.fillRect(left, top, Math.max(0.5, wide - (wide > 4 ? 0.7 : 0)), MAP_ROW_HEIGHT);
        });
      }
    }, (ctx, width) => {
      if (hovered < 0) return;
      ctx.strokeStyle = themeColor("--ink");
      ctx.lineWidth = 2;
      boxes(hovered, width, (left, top, wide) => ctx.strokeRect(left + 1, top + 1, Math.max(1, wide - 2), MAP_ROW_HEIGHT - 2));
    });
    const details = (segment) => {
      const name = data.kinds[kind[segment]].name;
      return describe(kind[segment], textAt(label[segment]) || name, exactBytes(size[segment]), textAt(label[segment]) ? name : "", `at ${count(from[segment])} bytes into the region`);
    };
    canvas.element.addEventListener("pointermove", (event) => {
      const [left, top] = canvas.position(event);
      const at = Math.min(rows - 1, Math.floor(top / (MAP_ROW_HEIGHT + MAP_ROW_GAP))) * row + left / canvas.width * row;
      hovered = size.length && at < region.size ? lastRowBefore(from, at) : -1;
      canvas.repaintOverlay();
      showTooltip(hovered < 0 ? null : details(hovered), event.clientX, event.clientY);
    });
    canvas.element.addEventListener("pointerleave", () => {
      showTooltip(null);
    });
    canvas.element.addEventListener("click", () => panel.replaceChildren(...(hovered < 0 ? [] : details(hovered))));
    canvas.element.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (!step || !size.length) return;
      hovered = Math.min(Math.max(hovered + step, 0), size.length - 1);
      canvas.repaintOverlay();
      panel.replaceChildren(...details(hovered));
      event.preventDefault();
    });
    host.append(makeElement("p", { className: "soft" }, `${bytes(region.size)} at ${region.address}`), canvas.element);
  }
  if (content.request) {
    const strip = makeElement("div", { role: "img", ariaLabel: `request for ${bytes(content.request)}` });
    for (let at = 0; at < mapRows(content.request, row); at++) {
      const part = makeElement("div", { className: "request" });
      part.style.width = `${Math.min(1, content.request / row - at) * 100}%`;
      strip.append(part);
    }
    host.append(makeElement("p", { className: "soft" }, `${bytes(content.request)} requested, to the same scale`), strip);
  }
  host.append(makeLegend(kinds), panel);
  return host;
}
