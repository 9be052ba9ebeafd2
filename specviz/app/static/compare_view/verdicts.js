/**
 * Why each pane has its token at one position: the verdicts, side by side below the panes. If a pane's text differed before that
 * position, the pane says so.
 */

import { attributes, el } from "../shared/dom.js";
import { inspectorNodes } from "../trace_view/inspector.js";

const opened = new Set(); // folds

/** How many tokens two texts share. */
function shared(one, other) {
  const until = one.findIndex((item, at) => item.token.id !== other[at]?.token.id);
  return until < 0 ? one.length : until;
}

/** The panes, by their places, whose text is that of pane `at` up to the token `index`. */
export function alike(panes, at, index) {
  const own = panes[at].text.items();
  return panes.flatMap((pane, place) => (place === at || shared(own, pane.text.items()) >= index ? [place] : []));
}

/** The verdicts on token `index` of pane `at`, one node a pane. */
export function verdictNodes(panes, at, index, methods) {
  const own = panes[at].text.items();
  const places = alike(panes, at, index);
  return panes.map((pane, place) => {
    const item = places.includes(place) ? pane.text.items()[index] : null;
    const column = el("section", "sc-verdict", el("p", "sc-whose", pane.name));
    column.dataset.of = String(place);
    if (item) column.append(...inspectorNodes(item, pane.run, methods, opened));
    else if (places.includes(place)) column.append(el("p", "sc-elsewhere", pane.run ? "This text has ended." : "Not run yet."));
    else column.append(el("p", "sc-elsewhere", "Another text since token " + (shared(own, pane.text.items()) + 1) + "."));
    return attributes(column, { "aria-label": "Pane " + (place + 1) });
  });
}
