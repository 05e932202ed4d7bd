// The page of lmfcn label IMAGE: draw strokes on a large image, show the map that follows from them.

import { byId, element } from "./dom.js";
import { cellAt, drawBrush, drawCells, drawStrokes, kindOf } from "./layers.js";
import { ask, keepToken, post, takeTokenFromAddress } from "./server.js";
import { Viewer } from "./viewer.js";

const SYMBOLS = { circle: "●", square: "■", triangle: "▲", diamond: "◆", "triangle-down": "▼", plus: "✚" };
const [PAUSE, SETTLED, MOVE, ERASE, NONE_OF_THESE] = [250, 120, null, "", 0.05];
const MOVES = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

let [state, viewer, brush, typed] = [null, null, MOVE, []];
let [cross, line, drag, byKeys] = [null, null, null, false];

const tell = (text) => (byId("status").textContent = text);
const classNames = () => [...new Set([...state.classes.map(({ name }) => name), ...typed])];
const colors = () => state.palette.map(({ color }) => color);
const brushSize = () => state.window * 2 ** ((byId("size").value - 20) / 5);
const isDrawing = () => brush !== MOVE;
const brushColor = () => (brush ? colors()[classNames().indexOf(brush)] : "#000000");
const inside = ([x, y]) => x >= 0 && y >= 0 && x < viewer.width && y < viewer.height;

const rule = () => ({
  opacity: byId("opacity").value / 100,
  unsure: byId("unsure").value / 100,
  typical: byId("typical").checked ? NONE_OF_THESE : null,
});

function drawOver(context) {
  if (!state) return;
  if (byId("overlay").checked) drawCells(context, viewer, state.cells, colors(), rule());
  const strokes = line ? [...state.strokes, { class: classNames().indexOf(brush), size: brushSize(), points: line }] : state.strokes;
  drawStrokes(context, viewer, strokes, colors());
  if (cross && (isDrawing() || byKeys)) drawBrush(context, viewer, cross, isDrawing() ? brushSize() : 1, brushColor());
}

/** Say what the map shows at a place. */
function described(x, y) {
  const cell = cellAt(state.cells, x, y);
  if (!cell) return "no map here yet";
  const name = `${state.classes[cell[4]].name} ${Math.floor(100 * cell[5])} %`;
  return { class: name, unsure: `unsure, perhaps ${name}`, none: `none of these, nearest to ${name}` }[kindOf(cell, rule())];
}

function showPlace() {
  if (!cross) return;
  const text = inside(cross) ? `x ${Math.floor(cross[0])}, y ${Math.floor(cross[1])}: ${described(...cross)}` : "";
  byId("place").textContent = text;
}

function take(next) {
  if (next.classes === undefined) {
    if (state) showFinish(next.finish);
    return;
  }
  if (state && next.version < state.version) return; // an older answer that came later
  if (next.strokes === null) next.strokes = state.strokes;
  state = next;
  showState();
}

function showState() {
  byId("name").textContent = `Label ${state.path.split(/[\\/]/).pop()}`;
  const n = state.strokes.length;
  byId("about").textContent = `${n} stroke${n === 1 ? "" : "s"}; all is kept in ${state.table}.${state.about ? ` Described by ${state.about}.` : ""}`;
  showClasses();
  [byId("described").max, byId("described").value] = [state.wanted, state.described];
  byId("described").hidden = state.described >= state.wanted;
  if (byId("sentence").textContent !== state.sentence) byId("sentence").textContent = state.sentence;
  byId("typical").disabled = !state.knows_typical;
  byId("notes").replaceChildren(...state.notes.map((textContent) => element("li", { textContent })));
  byId("size-shown").textContent = `${Math.round(brushSize())} pixels`;
  byId("unsure-shown").textContent = `${byId("unsure").value} %`;
  byId("viewer").dataset.cells = state.cells.length;
  if (!byId("out").value) byId("out").value = `${state.path.replace(/\.[^.\\/]*$/, "")}-labelled`;
  showFinish(state.finish);
  showPlace();
  viewer.draw();
}

