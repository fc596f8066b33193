
// A canvas that keeps its size, its sharpness and its colours, with a second one on top for what is
// pointed at; so that pointing never draws a hundred thousand buffers again.

class Stage {
  /** `draw(ctx, width, height)` draws all; `over(ctx, width, height)` what is pointed at. */
  constructor(height, name, draw, over) {
    Object.assign(this, { height, draw, over, width: 0 });
    this.base = make("canvas", { className: "base" });
    this.top = make("canvas", { className: "over" });
    this.element = make("div", { className: "stage", tabIndex: 0, role: "img", ariaLabel: name }, this.base, this.top);
    this.element.style.height = `${height}px`;
    new ResizeObserver(() => this.resize()).observe(this.element);
    themes.push(() => this.repaint());
  }

  resize() {
    const width = this.element.clientWidth;
    if (!width || width === this.width) return;
    this.width = width;
    // Paper has more dots than most screens.
    const density = Math.max(devicePixelRatio || 1, 2);
    for (const canvas of [this.base, this.top]) {
      canvas.width = Math.round(width * density);
      canvas.height = Math.round(this.height * density);
      canvas.getContext("2d").setTransform(density, 0, 0, density, 0, 0);
    }
    this.repaint();
    this.point();
  }

  /** Paints over what was there: Chromium prints nothing of a canvas that was cleared or resized just before. */
  repaint() {
    if (!this.width) return;
    const ctx = this.base.getContext("2d");
    ctx.fillStyle = themed("--paper");
    ctx.fillRect(0, 0, this.width, this.height);
    this.draw(ctx, this.width, this.height);
  }

  /** Draws what is pointed at, again. */
  point() {
    if (!this.width) return;
    const ctx = this.top.getContext("2d");
    ctx.clearRect(0, 0, this.width, this.height);
    this.over(ctx, this.width, this.height);
  }

  /** Returns where an event happened, in the stage's own coordinates. */
  at(event) {
    const box = this.element.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }
}

/** Returns amounts for an axis and their names: round in binary units, `lines` of them or fewer. */
function ticks(least, most, lines) {
  let step = 1;
  while ((most - least) / step > lines) step *= 2;
  // Close neighbours far from zero would all be called the same in their own unit.
  const unit = Math.min(Math.floor(Math.log2(step) / 10), UNITS.length);
  const near = step * 10 < 1024 ** Math.floor(Math.log2(Math.max(1, most)) / 10);
  const name = (value) => (near ? `${count(value / 1024 ** unit)} ${unit ? UNITS[unit - 1] : "B"}` : bytes(value));
  const found = [];
  for (let value = Math.ceil(least / step) * step; value <= most; value += step) found.push([value, name(value)]);
  return found;
}

/** Sets the type of a canvas. */
function type(ctx, size, weight = 400) {
  ctx.font = `${weight} ${size}px system-ui, -apple-system, "Segoe UI", Roboto, Arial, sans-serif`;
  ctx.textBaseline = "middle";
}

/** Draws lines for amounts, with their names, right of the names. */
function drawAxis(ctx, most, y, left, right) {
  type(ctx, 12);
  ctx.textAlign = "right";
  for (const [value, name] of ticks(0, most, 5)) {
    ctx.fillStyle = themed("--soft");
    ctx.fillText(name, left - 8, y(value));
    ctx.fillStyle = themed("--rule");
    ctx.fillRect(left, Math.round(y(value)), right - left, 1);
  }
}

/** Draws a label that stays inside the picture. */
function drawLabel(ctx, text, x, y, left, right, colour) {
  type(ctx, 12, 600);
  ctx.textAlign = "left";
  const width = ctx.measureText(text).width;
  const from = Math.min(Math.max(x - width / 2, left), right - width);
  ctx.fillStyle = themed("--paper");
  ctx.globalAlpha = 0.85;
  ctx.fillRect(from - 3, y - 9, width + 6, 18);
  ctx.globalAlpha = 1;
  ctx.fillStyle = colour;
  ctx.fillText(text, from, y);
}
