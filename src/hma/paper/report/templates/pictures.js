"use strict";
for (const scene of document.querySelectorAll(".scene")) {
  const glass = scene.querySelector(".glass");
  const examples = JSON.parse(scene.dataset.examples);
  const say = (parts) => {
    glass.replaceChildren();
    for (const [words, key] of parts) {
      const told = document.createElement("div");
      told.className = "told";
      glass.append(told);
      const shown = key ? examples[key] : null;
      if (shown && shown[0]) {
        const image = document.createElement("img");
        image.src = shown[0];
        image.alt = "";
        told.append(image);
      }
      const box = document.createElement("div");
      for (const line of shown && shown[1] ? [...words, shown[1]] : words) {
        const text = document.createElement("p");
        text.textContent = line;
        box.append(text);
      }
      told.append(box);
    }
  };
  for (const panel of scene.querySelectorAll(".view")) {
    const svg = panel.querySelector("svg");
    const shades = svg.querySelector(".shades");
    (shades ? fields : points)(panel, svg, say, shades);
  }
}

function points(panel, svg, say) {
  const marks = [...svg.querySelectorAll(".point")];
  const words = marks.map((mark) => mark.querySelector("title").textContent.split("\n"));
  marks.forEach((mark) => mark.querySelector("title").remove()); // said in the glass instead
  let chosen = -1;
  const choose = (place) => {
    marks.forEach((mark) => mark.classList.remove("chosen", "near"));
    chosen = place;
    svg.classList.toggle("asked", place >= 0);
    if (place < 0) return;
    const mark = marks[place];
    mark.classList.add("chosen");
    const near = (mark.dataset.near || "").split(" ").filter(Boolean).map(Number);
    near.forEach((other) => marks[other].classList.add("near"));
    const parts = [[words[place], mark.dataset.example]];
    near.forEach((other) => {
      if (marks[other].dataset.example) parts.push([[words[other][0]], marks[other].dataset.example]);
    });
    say(parts);
  };
  marks.forEach((mark, place) => mark.addEventListener("pointerenter", () => choose(place)));
  marks.forEach((mark, place) => mark.addEventListener("click", () => choose(place)));
  svg.addEventListener("pointerleave", () => choose(-1));
  panel.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") choose(-1);
    if (step === undefined || !marks.length) return;
    event.preventDefault();
    choose(chosen < 0 ? (step > 0 ? 0 : marks.length - 1) : (chosen + step + marks.length) % marks.length);
  });
}

function fields(panel, svg, say, shades) {
  const found = JSON.parse(shades.dataset.fields);
  const cross = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  cross.setAttribute("class", "cross");
  cross.setAttribute("vector-effect", "non-scaling-stroke");
  cross.setAttribute("width", 1);
  cross.setAttribute("height", 1);
  let row = -1;
  let column = -1;
  const choose = (toRow, toColumn) => {
    row = Math.min(Math.max(toRow, 0), found.rows.length - 1);
    column = Math.min(Math.max(toColumn, 0), found.columns.length - 1);
    cross.setAttribute("x", column);
    cross.setAttribute("y", row);
    shades.append(cross);
    const value = found.values[row][column];
    const said = value === null ? "nothing measured" : `${found.title}: ${value.toFixed(found.digits)}`;
    say([[[found.rows[row][0]], found.rows[row][1]],
      [[`→ ${found.columns[column][0]}`, said], found.columns[column][1]]]);
  };
  svg.addEventListener("pointermove", (event) => {
    const place = new DOMPoint(event.clientX, event.clientY).matrixTransform(shades.getScreenCTM().inverse());
    const inside = place.x >= 0 && place.y >= 0 && place.x < found.columns.length && place.y < found.rows.length;
    if (inside) choose(Math.floor(place.y), Math.floor(place.x));
  });
  panel.addEventListener("keydown", (event) => {
    const steps = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };
    if (!steps[event.key]) return;
    event.preventDefault();
    if (row < 0) choose(0, 0);
    else choose(row + steps[event.key][0], column + steps[event.key][1]);
  });
}
