// The page of lmfcn label: show images, give them labels, show what was learnt.

import { drawCurve } from "./curve.js";
import { byId, element } from "./dom.js";
import { makeEnlargeable } from "./enlarge.js";
import { Grid } from "./grid.js";
import { ask, keepToken, post, takeTokenFromAddress } from "./server.js";

const SYMBOLS = { circle: "●", square: "■", triangle: "▲", diamond: "◆", "triangle-down": "▼", plus: "✚" };
const [PAUSE, LABELLED, SKIPPED] = [700, 0, -2];
const VIEWS = {
  ask: ["to label next", "The images from which the model learns most. Label the first one, and the next one follows."],
  all: ["all, similar ones together", "Dots mark where a cluster begins. C selects a whole cluster, R a whole row."],
  unlabelled: ["without a label, similar ones together", "C selects a whole cluster, R a whole row; Enter accepts the suggestions."],
  sure: ["without a label, the surest first", "R selects a whole row; Enter accepts the suggestions."],
  doubtful: ["labels to look at again", "The model would decide otherwise. Give the right label, or the same label again to confirm it."],
};

let state = null;
let names = [];
let view = "ask";
let shownLarge = null;
const grid = new Grid(drawTile, showCurrent);

const symbol = (index) => {
  const made = element("span", { className: "symbol", textContent: SYMBOLS[state.classes[index].mark] });
  made.style.color = state.classes[index].color;
  made.setAttribute("aria-hidden", "true");
  return made;
};

const pending = new Set(); // images whose label is on its way to the server: the next key is not meant for them

const isOpen = (image) => state.labels[image] === -1 && !pending.has(image);

/** The label or the suggestion of an image in words. */
function described(image) {
  const label = state.labels[image];
  if (label >= LABELLED) return state.classes[label].name;
  const skipped = label === SKIPPED ? "skipped" : "";
  const index = state.suggested[image];
  if (index < 0) return skipped || "no label";
  return `${skipped ? "skipped, " : ""}${state.classes[index].name}? ${state.sure[image]} %`;
}

function drawTile(tile, image, place) {
  const [label, index] = [state.labels[image], state.suggested[image]];
  const now = `${label} ${index} ${state.sure[image]} ${state.classes[label >= 0 ? label : index]?.name}`;
  tile.classList.toggle("starts", view !== "ask" && view !== "sure" && startsCluster(image, place));
  if (tile.drawn === now) return;
  tile.drawn = now;
  const caption = tile.querySelector(".caption");
  caption.className = label >= LABELLED ? "caption" : "caption suggested";
  const shown = label >= LABELLED ? label : index;
  caption.replaceChildren(...(shown >= 0 ? [symbol(shown)] : []), described(image));
  tile.setAttribute("aria-label", `${names[image] ?? image}: ${described(image)}`);
  tile.title = names[image] ?? "";
}

const startsCluster = (image, place) =>
  place > 0 && state.clusters[image] !== state.clusters[grid.items[place - 1]];

function itemsOfView() {
  if (view === "ask") {
    const kept = grid.items.filter((image) => grid.selected.has(image) && isOpen(image));
    const first = new Set(kept);
    return [...kept, ...state.asked.filter((image) => isOpen(image) && !first.has(image))];
  }
  if (view === "doubtful") return state.doubtful;
  if (view === "all") return state.order;
  const open = state.order.filter(isOpen);
  if (view === "sure") return open.sort((a, b) => state.sure[b] - state.sure[a]);
  if (view === "unlabelled") return open;
  const wanted = state.classes.findIndex(({ name }) => `class ${name}` === view);
  return state.order.filter((image) => state.labels[image] === wanted);
}

async function take(next) {
  if (next.labels === undefined) {
    if (state) showFinish(next.finish);
    return;
  }
  if (state && next.version < state.version) return; // an older answer that came later
  state = next;
  if (names.length < state.n_images) names.push(...(await (await ask(`images?start=${names.length}`)).json()).names);
  showState();
}