function showClasses() {
  const known = new Map(state.classes.map((found) => [found.name, found]));
  const rows = classNames().map((name, index) => {
    const { strokes, windows } = known.get(name) ?? { strokes: 0, windows: 0 };
    const { color, mark } = state.palette[index];
    const symbol = element("span", { className: "symbol", textContent: SYMBOLS[mark] });
    symbol.style.color = color;
    symbol.setAttribute("aria-hidden", "true");
    const key = index < 9 ? element("kbd", { textContent: index + 1 }) : "";
    const button = element("button", { type: "button" }, key, " ", symbol, name, element("span", { className: "count", textContent: strokes }));
    button.setAttribute("aria-pressed", String(brush === name));
    button.setAttribute("aria-label", `Draw ${name}; ${strokes} strokes, ${windows} windows${index < 9 ? `; key ${index + 1}` : ""}`);
    button.addEventListener("click", () => choose(name));
    return element("li", {}, button);
  });
  // Replaced only when something has changed: the focus stays where it is.
  const now = JSON.stringify([brush, state.classes, typed]);
  if (byId("classes").shown !== now) {
    const focused = [...byId("classes").children].findIndex((row) => row.contains(document.activeElement));
    byId("classes").replaceChildren(...rows);
    rows[focused]?.firstChild.focus();
    byId("classes").shown = now;
  }
  byId("erase").setAttribute("aria-pressed", String(brush === ERASE));
  byId("move").setAttribute("aria-pressed", String(brush === MOVE));
  byId("viewer").classList.toggle("moving", brush === MOVE);
}

function choose(wanted) {
  [brush, line] = [wanted, null];
  tell(brush ? `Drawing ${brush}.` : brush === ERASE ? "Erasing." : "Moving.");
  showState();
}

function showFinish({ running, message, written, error }) {
  byId("finish-state").textContent = running ? `${message} …` : error;
  byId("finish-state").className = error ? "problem" : "";
  byId("finish").querySelector("button").disabled = running;
  byId("written").replaceChildren(...written.map((textContent) => element("li", { textContent })));
}

async function act(address, values, told) {
  try {
    const next = await post(address, values);
    byId("problem").textContent = "";
    if (told) tell(told);
    take(next);
    return true;
  } catch (error) {
    fail(error);
    return false;
  }
}

function fail(error) {
  if (error.status === 401) {
    byId("work").hidden = true;
    byId("token-form").hidden = false;
    byId("token").focus();
  }
  byId("problem").textContent = error.message;
  delete byId("problem").dataset.gone;
}

/** Add a place to the stroke; places nearer than a pixel of the screen say nothing new. */
function extend(place) {
  const [x, y] = line.at(-1);
  if (Math.hypot(place[0] - x, place[1] - y) * viewer.scale >= 1.5) line.push(place);
  viewer.draw();
}

async function endStroke() {
  const [points, label] = [line, brush];
  if (!points || label === MOVE) return;
  // It stays on the screen until the server's answer shows it.
  const done = await act("stroke", { label, size: brushSize(), points }, label ? `A stroke of ${label}.` : "Erased.");
  if (line === points) line = null;
  if (!done) typed = typed.filter((name) => name !== label || state.classes.some((known) => known.name === name));
  viewer.draw();
}

const undo = () => act("undo", {}, "The last stroke is taken back.");

function resizeBrush(steps) {
  byId("size").valueAsNumber += steps;
  tell(`The brush is ${Math.round(brushSize())} pixels wide.`);
  showState();
}

/** Move the cross; the view follows it, and so does a brush that is down. */
function moveCross([dx, dy], far) {
  const step = (state.window / 2) * (far ? 8 : 1);
  const [x, y] = cross ?? [viewer.x, viewer.y];
  cross = [Math.min(viewer.width - 1, Math.max(0, x + dx * step)), Math.min(viewer.height - 1, Math.max(0, y + dy * step))];
  byKeys = true;
  const { top, left, bottom, right } = viewer.view;
  if (cross[0] < left || cross[0] > right || cross[1] < top || cross[1] > bottom) {
    [viewer.x, viewer.y] = cross;
    viewer.move();
  }
  if (line) extend(cross);
  showPlace();
  tell(byId("place").textContent);
  viewer.draw();
}

function toggleBrush() {
  if (!isDrawing()) return tell("Choose a class or the eraser first.");
  if (line) return endStroke();
  [cross, byKeys] = [cross ?? [viewer.x, viewer.y], true];
  line = [cross];
  tell("The brush is down.");
  return viewer.draw();
}

function toggleMap() {
  byId("overlay").checked = !byId("overlay").checked;
  viewer.draw();
}

const KEYS = {
  z: undo, e: () => choose(ERASE), h: () => choose(MOVE), n: () => byId("class-name").focus(), m: toggleMap, " ": toggleBrush,
  "[": () => resizeBrush(-1), "]": () => resizeBrush(1), 0: () => viewer.showWhole(),
  "+": () => viewer.zoom(1.5), "=": () => viewer.zoom(1.5), "-": () => viewer.zoom(1 / 1.5),
  Escape: () => { line = null; viewer.draw(); },
};

function onKey(event) {
  if (!state || event.ctrlKey || event.altKey || event.metaKey) return;
  if (event.target.matches("input, summary")) {
    if (event.key === "Escape") byId("viewer").focus();
    return;
  }
  if (event.target.matches("button") && (event.key === "Enter" || event.key === " ")) return;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const name = key !== " " && classNames()[Number(key) - 1];
  if (name) choose(name);
  else if (MOVES[key]) moveCross(MOVES[key], event.shiftKey);
  else if (KEYS[key]) KEYS[key]();
  else return;
  event.preventDefault();
}

