/** Lets the browser save a text as a file. */

import { el } from "./dom.js";
export function download(name, type, text) {
  const link = el("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}