function showState() {
  byId("folder").textContent = `Label ${state.folder.split(/[\\/]/).pop()}`;
  const n = state.labels.filter((label) => label >= 0).length;
  const open = state.n_images - state.left_out.length - state.n_described;
  byId("about").textContent =
    `${n} of ${state.n_images} images labelled; all is kept in ${state.table}.` +
    (open > 0 ? ` ${state.network || "The network"} has described ${state.n_described}; suggestions follow.` : "");
  [byId("described").max, byId("described").value, byId("described").hidden] = [state.n_images, state.n_described, open <= 0];
  showViews();
  showClasses();
  byId("sentence").textContent = state.sentence;
  drawCurve(state.curve);
  byId("look-again").hidden = state.doubtful.length === 0;
  byId("look-again").textContent = `Look again at ${state.doubtful.length} doubtful label${state.doubtful.length === 1 ? "" : "s"}`;
  byId("notes").replaceChildren(...state.notes.map((textContent) => element("li", { textContent })));
  byId("left-out").replaceChildren(...state.left_out.map(({ name, reason }) => element("li", { textContent: `${name} ${reason}` })));
  if (!byId("out").value) byId("out").value = `${state.folder.replace(/[\\/]$/, "")}-labelled`;
  showFinish(state.finish);
  grid.show(itemsOfView());
  showCurrent(grid.image);
}

function showViews() {
  const wanted = [...Object.entries(VIEWS).map(([key, [text]]) => [key, text]), ...state.classes.map(({ name }) => [`class ${name}`, `class ${name}`])];
  const options = byId("view");
  if (options.options.length !== wanted.length) {
    options.replaceChildren(...wanted.map(([value, textContent]) => element("option", { value, textContent })));
  }
  options.value = view;
  byId("hint").textContent = VIEWS[view]?.[1] ?? "C selects a whole cluster, R a whole row.";
}

function showClasses() {
  byId("classes").replaceChildren(
    ...state.classes.map(({ name, count }, index) => {
      const key = index < 9 ? element("kbd", { textContent: index + 1 }) : "";
      const button = element("button", { type: "button" }, key, " ", symbol(index), name, element("span", { className: "count", textContent: count }));
      button.setAttribute("aria-label", `Label as ${name}; ${count} images have this label${index < 9 ? `; key ${index + 1}` : ""}`);
      button.addEventListener("click", () => label(name));
      return element("li", {}, button);
    }),
  );
}

async function showCurrent(image) {
  const picture = byId("current-picture");
  if (image === undefined || !state) {
    picture.removeAttribute("src");
    byId("current-caption").textContent = "No image here.";
    shownLarge = null;
    return;
  }
  const more = grid.selected.size > 1 ? ` ${grid.selected.size} images are selected.` : "";
  byId("current-caption").textContent = `${names[image]}: ${described(image)}.${more}`;
  if (shownLarge === image) return;
  shownLarge = image;
  try {
    const address = URL.createObjectURL(await (await ask(`picture/${image}?large=true`)).blob());
    if (shownLarge !== image) return URL.revokeObjectURL(address);
    if (picture.src.startsWith("blob:")) URL.revokeObjectURL(picture.src);
    makeEnlargeable(picture).src = address;
    picture.alt = `The current image, ${names[image]}`;
  } catch (error) {
    byId("current-caption").textContent = error.message;
  }
}

function showFinish({ running, message, written, error }) {
  byId("finish-state").textContent = running ? `${message} …` : error;
  byId("finish-state").className = error ? "problem" : "";
  byId("finish").querySelector("button").disabled = running;
  byId("written").replaceChildren(...written.map((textContent) => element("li", { textContent })));
}

const tell = (text) => (byId("status").textContent = text);

const counted = (images) => (images.length === 1 ? names[images[0]] : `${images.length} images`);

/** Send an action; say what it did, or why it failed. */
async function act(address, values, told) {
  const images = values.images ?? [];
  for (const image of images) pending.add(image);
  goOn(images);
  try {
    const next = await post(address, values);
    byId("problem").textContent = "";
    tell(told);
    for (const image of images) pending.delete(image);
    await take(next);
  } catch (error) {
    for (const image of images) pending.delete(image);
    showState();
    fail(error);
  }
}

function fail(error) {
  if (error.status === 401) {
    byId("work").hidden = true;
    byId("token-form").hidden = false;
    byId("token").focus();
  }
  byId("problem").textContent = error.message;
}

/** The selected images, in the order of the grid. */
const chosen = () => grid.items.filter((image) => grid.selected.has(image));

/** Go on behind the images that were dealt with; views without labelled images lose them. */
function goOn(images) {
  if (images.length === 0) return;
  const stay = view === "all" || view === "doubtful" || view.startsWith("class ");
  if (stay) grid.moveTo(Math.max(...images.map((image) => grid.items.indexOf(image))) + 1);
  else grid.show(itemsOfView());
}

