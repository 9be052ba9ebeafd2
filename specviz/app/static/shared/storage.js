/** The browser's storage. If it is denied, as in a frame of another site, nothing is stored and nothing fails. */

/** The text that was remembered under a name; null without. `area` names the storage: of this browser or of this tab. */
export function recall(name, area = "localStorage") {
  try {
    return window[area].getItem(name);
  } catch {
    return null;
  }
}

/** Remember a text; null forgets it. */
export function remember(name, text, area = "localStorage") {
  try {
    if (text === null) window[area].removeItem(name);
    else window[area].setItem(name, text);
  } catch { /* denied, or too large: it is forgotten */ }
}
