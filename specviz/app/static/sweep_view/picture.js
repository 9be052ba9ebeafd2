/** Saves a drawing of the page as a standalone picture, with words above and below it. Text stays text. Knows nothing of charts. */

import { attributes, shape } from "../shared/dom.js";
import { download } from "../shared/download.js";

const STYLES = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-size", "font-weight"];
const FONT = "Inter, Helvetica, Arial, sans-serif";
const MARGIN = 28, SCALE = 2; // pixels; and how much larger a PNG is

/** Words in lines of so many letters at most. */
function wrapped(words, letters) {
  const lines = [];
  for (const word of words.split(" ").filter(Boolean)) {
    if (lines.length && (lines.at(-1) + " " + word).length <= letters) lines.push(lines.pop() + " " + word);
    else lines.push(word);
  }
  return lines;
}

/** A copy of the drawing on `paper`, its styles written out: `head` above it, the sentences `more` below that, `source` at the foot. */
export function pictureOf(svg, { paper, ink, head, more, source }) {
  const copy = svg.cloneNode(true);
  const [from, to] = [svg, copy].map((each) => [...each.querySelectorAll("*")]);
  from.forEach((node, at) => {
    const style = getComputedStyle(node);
    for (const name of STYLES) to[at].style.setProperty(name, style.getPropertyValue(name));
  });
  const { width, height } = svg.viewBox.baseVal;
  const words = [...wrapped(head, width / 10.4).map((line) => [line, 18, 700]), ...wrapped(more, width / 7.4).map((line) => [line, 12.5, 400])];
  let y = MARGIN;
  const said = words.map(([line, size, weight]) => text(line, (y += 1.35 * size), size, weight));
  attributes(copy, { x: MARGIN, y: y + 16, width, height, overflow: "visible" }); // letters of another font may be wider
  const [wide, high] = [1.04 * width + 2 * MARGIN, y + height + 62];
  const whole = shape("svg", { xmlns: "http://www.w3.org/2000/svg", viewBox: "0 0 " + wide + " " + high, width: wide, height: high, "font-family": FONT });
  whole.append(shape("rect", { width: wide, height: high, fill: paper }), ...said, copy, text(source, high - 20, 12, 400));
  return whole;

  function text(line, top, size, weight) {
    const found = shape("text", { x: MARGIN, y: top, "font-size": size, "font-weight": weight, fill: ink });
    found.textContent = line;
    return found;
  }
}

/** Let the browser save a picture as "svg" or "png". */
export async function savePicture(name, picture, format) {
  const markup = new XMLSerializer().serializeToString(picture);
  if (format === "svg") return download(name + ".svg", "image/svg+xml", markup);
  const image = new Image();
  image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(markup);
  await image.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [SCALE * image.width, SCALE * image.height];
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return download(name + ".png", "image/png", await new Promise((done) => canvas.toBlob(done, "image/png")));
}