async function label(name) {
  const images = chosen();
  if (images.length) await act("label", { images, label: name }, `${counted(images)}: ${name}.`);
}

/** Give every selected image without a label the class that is suggested. */
async function accept() {
  const images = chosen().filter((image) => isOpen(image) && state.suggested[image] >= 0);
  if (images.length === 0) return tell("There is no suggestion to accept here.");
  const label = images.map((image) => state.classes[state.suggested[image]].name);
  const told = new Set(label).size === 1 ? label[0] : "labelled as suggested";
  await act("label", { images, label, by: "suggestion" }, `${counted(images)}: ${told}.`);
}

async function skip() {
  const images = chosen().filter(isOpen);
  if (images.length) await act("skip", { images }, `${counted(images)}: skipped.`);
}

const undo = () => act("undo", {}, "The last action is taken back.");

function selectCluster() {
  const cluster = state.clusters[grid.image];
  if (cluster < 0) return;
  const stay = view === "all" ? grid.items : grid.items.filter(isOpen);
  grid.selectImages(stay.filter((image) => state.clusters[image] === cluster));
  tell(`${grid.selected.size} images of a cluster are selected.`);
}

function selectRow() {
  grid.selectRow();
  tell(`${grid.selected.size} images of a row are selected.`);
}

function choose(wanted) {
  view = wanted;
  grid.box.scrollTop = 0;
  [grid.items, grid.current] = [[], 0];
  grid.selected.clear();
  showState();
  grid.box.focus();
}

const MOVES = {
  ArrowLeft: () => -1, ArrowRight: () => 1, ArrowUp: () => -grid.columns, ArrowDown: () => grid.columns,
  PageUp: () => -4 * grid.columns, PageDown: () => 4 * grid.columns, Home: () => -grid.items.length, End: () => grid.items.length,
};
const KEYS = {
  z: undo, r: selectRow, c: selectCluster, n: () => byId("class-name").focus(),
  Enter: accept, " ": skip, Escape: () => grid.moveTo(grid.current),
};

document.addEventListener("keydown", (event) => {
  if (!state || event.ctrlKey || event.altKey || event.metaKey || byId("enlarged").open) return;
  if (event.target.matches("input, select, summary")) {
    if (event.key === "Escape") grid.box.focus();
    return;
  }
  const onButton = event.target.matches("button, img");
  if (onButton && (event.key === "Enter" || event.key === " ")) return;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const digit = Number(key);
  if (key !== " " && digit >= 1 && digit <= state.classes.length) {
    label(state.classes[digit - 1].name);
  } else if (MOVES[key]) {
    grid.moveTo(grid.current + MOVES[key](), event.shiftKey);
  } else if (KEYS[key]) {
    KEYS[key]();
  } else return;
  event.preventDefault();
});

byId("new-class").addEventListener("submit", async (event) => {
  event.preventDefault();
  const name = byId("class-name").value.trim();
  if (!name) return;
  byId("class-name").value = "";
  grid.box.focus();
  await label(name);
});
for (const [id, action] of [["accept", accept], ["skip", skip], ["undo", undo]]) byId(id).addEventListener("click", action);
byId("look-again").addEventListener("click", () => choose("doubtful"));
byId("view").addEventListener("change", () => choose(byId("view").value));
byId("finish").addEventListener("submit", (event) => {
  event.preventDefault();
  const [folder, files] = [byId("out").value, byId("files").value];
  act("finish", { folder, files, train: byId("train").checked, scratch: byId("scratch").checked }, "Finishing.");
});
byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  keepToken(byId("token").value.trim());
  begin();
});

async function begin() {
  try {
    const first = await post("rescan", {});
    byId("token-form").hidden = true;
    byId("work").hidden = false;
    byId("problem").textContent = "";
    await take(first);
    grid.box.focus();
    follow();
  } catch (error) {
    fail(error);
  }
}

let following = false;

/** Look for what the model has learnt and what other tabs have done. */
async function follow() {
  if (following) return;
  following = true;
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, PAUSE));
    try {
      await take(await (await ask(`state?since=${state.version}`)).json());
      if (byId("problem").dataset.gone) [byId("problem").textContent, byId("problem").dataset.gone] = ["", ""];
    } catch (error) {
      byId("problem").textContent = error.message;
      byId("problem").dataset.gone = "yes";
      if (error.status === 401) break;
    }
  }
  following = false;
}

takeTokenFromAddress();
begin();
