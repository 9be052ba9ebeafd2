/**
 * The playground: six words, two distributions to set by hand, and a method's ruling, updated at every move.
 * Computes with methods.js in the browser, without models or traces. The page's address names its state.
 *
 * createPlayground(host, {methods})
 *   methods   name -> {title, formula, sentence, score_label, threshold_label, tree, range, default_lenience, ends}
 */

import { write } from "../page/address.js";
import { el } from "../shared/dom.js";
import { rangeControl } from "../shared/range.js";
import { keepRules, readRule } from "../shared/rules.js";
import { followTheme } from "../shared/theme.js";
import { PLACE, queryOf, stateOf } from "./address.js";
import { OWN_RULE, PRESETS, START, STEP, isComputed, rowOf, ruled, setRows } from "./cases.js";
import { choice, distributionsControl, methodSelect, ruleControl } from "./controls.js";
import { figures, outcomeTable, ruleBox, throwsPanel } from "./displays.js";

const PAUSE = 300; // milliseconds without a move before the address names the state

function createPlayground(host, { methods }) {
  setRows(methods);
  keepRules(methods[OWN_RULE] ? [methods[OWN_RULE]] : []);
  const offered = Object.keys(methods).filter((name) => isComputed(name, methods[name]));
  const state = { ...START };
  let followed = null, // the query that was read or written last
    timer = 0;
  const change = (news) => {
    Object.assign(state, news);
    refresh();
    clearTimeout(timer);
    timer = setTimeout(keep, PAUSE);
  };
  const preset = () => Object.keys(PRESETS).find((name) => PRESETS[name].q1 === state.q1 && PRESETS[name].p1 === state.p1);
  const parts = {
    presets: choice("Start from", "presets", Object.keys(PRESETS).map((name) => [name, name]), (name) => change(PRESETS[name])),
    method: methodSelect(methods, offered, setMethod),
    rule: ruleControl(methods[OWN_RULE]?.expression ?? "", (rule) => change({ rule })),
    lenience: rangeControl("Lenience α", "lenience", (lenience) => change({ lenience })),
    temperature: rangeControl("Temperature", "temperature", (temperature) => change({ temperature })),
    distributions: distributionsControl((key, values) => change({ [key]: values })),
  };
  const totals = figures();
  const shown = [totals, ruleBox(methods, rowOf), outcomeTable(), throwsPanel(() => change({ seed: state.seed + 1 }))];

  /** Let the address name the state; moves do not add to the browser's history. */
  function keep() {
    if (!host.offsetParent) return;
    write(PLACE, queryOf(state), false);
    followed = location.search;
  }

  /** Take the state that the address names, unless it was taken already. A query without a state changes nothing. */
  async function follow() {
    if (!host.offsetParent || location.search === followed) return;
    const query = location.search;
    if (new URLSearchParams(query).get("tab") !== PLACE) return;
    followed = query;
    clearTimeout(timer);
    const asked = stateOf(query, methods, offered);
    if (!asked) return;
    write(PLACE, query, false); // so that the page finds it again, also after a reload
    const rule = asked.rule ? await readRule(asked.rule) : undefined;
    if (followed !== query) return; // another one was asked for meanwhile
    Object.assign(state, asked.state, rule?.tree ? { rule } : {});
    if (rule?.tree) parts.rule.set(rule.expression);
    refresh();
  }

  /** Another method, at the lenience it is offered with. */
  function setMethod(method) {
    change({ method, lenience: methods[method].default_lenience });
  }

  function refresh() {
    const { range, ends, default_lenience: usual } = methods[state.method];
    const moves = range[0] < range[1];
    parts.presets.mark(preset());
    parts.method.mark(state.method);
    parts.rule.show(state.method === OWN_RULE);
    parts.lenience.set({ min: moves ? range[0] : 0, max: moves ? range[1] : 1, step: STEP, disabled: !moves,
      value: moves ? state.lenience : usual, ends: moves ? ends : ["this method has no lenience", ""] });
    parts.temperature.set({ min: 0, max: 2, step: 0.05, value: state.temperature, ends: ["0: greedy", "2"] });
    parts.distributions.show(state);
    const view = ruled(state);
    for (const part of shown) part.show(view, state);
  }

  host.append(totals.node, el("div", "sp-main", el("div", "sp-controls", ...Object.values(parts).map((part) => part.node)),
    el("div", "sp-shown", ...shown.slice(1).map((part) => part.node))));
  refresh();
  new ResizeObserver(() => follow()).observe(host); // it came in sight
  addEventListener("popstate", () => follow());
}

/** Mount the component in gradio’s element. */
export function mount(element, { props }) {
  // On a phone the figures stay in sight above the bars: gradio's container may not clip what is sticky (6.30).
  if (matchMedia("(max-width: 768px)").matches) element.closest(".gradio-container").style.overflow = "clip";
  const host = element.querySelector(".specviz");
  followTheme(host);
  createPlayground(host, { methods: props.methods });
}
