// A viewer for images of any size: tiles at the resolution that is needed, pan and zoom. What lies over the image is
// drawn by the page. Places are (x, y) in pixels of the finest level.

const [MOST_TILES, MOST_LOADING, LARGEST_SCALE] = [300, 6, 16];

export class Viewer {
  /** `load(level, row, column)` returns a promise of an ImageBitmap; `drawOver(context, viewer)` is called last. */
  constructor(canvas, { width, height, tile, levels }, load, drawOver) {
    Object.assign(this, { canvas, width, height, tile, levels, load, drawOver });
    this.context = canvas.getContext("2d");
    this.tiles = new Map();
    this.wanted = [];
    this.loading = 0;
    this.changed = () => {};
    new ResizeObserver(() => this.resize()).observe(canvas);
    this.resize();
    this.showWhole();
  }

  resize() {
    const { clientWidth, clientHeight } = this.canvas;
    this.ratio = window.devicePixelRatio || 1;
    [this.canvas.width, this.canvas.height] = [clientWidth, clientHeight].map((side) => Math.max(1, Math.round(side * this.ratio)));
    [this.shownWidth, this.shownHeight] = [Math.max(1, clientWidth), Math.max(1, clientHeight)];
    this.move();
  }

  get wholeScale() {
    return Math.min(this.shownWidth / this.width, this.shownHeight / this.height);
  }

  showWhole() {
    [this.x, this.y, this.scale] = [this.width / 2, this.height / 2, this.wholeScale];
    this.move();
  }

  /** Keep the view on the image, draw it, and say that it has changed. */
  move() {
    if (!this.scale) return;
    this.scale = Math.min(LARGEST_SCALE, Math.max(this.scale, this.wholeScale / 2));
    this.x = Math.min(this.width, Math.max(0, this.x));
    this.y = Math.min(this.height, Math.max(0, this.y));
    this.draw();
    this.changed();
  }

  panBy(dx, dy) {
    [this.x, this.y] = [this.x - dx / this.scale, this.y - dy / this.scale];
    this.move();
  }

  /** Zoom, so that the place at (left, top) on the canvas stays where it is. */
  zoom(factor, left = this.shownWidth / 2, top = this.shownHeight / 2) {
    const [x, y] = this.toImage(left, top);
    this.scale = Math.min(LARGEST_SCALE, Math.max(this.scale * factor, this.wholeScale / 2));
    this.x = x - (left - this.shownWidth / 2) / this.scale;
    this.y = y - (top - this.shownHeight / 2) / this.scale;
    this.move();
  }

  toImage(left, top) {
    return [this.x + (left - this.shownWidth / 2) / this.scale, this.y + (top - this.shownHeight / 2) / this.scale];
  }

  toCanvas(x, y) {
    return [(x - this.x) * this.scale + this.shownWidth / 2, (y - this.y) * this.scale + this.shownHeight / 2];
  }

  /** The part of the image that is shown. */
  get view() {
    const [[left, top], [right, bottom]] = [this.toImage(0, 0), this.toImage(this.shownWidth, this.shownHeight)];
    return { top: Math.max(0, top), left: Math.max(0, left), bottom: Math.min(this.height, bottom), right: Math.min(this.width, right) };
  }

  /** Draw before the next frame, however often it is asked for. */
  draw() {
    if (this.isDue) return;
    this.isDue = true;
    requestAnimationFrame(() => {
      this.isDue = false;
      this.drawNow();
    });
  }

  drawNow() {
    const { context } = this;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.imageSmoothingEnabled = this.scale < 2;
    const finest = Math.min(this.levels - 1, Math.max(0, Math.floor(Math.log2(1 / (this.scale * this.ratio)) + 0.3)));
    this.wanted = [];
    // Coarse tiles first: they show while finer ones are on their way.
    for (let level = this.levels - 1; level >= finest; level -= 1) {
      for (const [row, column] of this.tilesInView(level)) this.drawTile(level, row, column, level === finest || level === this.levels - 1);
    }
    this.loadNext();
    this.drawOver(context, this);
  }

  tilesInView(level) {
    const [{ top, left, bottom, right }, side, found] = [this.view, this.tile * 2 ** level, []];
    for (let row = Math.floor(top / side); row * side < bottom; row += 1) {
      for (let column = Math.floor(left / side); column * side < right; column += 1) found.push([row, column]);
    }
    return found;
  }

  drawTile(level, row, column, isWanted) {
    const key = `${level}/${row}/${column}`;
    const picture = this.tiles.get(key);
    if (!picture) {
      if (isWanted && picture === undefined) this.wanted.push([key, level, row, column]);
      return;
    }
    this.tiles.delete(key);
    this.tiles.set(key, picture); // the last ones to be dropped
    const side = this.tile * 2 ** level;
    const [left, top] = this.toCanvas(column * side, row * side);
    const [right, bottom] = this.toCanvas(Math.min(this.width, column * side + picture.width * 2 ** level), Math.min(this.height, row * side + picture.height * 2 ** level));
    this.context.drawImage(picture, left, top, right - left + 0.5, bottom - top + 0.5);
  }

  async loadNext() {
    while (this.loading < MOST_LOADING && this.wanted.length > 0) {
      const [key, ...place] = this.wanted.shift();
      this.tiles.set(key, null); // on its way
      this.loading += 1;
      this.load(...place)
        .then((picture) => this.tiles.set(key, picture), () => this.tiles.delete(key))
        .finally(() => {
          this.loading -= 1;
          for (const old of [...this.tiles.keys()].slice(0, Math.max(0, this.tiles.size - MOST_TILES))) this.tiles.delete(old);
          this.draw();
        });
    }
  }
}
