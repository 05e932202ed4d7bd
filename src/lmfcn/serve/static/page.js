// The page: take images, send them to the server, show the predictions.

import { showAnswer } from "./answer.js";
import { Batch } from "./batch.js";
import { byId, element, percent } from "./dom.js";
import { choose, getGallery, getModel, getModels, keepToken, predict, takeTokenFromAddress } from "./server.js";
import { Space } from "./space.js";

const AT_A_TIME = 3;
const DEPTHS = { uint8: "8-bit", uint16: "16-bit", float: "floating point" };

let model = null;
let space = null;
let current = null; // the image that is shown, or about to be
const batch = new Batch(async (item) => {
  byId("problems").replaceChildren();
  await show(item);
  if (current === item && !item.error) byId("answer").focus(); // which also brings it into view
});

async function begin() {
  try {
    offer(await getModels());
    model = await getModel();
    byId("token-form").hidden = true;
    describe();
    space?.close();
    space = model.n_gallery === null ? null : new Space(await getGallery());
  } catch (error) {
    if (error.status === 401) return askForToken();
    byId("model-about").textContent = error.message;
  }
}

function describe() {
  batch.classes = model.classes;
  document.title = `${model.name} – lmfcn`;
  byId("model-name").textContent = model.name;
  const channels = { 1: "grey", 3: "RGB" }[model.channels] ?? `${model.channels}-channel`;
  const size = model.size ? `, brought to ${model.size[0]}×${model.size[1]} pixels` : "";
  byId("model-about").textContent =
    `${model.classes.length} classes: ${listed(model.classes)}. Takes ${DEPTHS[model.pixels]} ${channels} images${size}.`;
  const choice = byId("model").options.length > 0 ? `?model=${encodeURIComponent(model.name)}` : "";
  const address = new URL(`predict${choice}`, location.href);
  byId("curl").textContent = `curl -F files=@image.png ${choice ? `"${address}"` : address}`; // shells expand a bare ?
}

/** Let the user choose if there are several models; an address that ends in ?model=NAME chooses one, too. */
function offer(models) {
  const chooser = byId("model");
  if (chooser.options.length > 0 || models.length < 2) return;
  chooser.append(...models.map(({ name }) => element("option", { value: name, textContent: name })));
  const named = new URLSearchParams(location.search).get("model");
  if (models.some(({ name }) => name === named)) chooser.value = named;
  choose(chooser.value);
  byId("model-choice").hidden = false;
}

function changeModel() {
  choose(byId("model").value);
  history.replaceState(null, "", `?model=${encodeURIComponent(byId("model").value)}`);
  clear();
  byId("model").focus();
  begin();
}

const listed = (names) => (names.length > 12 ? `${names.slice(0, 12).join(", ")} and ${names.length - 12} more` : names.join(", "));

function askForToken() {
  const again = !byId("token-form").hidden;
  byId("token-problem").textContent = again ? "The token is wrong." : "";
  byId("model-about").textContent = "";
  byId("token-form").hidden = false;
  byId("token").focus();
}

const showStatus = (text) => (byId("status").textContent = text);

const showProblem = (text) => byId("problems").append(element("li", { textContent: text }));

/** Take new images: all of them go into the table, the first is shown. */
async function take(files) {
  if (!model || files.length === 0) return;
  byId("problems").replaceChildren();
  const room = model.limits.files - batch.items.length;
  const items = sized(files).slice(0, Math.max(0, room)).map((file) => ({ file }));
  if (files.length > room) showProblem(`The table holds ${model.limits.files} images; clear it to add more.`);
  if (items.length === 0) return;
  batch.add(items);
  showStatus(items.length === 1 ? `Predicting ${items[0].file.name} …` : `Predicting ${items.length} images …`);
  await show(items[0]);
  await predictAll(items.slice(1));
  const failed = items.filter((item) => item.error).length;
  if (items.length > 1) showStatus(`${items.length - failed} images predicted${failed ? `, ${failed} refused` : ""}.`);
}

function sized(files) {
  return files.filter((file) => {
    const fits = file.size <= model.limits.file_bytes;
    if (!fits) showProblem(`${file.name} has more than the ${model.limits.file_bytes / 1e6} MB allowed.`);
    return fits;
  });
}

/** Predict some images, a few at a time, without reasons; these are requested when one is chosen. */
async function predictAll(items) {
  const waiting = [...items];
  const work = async () => {
    for (let item = waiting.shift(); item; item = waiting.shift()) {
      if (!item.asked) await predictItem(item, false); // it may have been chosen meanwhile
    }
  };
  await Promise.all(Array.from({ length: AT_A_TIME }, work));
}

async function predictItem(item, reasons) {
  item.asked = true;
  try {
    const found = await predict(item.file, reasons);
    if (!item.answer?.reasons) item.answer = found; // the prediction without reasons may arrive later
    if (found.fingerprint !== model.fingerprint) await begin(); // the server has loaded another file of the model
    item.error = null;
  } catch (error) {
    if (error.status === 401) askForToken();
    item.error = error.message;
    showProblem(error.message);
  }
  batch.show(item);
}

/** Show everything about one image. */
async function show(item) {
  current = item;
  if (!item.answer?.reasons) await predictItem(item, true);
  if (current !== item) return;
  batch.mark(item);
  if (item.error) {
    byId("answer").hidden = true;
    showStatus(`${item.file.name} could not be predicted.`);
    return;
  }
  showAnswer(item.answer, model.coverage);
  space?.showNew(item.answer.reasons);
  showStatus(`${item.file.name}: ${item.answer.label}, ${percent(item.answer.probabilities[item.answer.label])}.`);
}

function clear() {
  current = null;
  batch.clear();
  byId("answer").hidden = true;
  byId("problems").replaceChildren();
  showStatus("");
  byId("files").focus();
}

function named(file, number) {
  const plain = file.name && file.name !== "image.png";
  return plain ? file : new File([file], `pasted-${number}.png`, { type: file.type });
}

let pasted = 0;
byId("files").addEventListener("change", (event) => {
  take([...event.target.files]);
  event.target.value = ""; // so that the same file can be chosen again
});
document.addEventListener("paste", (event) => {
  const files = [...(event.clipboardData?.files ?? [])];
  if (files.length) {
    event.preventDefault();
    take(files.map((file) => named(file, ++pasted)));
  }
});
document.addEventListener("dragover", (event) => {
  event.preventDefault();
  byId("drop").classList.add("over");
});
document.addEventListener("dragleave", (event) => {
  if (!event.relatedTarget) byId("drop").classList.remove("over");
});
document.addEventListener("drop", (event) => {
  event.preventDefault();
  byId("drop").classList.remove("over");
  take([...event.dataTransfer.files]);
});
byId("clear").addEventListener("click", clear);
byId("model").addEventListener("change", changeModel);
byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  keepToken(byId("token").value);
  begin();
});

takeTokenFromAddress();
begin();
