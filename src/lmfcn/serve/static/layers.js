// What lies over the image: the map with its classes, and the strokes.

const [DARK, GREY] = ["#333333", "#666666"];
const [BAND, LINE, CASING] = [0.35, 3, 5];

/** How a cell of the map is shown: "none" of these, "unsure", or "class". */
export function kindOf([, , , , , probability, typicality], { unsure, typical }) {
  if (typical !== null && typicality !== null && typicality <= typical) return "none";
  return probability < unsure ? "unsure" : "class";
}

/** The finest cell at a place; finer ones come later. */
export const cellAt = (cells, x, y) =>
  cells.findLast(([left, top, right, bottom]) => left <= x && x < right && top <= y && y < bottom);

function onto(viewer, draw) {
  const layer = new OffscreenCanvas(viewer.canvas.width, viewer.canvas.height);
  const context = layer.getContext("2d");
  context.setTransform(viewer.ratio, 0, 0, viewer.ratio, 0, 0);
  draw(context);
  return layer;
}

function put(context, viewer, layer, alpha) {
  context.globalAlpha = alpha;
  context.drawImage(layer, 0, 0, viewer.shownWidth, viewer.shownHeight);
  context.globalAlpha = 1;
}

function stripes(context) {
  const tile = new OffscreenCanvas(6, 6);
  const drawn = tile.getContext("2d");
  [drawn.strokeStyle, drawn.lineWidth] = [GREY, 1.5];
  for (const shift of [-6, 0, 6]) {
    drawn.beginPath();
    drawn.moveTo(shift, 6);
    drawn.lineTo(shift + 6, 0);
    drawn.stroke();
  }
  return context.createPattern(tile, "repeat");
}

/** Draw the map: the surer, the stronger the colour. */
export function drawCells(context, viewer, cells, colors, rule) {
  if (cells.length === 0) return;
  const least = 1 / Math.max(2, new Set(cells.map((cell) => cell[4])).size);
  const layer = onto(viewer, (over) => {
    const pattern = stripes(over);
    for (const cell of cells) {
      const [left, top] = viewer.toCanvas(cell[0], cell[1]).map(Math.round);
      const [right, bottom] = viewer.toCanvas(cell[2], cell[3]).map(Math.round);
      const kind = kindOf(cell, rule);
      over.clearRect(left, top, right - left, bottom - top);
      over.globalAlpha = kind === "class" ? 0.3 + 0.7 * Math.max(0, (cell[5] - least) / (1 - least)) : 1;
      over.fillStyle = { class: colors[cell[4]], unsure: pattern, none: DARK }[kind];
      over.fillRect(left, top, right - left, bottom - top);
    }
  });
  put(context, viewer, layer, rule.opacity);
}

function trace(context, viewer, points) {
  context.beginPath();
  points.forEach(([x, y], number) => context[number ? "lineTo" : "moveTo"](...viewer.toCanvas(x, y)));
  const [last] = points.slice(-1);
  context.lineTo(...viewer.toCanvas(...last).map((place) => place + 0.01)); // so that a dot is seen
}

function paint(context, viewer, { points, class: number, size }, colors, width) {
  [context.lineCap, context.lineJoin] = ["round", "round"];
  trace(context, viewer, points);
  context.lineWidth = Math.max(size * viewer.scale, CASING);
  context.globalCompositeOperation = "destination-out";
  context.stroke();
  context.globalCompositeOperation = "source-over";
  if (number < 0) return;
  for (const [color, wide] of width === null ? [[colors[number], context.lineWidth]] : [["#ffffff", CASING], [colors[number], LINE]]) {
    [context.strokeStyle, context.lineWidth] = [color, wide];
    context.stroke();
  }
}

/** Draw the strokes: a pale band as wide as the brush, and a line; later strokes replace earlier ones. */
export function drawStrokes(context, viewer, strokes, colors) {
  if (strokes.length === 0) return;
  for (const [width, alpha] of [[null, BAND], [LINE, 1]]) {
    const layer = onto(viewer, (over) => strokes.forEach((stroke) => paint(over, viewer, stroke, colors, width)));
    put(context, viewer, layer, alpha);
  }
}

/** Draw the outline of the brush, and a cross in it. */
export function drawBrush(context, viewer, [x, y], size, color) {
  const [left, top] = viewer.toCanvas(x, y);
  for (const [stroke, width] of [["#ffffff", 4], [color, 2]]) {
    [context.strokeStyle, context.lineWidth] = [stroke, width];
    context.beginPath();
    context.arc(left, top, Math.max(2, (size * viewer.scale) / 2), 0, 2 * Math.PI);
    context.moveTo(left - 6, top);
    context.lineTo(left + 6, top);
    context.moveTo(left, top - 6);
    context.lineTo(left, top + 6);
    context.stroke();
  }
}
