// The training images as marks on a plane, drawn as SVG, and the new image among them.

import { byId, drawing, element } from "./dom.js";
import { makeEnlargeable } from "./enlarge.js";
import { trainingPicture } from "./server.js";

const SHAPES = {
  circle: "M1 0A1 1 0 1 1-1 0A1 1 0 1 1 1 0Z",
  square: "M-.9-.9H.9V.9H-.9Z",
  triangle: "M0-1.2 1.1.8H-1.1Z",
  diamond: "M0-1.3 1.3 0 0 1.3-1.3 0Z",
  "triangle-down": "M0 1.2-1.1-.8H1.1Z",
  plus: "M-.4-1.2H.4V-.4H1.2V.4H.4V1.2H-.4V.4H-1.2V-.4H-.4Z",
};
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

export class Space {
  /** @param gallery names, classes, numbers, support, places and shares of the training images */
  constructor(gallery) {
    this.gallery = gallery;
    this.support = new Set(gallery.support);
    this.points = gallery.places.map(([x, y]) => [x, -y]); // SVG counts downwards
    this.marks = drawing("g");
    this.extras = drawing("g", { class: "over" });
    this.plot = byId("plot");
    this.plot.replaceChildren(this.marks, this.extras);
    this.fresh = null;
    this.chosen = null;
    this.draw();
    this.explain();
    this.ended = new AbortController();
    const options = { signal: this.ended.signal };
    this.plot.addEventListener("click", (event) => this.chooseAt(event), options);
    this.plot.addEventListener("keydown", (event) => this.move(event), options);
    byId("space").hidden = false;
  }

  /** Make room for the training images of another model. */
  close() {
    this.ended.abort();
    byId("space").hidden = true;
    byId("neighbours-title").hidden = true;
    byId("neighbours").replaceChildren();
    byId("shown-caption").textContent = "Select a mark to see its training image.";
    byId("shown-picture").removeAttribute("src");
  }

  explain() {
    const shown = Math.round(100 * (this.gallery.shares[0] + this.gallery.shares[1]));
    byId("space-hint").textContent =
      `${this.points.length} training images on the plane in which their latents differ most (${shown} % of the variance). ` +
      "Large marks are support vectors, the ring is the new image. Click a mark, or use the arrow keys, to see its image.";
    const entries = this.gallery.classes.map((label, number) => {
      const sample = drawing("svg", { viewBox: "-1.4 -1.4 2.8 2.8", "aria-hidden": "true" });
      sample.append(this.shape(number));
      return element("li", {}, sample, element("span", { className: "text", textContent: label }));
    });
    byId("legend").replaceChildren(...entries);
  }

  draw() {
    const all = this.fresh ? [...this.points, this.fresh] : this.points;
    const [left, right] = range(all.map(([x]) => x));
    const [top, bottom] = range(all.map(([, y]) => y));
    const width = Math.max(right - left, ((bottom - top) * 4) / 3) || 1;
    const [middle, centre] = [(left + right) / 2, (top + bottom) / 2];
    const [w, h] = [1.12 * width, 0.84 * width];
    this.unit = w / 400;
    this.plot.setAttribute("viewBox", `${middle - w / 2} ${centre - h / 2} ${w} ${h}`);
    this.marks.replaceChildren(...this.points.map((point, image) => this.mark(point, image)));
    this.drawExtras([]);
  }

  mark([x, y], image) {
    const number = this.gallery.numbers[image];
    const isSupport = this.support.has(image);
    const size = this.unit * (isSupport ? 4.2 : 2.8);
    const kind = isSupport ? "training support" : "training";
    const made = this.shape(number, { class: kind, transform: `translate(${x} ${y}) scale(${size})` });
    made.append(drawing("title"));
    made.firstChild.textContent = `${this.gallery.names[image]}: ${this.gallery.classes[number]}`;
    return made;
  }

  /** Return the mark of a class in its colour; reports and maps have the same. */
  shape(number, attributes = {}) {
    const made = drawing("path", { d: SHAPES[this.gallery.marks[number]], ...attributes });
    made.style.color = this.gallery.colors[number];
    return made;
  }

