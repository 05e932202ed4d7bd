// A grid of thousands of images, of which only those in sight are in the page.

import { byId, element } from "./dom.js";
import { ask } from "./server.js";

const [WIDTH, HEIGHT, SPARE] = [122, 150, 2];
const MOST_PICTURES = 1500;
const pictures = new Map();

/** Return an address for a small picture; the oldest ones are forgotten. */
function picture(image, signal) {
  if (pictures.has(image)) return Promise.resolve(pictures.get(image));
  return ask(`picture/${image}`, { signal }).then(async (response) => {
    const address = URL.createObjectURL(await response.blob());
    pictures.set(image, address);
    if (pictures.size > MOST_PICTURES) {
      const [oldest, old] = pictures.entries().next().value;
      pictures.delete(oldest);
      URL.revokeObjectURL(old);
    }
    return address;
  });
}

export class Grid {
  /** @param draw called with (tile, image) to fill in caption and state; @param moved called when the current image changes */
  constructor(draw, moved) {
    [this.draw, this.moved] = [draw, moved];
    [this.box, this.space] = [byId("grid"), byId("tiles")];
    [this.items, this.current, this.anchor] = [[], 0, 0];
    this.selected = new Set();
    this.tiles = new Map();
    this.box.addEventListener("scroll", () => requestAnimationFrame(() => this.render()), { passive: true });
    new ResizeObserver(() => this.render()).observe(this.box);
    this.box.addEventListener("click", (event) => this.click(event));
  }

  get image() {
    return this.items[this.current];
  }

  get columns() {
    return Math.max(1, Math.floor(this.box.clientWidth / WIDTH));
  }

  /** Show other images; the current one stays the current one if it is still there. */
  show(items) {
    const before = this.image;
    this.items = items;
    const place = before === undefined ? -1 : items.indexOf(before);
    this.current = place >= 0 ? place : Math.max(0, Math.min(this.current, items.length - 1));
    if (place < 0 || this.selected.size === 0) this.selectOnly();
    const there = new Set(items);
    for (const image of this.selected) if (!there.has(image)) this.selected.delete(image);
    if (this.image !== undefined) this.selected.add(this.image);
    this.render();
    if (this.image !== before) this.moved(this.image);
  }

  selectOnly() {
    this.selected = new Set(this.image === undefined ? [] : [this.image]);
    this.anchor = this.current;
  }

  moveTo(place, extend = false) {
    if (this.items.length === 0) return;
    this.current = Math.max(0, Math.min(place, this.items.length - 1));
    if (extend) this.selected = new Set(this.items.slice(Math.min(this.anchor, this.current), Math.max(this.anchor, this.current) + 1));
    else this.selectOnly();
    this.reveal();
    this.render();
    this.moved(this.image);
  }

  selectRow() {
    const start = this.current - (this.current % this.columns);
    this.selectImages(this.items.slice(start, start + this.columns));
  }

  selectImages(images) {
    this.selected = new Set(images);
    this.render();
    this.moved(this.image);
  }

  reveal() {
    const top = Math.floor(this.current / this.columns) * HEIGHT;
    if (top < this.box.scrollTop) this.box.scrollTop = top;
    else if (top + HEIGHT > this.box.scrollTop + this.box.clientHeight) this.box.scrollTop = top + HEIGHT - this.box.clientHeight;
  }

  render() {
    const { columns } = this;
    this.space.style.height = `${Math.ceil(this.items.length / columns) * HEIGHT}px`;
    const first = Math.max(0, Math.floor(this.box.scrollTop / HEIGHT) - SPARE) * columns;
    const last = Math.min(this.items.length, (Math.ceil((this.box.scrollTop + this.box.clientHeight) / HEIGHT) + SPARE) * columns);
    const wanted = new Set(this.items.slice(first, last));
    if (this.image !== undefined) wanted.add(this.image); // screen readers are told of it, in sight or not
    for (const [image, tile] of this.tiles) if (!wanted.has(image)) this.drop(image, tile);
    for (let place = first; place < last; place += 1) this.place(this.items[place], place, columns);
    if (this.image !== undefined) {
      this.place(this.image, this.current, columns);
      this.box.setAttribute("aria-activedescendant", `image-${this.image}`);
    }
  }

  drop(image, tile) {
    tile.stop.abort();
    tile.remove();
    this.tiles.delete(image);
  }

  place(image, place, columns) {
    const tile = this.tiles.get(image) ?? this.make(image);
    tile.style.left = `${(place % columns) * WIDTH + 2}px`;
    tile.style.top = `${Math.floor(place / columns) * HEIGHT + 2}px`;
    tile.setAttribute("aria-posinset", place + 1);
    tile.setAttribute("aria-setsize", this.items.length);
    tile.setAttribute("aria-selected", String(this.selected.has(image)));
    tile.classList.toggle("current", place === this.current);
    this.draw(tile, image, place);
  }

  make(image) {
    const seen = element("img", { alt: "", draggable: false });
    const tile = element("div", { className: "tile", id: `image-${image}` }, seen, element("span", { className: "caption" }));
    tile.setAttribute("role", "option");
    tile.dataset.image = image;
    tile.stop = new AbortController();
    picture(image, tile.stop.signal).then((address) => (seen.src = address)).catch(() => {});
    this.tiles.set(image, tile);
    this.space.append(tile);
    return tile;
  }

  click(event) {
    const tile = event.target.closest(".tile");
    if (!tile) return;
    const image = Number(tile.dataset.image);
    if (event.ctrlKey || event.metaKey) {
      this.selected.has(image) ? this.selected.delete(image) : this.selected.add(image);
      this.render();
      this.moved(this.image);
    } else this.moveTo(this.items.indexOf(image), event.shiftKey);
  }
}