function onPress(event) {
  byId("viewer").focus();
  byId("viewer").setPointerCapture(event.pointerId);
  byKeys = false;
  cross = viewer.toImage(event.offsetX, event.offsetY);
  if (event.button === 0 && isDrawing() && !event.shiftKey) line = [cross];
  else drag = [event.offsetX, event.offsetY];
  viewer.draw();
}

function onMove(event) {
  if (!state || (byKeys && event.movementX === 0 && event.movementY === 0)) return;
  byKeys = false;
  if (drag) {
    viewer.panBy(event.offsetX - drag[0], event.offsetY - drag[1]);
    drag = [event.offsetX, event.offsetY];
  }
  cross = viewer.toImage(event.offsetX, event.offsetY);
  if (line && event.buttons) extend(cross);
  showPlace();
  viewer.draw();
}

function onRelease() {
  drag = null;
  if (line && !byKeys) endStroke();
}

function listen() {
  const canvas = byId("viewer");
  document.addEventListener("keydown", onKey);
  canvas.addEventListener("pointerdown", onPress);
  canvas.addEventListener("pointermove", onMove);
  canvas.addEventListener("pointerup", onRelease);
  canvas.addEventListener("pointerleave", () => {
    if (line || byKeys) return;
    cross = null;
    viewer.draw();
  });
  canvas.addEventListener("pointercancel", () => { [drag, line] = [null, null]; });
  canvas.addEventListener("contextmenu", (event) => event.preventDefault());
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    viewer.zoom(2 ** (-event.deltaY / 300), event.offsetX, event.offsetY);
  }, { passive: false });
  byId("closer").addEventListener("click", () => viewer.zoom(1.5));
  byId("wider").addEventListener("click", () => viewer.zoom(1 / 1.5));
  byId("whole").addEventListener("click", () => viewer.showWhole());
  byId("erase").addEventListener("click", () => choose(ERASE));
  byId("move").addEventListener("click", () => choose(MOVE));
  byId("undo").addEventListener("click", undo);
  for (const id of ["overlay", "opacity", "unsure", "typical", "size"]) byId(id).addEventListener("input", showState);
  byId("new-class").addEventListener("submit", (event) => {
    event.preventDefault();
    const name = byId("class-name").value.trim();
    if (!name) return;
    byId("class-name").value = "";
    if (!classNames().includes(name) && classNames().length >= state.palette.length) return fail(new Error("Draw the classes that you named before you name more."));
    typed.push(name);
    byId("viewer").focus();
    choose(name);
  });
  byId("finish").addEventListener("submit", (event) => {
    event.preventDefault();
    const { unsure, typical } = rule();
    act("finish", { folder: byId("out").value, map: byId("map").checked, reject: unsure, none_of_these: typical }, "Finishing.");
  });
  window.addEventListener("focus", sendView);
}

let waiting = null;

/** Tell the server what is shown, once the view has come to rest. */
function sendView() {
  clearTimeout(waiting);
  waiting = setTimeout(() => act("view", viewer.view), SETTLED);
}

async function loadTile(level, row, column) {
  const picture = await createImageBitmap(await (await ask(`tile/${level}/${row}/${column}`)).blob());
  if (!cross) byId("place").textContent = "";
  return picture;
}

async function begin() {
  try {
    const size = await (await ask("image")).json();
    const first = await (await ask("state")).json();
    byId("token-form").hidden = true;
    byId("work").hidden = false;
    byId("problem").textContent = "";
    if (!viewer) {
      viewer = new Viewer(byId("viewer"), size, loadTile, drawOver);
      viewer.changed = sendView;
      listen();
    }
    take(first);
    byId("place").textContent = "Reading the image; of a large one without coarser levels this takes a while.";
    sendView();
    byId("viewer").focus();
    follow();
  } catch (error) {
    fail(error);
  }
}

let following = false;

/** Look for what the model has learnt and what other tabs have drawn. */
async function follow() {
  if (following) return;
  following = true;
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, PAUSE));
    try {
      take(await (await ask(`state?since=${state.version}&changes=${state.changes}`)).json());
      if (byId("problem").dataset.gone) [byId("problem").textContent, byId("problem").dataset.gone] = ["", ""];
    } catch (error) {
      byId("problem").textContent = error.message;
      byId("problem").dataset.gone = "yes";
      if (error.status === 401) break;
    }
  }
  following = false;
}

byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  keepToken(byId("token").value.trim());
  begin();
});
takeTokenFromAddress();
begin();