  drawExtras(neighbours) {
    this.extras.replaceChildren();
    for (const { image } of this.fresh ? neighbours : []) {
      const [[x1, y1], [x2, y2]] = [this.fresh, this.points[image]];
      this.extras.append(drawing("line", { x1, y1, x2, y2, class: "link" }));
    }
    if (this.fresh) this.ring("new", this.fresh, 9);
    if (this.chosen !== null) this.ring("chosen", this.points[this.chosen], 6.5);
    this.neighbours = neighbours;
  }

  ring(kind, [cx, cy], size) {
    this.extras.append(drawing("circle", { cx, cy, r: size * this.unit, class: kind }));
  }

  /** Show where a new image is, and which training images are nearest in the whole latent space. */
  showNew(reasons) {
    this.fresh = reasons.place && [reasons.place[0], -reasons.place[1]];
    this.draw();
    this.drawExtras(reasons.neighbours);
    byId("neighbours-title").hidden = reasons.neighbours.length === 0;
    byId("neighbours").replaceChildren(...reasons.neighbours.map((neighbour) => this.neighbourTile(neighbour)));
    if (reasons.neighbours.length) this.choose(reasons.neighbours[0].image);
  }

  neighbourTile({ image, distance }) {
    const picture = element("img", { alt: "" });
    trainingPicture(image).then((address) => (picture.src = address)).catch(() => {});
    const label = this.gallery.classes[this.gallery.numbers[image]];
    const button = element("button", { type: "button" }, picture, `${label}, ${distance.toFixed(2)}`);
    button.dataset.image = image;
    button.setAttribute("aria-label", `${label}, at a distance of ${distance.toFixed(2)}: ${this.gallery.names[image]}`);
    button.addEventListener("click", () => this.choose(image));
    return element("li", {}, button);
  }

  async choose(image) {
    this.chosen = image;
    this.plot.dataset.chosen = image;
    this.drawExtras(this.neighbours ?? []);
    for (const button of byId("neighbours").querySelectorAll("button")) {
      button.setAttribute("aria-pressed", String(Number(button.dataset.image) === image));
    }
    const label = this.gallery.classes[this.gallery.numbers[image]];
    const role = this.support.has(image) ? ", support vector" : "";
    byId("shown-caption").textContent = `${label}${role}: ${this.gallery.names[image]}`;
    byId("shown-picture").alt = `Training image of ${label}`;
    try {
      const address = await trainingPicture(image);
      if (this.chosen === image) makeEnlargeable(byId("shown-picture")).src = address;
    } catch (error) {
      byId("shown-caption").textContent = error.message;
    }
  }

  chooseAt(event) {
    const place = new DOMPoint(event.clientX, event.clientY).matrixTransform(this.plot.getScreenCTM().inverse());
    this.choose(nearest(this.points, (x, y) => Math.hypot(x - place.x, y - place.y)));
  }

  /** Go to the nearest mark in the direction of an arrow key, from the chosen mark or from the new image. */
  move(event) {
    const arrow = ARROWS[event.key];
    if (!arrow || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    const [x0, y0] = this.chosen === null ? (this.fresh ?? this.points[0]) : this.points[this.chosen];
    const next = nearest(this.points, (x, y) => {
      const ahead = (x - x0) * arrow[0] + (y - y0) * arrow[1];
      const aside = Math.abs((x - x0) * arrow[1]) + Math.abs((y - y0) * arrow[0]);
      return ahead > 1e-9 && aside <= 2 * ahead ? ahead + 2 * aside : Infinity;
    });
    if (next !== null) this.choose(next);
  }
}

function range(values) {
  return [values.reduce((a, b) => Math.min(a, b)), values.reduce((a, b) => Math.max(a, b))];
}

function nearest(points, cost) {
  let [best, least] = [null, Infinity];
  points.forEach(([x, y], image) => {
    const found = cost(x, y);
    if (found < least) [best, least] = [image, found];
  });
  return best;
}
