/**
 * A visitor's page in a class: reports every few seconds that it is open, under a random number that is not stored, and shows the
 * teacher's invitation to a step as a link. It never follows the link by itself. A dismissed invitation does not appear again.
 */

import { poll } from "../shared/poll.js";
import { followTheme } from "../shared/theme.js";

const words = ({ step }) => `Your teacher invites you to step ${step}`;

/** Not crypto.randomUUID, which a page served without TLS lacks. */
const draw = () => [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, "0")).join("");

/** Whether the page is at this step already. */
function isThere(link) {
  const [here, there] = [location.search, link].map((query) => new URLSearchParams(query));
  return ["lesson", "step"].every((name) => here.get(name) === there.get(name));
}

export function mount(element, { props }) {
  const host = element.querySelector(".specviz");
  const line = host.querySelector(".si-line");
  const anchor = line.querySelector("a");
  const visitor = draw();
  const box = Object.assign(document.createElement("div"), { className: "si-box" });
  box.dataset.style = element.dataset.style; // its sheet goes where it goes
  box.append(host);
  element.append(box);
  let awayLink = null;

  function show(invitation) {
    line.hidden = !invitation || invitation.link === awayLink || isThere(invitation.link);
    if (line.hidden) return;
    const lesson = document.querySelector("dialog.sl-player[open]"); // it lies over all else
    if (lesson && !lesson.contains(box)) {
      lesson.append(box);
      lesson.addEventListener("close", () => element.append(box), { once: true });
    }
    if (anchor.textContent !== words(invitation)) anchor.textContent = words(invitation);
    anchor.href = new URL(invitation.link, document.baseURI).href;
    anchor.dataset.link = invitation.link;
  }

  line.querySelector("button").addEventListener("click", () => {
    awayLink = anchor.dataset.link;
    line.hidden = true;
  });
  followTheme(host);
  poll(element, props.seconds, "class/now?visitor=" + visitor, ({ invitation }) => show(invitation));
}
