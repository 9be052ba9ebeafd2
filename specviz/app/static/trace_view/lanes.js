/**
 * Two lanes on one clock: the measured times at which drafter and verifier worked. Below them, the time that the verifier
 * alone would have taken. The clock starts after prefill.
 */

import { count, el, finite, string } from "../shared/dom.js";
import { clockOf, secondsOf } from "./steps.js";

export const seconds = (value) => (value < 0.1 ? (1000 * value).toFixed(value < 0.01 ? 1 : 0) + " ms" : value.toFixed(2) + " s");

export function createLanes(section) {
  const find = (selector) => section.querySelector(selector);
  const track = (name) => find('[data-lane="' + name + '"] .sv-track');
  let rounds, starts, span, yardstick, plain;

  const share = (value) => (span > 0 ? (100 * value) / span : 0) + "%";

  function piece(round, from, length) {
    const node = el("i", "sv-piece");
    node.style.left = share(from);
    node.style.width = share(length);
    node.dataset.round = String(round);
    return node;
  }

  function show(run, all, measured) {
    rounds = all;
    yardstick = Number.isFinite(measured?.seconds_per_token) ? measured : null;
    let clock = 0;
    starts = rounds.map((round) => (clock += secondsOf(round)) - secondsOf(round));
    const tokens = rounds.reduce((sum, round) => sum + round.tokens.length, 0);
    plain = yardstick && run.method !== "verifier_only" ? tokens * yardstick.seconds_per_token : null;
    span = Math.max(clock, plain ?? 0);
    const busy = { drafter: 0, verifier: 0 };
    for (const name of ["drafter", "verifier"]) {
      const pieces = rounds.map((round, at) => {
        const spent = finite(round[name + "_seconds"]);
        busy[name] += spent;
        return spent > 0 && piece(at, starts[at] + (name === "verifier" ? finite(round.drafter_seconds) : 0), spent);
      });
      track(name).replaceChildren(...pieces.filter(Boolean));
      find('[data-lane="' + name + '"] .sv-lane-sum').textContent = busy[name] > 0 ? seconds(busy[name]) : "did not run";
    }
    find('[data-lane="plain"]').hidden = plain === null;
    if (plain !== null) {
      const whole = piece(0, 0, plain);
      whole.classList.add("sv-whole");
      track("plain").replaceChildren(whole, piece(0, 0, 0));
      find('[data-lane="plain"] .sv-lane-sum').textContent = seconds(plain);
    }
    find(".sv-lanes-note").textContent = note(run, tokens, clock);
  }

  function note(run, tokens, clock) {
    const where = "This run took " + seconds(clock) + " after the prompt was read" +
      (string(run.device) ? " (" + [run.device, string(run.dtype)].filter(Boolean).join(", ") + ")" : "") +
      "; runs that shared a batch share their times. ";
    if (run.method === "verifier_only") return where + "It is the yardstick itself: the verifier alone.";
    if (!yardstick) return where + "The verifier alone was not measured: to compare, run Verifier only with the same settings and replay that run first.";
    return where + "Verifier only would have taken " + count(tokens, "token") + " × " + seconds(yardstick.seconds_per_token) +
      " = " + seconds(plain) + "; measured: " + (string(yardstick.machine) || "the same pair") + ".";
  }

  /** Put the cursor where the clock stood at the end of a step. */
  function move(step) {
    const round = rounds[step.round];
    const clock = starts[step.round] + clockOf(step, round);
    find(".sv-cursor").style.left = share(clock);
    section.dataset.clock = String(clock);
    for (const node of section.querySelectorAll(".sv-piece")) {
      node.classList.toggle("is-now", Number(node.dataset.round) === step.round);
      node.classList.toggle("is-later", Number(node.dataset.round) > step.round);
    }
    if (plain !== null) track("plain").lastChild.style.width = share(step.tokens * yardstick.seconds_per_token);
  }

  return { show, move };
}
