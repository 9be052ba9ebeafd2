/** The pages of a class: number of visitors, waiting time and, on the teacher's page, the control that invites to a step. */

import { count } from "../shared/dom.js";
import { poll } from "../shared/poll.js";
import { followTheme } from "../shared/theme.js";

/** A time that somebody waits, in words. */
const seconds = (value) => (value < 0.95 ? "under a second" : value < 9.5 ? value.toFixed(1) + " s" : Math.round(value) + " s");

function nowWords({ here, running, waiting, wait }) {
  const said = [`${count(here, "page")} open`, `${count(running, "text")} being written`, waiting ? `${count(waiting, "text")} waiting` : "nobody waits"];
  if (Number.isFinite(wait)) said.push(`recent wait: ${seconds(wait)}`);
  return said.join(" · ");
}

export function mountClass(host) {
  const find = (name) => host.querySelector(`[data-testid="${name}"]`);
  const form = find("invite");
  const key = new URLSearchParams(location.search).get("key");
  followTheme(host);

  function show(now) {
    const words = nowWords(now);
    if (find("now").textContent !== words) find("now").textContent = words;
    const link = find("step-link");
    link.parentElement.hidden = !now.invitation;
    if (!now.invitation) return;
    link.textContent = `step ${now.invitation.step} of “${now.invitation.lesson}”`;
    link.href = new URL(now.invitation.link, new URL(".", document.baseURI)).href;
  }

  async function invite(asked) {
    const failure = find("invite-failure");
    try {
      const answer = await fetch("class/invite", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ key, ...asked }) });
      const found = await answer.json();
      if (answer.ok) show(found);
      failure.textContent = answer.ok ? "" : found.detail;
    } catch {
      failure.textContent = "The server does not answer: nothing was changed.";
    }
    failure.hidden = failure.textContent === "";
  }

  const asked = () => ({ lesson: form.elements.lesson.value.trim(), step: form.elements.step.valueAsNumber });
  form?.addEventListener("submit", (event) => {
    event.preventDefault();
    invite(asked());
  });
  if (form) {
    find("next").addEventListener("click", () => {
      form.elements.step.stepUp();
      invite(asked());
    });
    find("withdraw").addEventListener("click", () => invite({}));
  }
  poll(host, host.dataset.seconds, "class/now", show);
}
