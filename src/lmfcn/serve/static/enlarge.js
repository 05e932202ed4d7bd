// Any picture of the class "enlargeable" fills the window after a click or the Enter key, in its own shape.

import { byId } from "./dom.js";

export function makeEnlargeable(picture) {
  picture.classList.add("enlargeable");
  picture.tabIndex = 0;
  picture.setAttribute("role", "button");
  picture.title = "Enlarge";
  return picture;
}

function enlarge(picture) {
  byId("enlarged-picture").src = picture.src;
  byId("enlarged-picture").alt = picture.alt;
  byId("enlarged").showModal();
}

document.addEventListener("click", ({ target }) => {
  if (target.closest("#enlarged")) byId("enlarged").close();
  else if (target.matches("img.enlargeable")) enlarge(target);
});
document.addEventListener("keydown", (event) => {
  if ((event.key === "Enter" || event.key === " ") && event.target.matches("img.enlargeable")) {
    event.preventDefault();
    enlarge(event.target);
  }
});
