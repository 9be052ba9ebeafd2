/**
 * The playground: six words, two distributions to set by hand, and what a method makes of them, at every move.
 * Computes with methods.js in the browser; knows no model, no trace and no server. The tour shows parts of it.
 *
 * createPlayground(host, {methods, start, controls, shows, offered, keepLenience}) -> {state, view()}
 *   methods   name -> {title, formula, sentence, score_label, threshold_label, range, default_lenience, ends}
 *   start     what differs from START
 *   controls  which of "presets", "method", "rule", "lenience", "temperature", "distributions" can be moved
 *   shows     which of "figures", "rule", "table", "throws", "changed" are shown
 *   offered   the names of the methods to choose from; all, if left out
 *   keepLenience  whether another method takes over the lenience; else it comes with its own
 */

import { el } from "../shared/dom.js";
import { followTheme } from "../shared/theme.js";
import { OWN_RULE, PRESETS, START, STEP, isComputed, rowOf, ruled, setRows } from "./cases.js";
import { choice, distributionsControl, methodSelect, rangeControl, ruleControl } from "./controls.js";
import { changedFigure, figures, outcomeTable, ruleBox, throwsPanel } from "./displays.js";

const ALL_CONTROLS = ["presets", "method", "rule", "lenience", "temperature", "distributions"];
const ALL_SHOWN = ["figures", "rule", "table", "throws"];

export function createPlayground(host, { methods, start = {}, controls = ALL_CONTROLS, shows = ALL_SHOWN, offered = Object.keys(methods).filter((name) => isComputed(name, methods[name])),
  keepLenience = false }) {
  setRows(methods);
  const state = { ...START, ...start };
  const change = (news) => {
    Object.assign(state, news);
    refresh();
  };
  const preset = () => Object.keys(PRESETS).find((name) => PRESETS[name].q1 === state.q1 && PRESETS[name].p1 === state.p1);
  const makers = {
    presets: () => choice("Start from", "presets", Object.keys(PRESETS).map((name) => [name, name]), (name) => change(PRESETS[name])),
    method: () => (offered.length > 3 ? methodSelect(methods, offered, setMethod)
      : choice("Method", "method", offered.map((name) => [name, methods[name].title]), setMethod)),
    rule: () => ruleControl(methods[OWN_RULE]?.expression ?? "", (rule) => change({ rule })),
    lenience: () => rangeControl("Lenience α", "lenience", (lenience) => change({ lenience })),
    temperature: () => rangeControl("Temperature", "temperature", (temperature) => change({ temperature })),
    distributions: () => distributionsControl((key, values) => change({ [key]: values })),
  };
  const displays = { figures, rule: () => ruleBox(methods, rowOf), table: outcomeTable, changed: changedFigure,
    throws: () => throwsPanel(() => change({ seed: state.seed + 1 })) };
  const parts = Object.fromEntries(controls.map((name) => [name, makers[name]()]));
  const shown = shows.map((name) => [name, displays[name]()]);

  /** Another method, at the lenience it is offered with. */
  function setMethod(method) {
    change(keepLenience ? { method } : { method, lenience: methods[method].default_lenience });
  }

  function refresh() {
    const { range, ends, default_lenience: usual } = methods[state.method];
    const moves = range[0] < range[1];
    parts.presets?.mark(preset());
    parts.method?.mark(state.method);
    parts.rule?.show(state.method === OWN_RULE);
    parts.lenience?.set({ min: moves ? range[0] : 0, max: moves ? range[1] : 1, step: STEP, disabled: !moves,
      value: moves ? state.lenience : usual, ends: moves ? ends : ["this method has no lenience", ""] });
    parts.temperature?.set({ min: 0, max: 2, step: 0.05, value: state.temperature, ends: ["0: greedy", "2"] });
    parts.distributions?.show(state);
    const view = ruled(state);
    for (const [, part] of shown) part.show(view, state);
  }

  const box = (name) => shown.filter(([key]) => (key === "figures") === (name === "figures")).map(([, part]) => part.node);
  host.append(...box("figures"), el("div", "sp-main", el("div", "sp-controls", ...Object.values(parts).map((part) => part.node)),
    el("div", "sp-shown", ...box("rest"))));
  refresh();
  return { state, view: () => ruled(state) };
}

/** Mount the component in gradio’s element. */
export function mount(element, { props }) {
  // On a phone the figures stay in sight above the bars: gradio's container may not clip what is sticky (6.30).
  if (matchMedia("(max-width: 768px)").matches) element.closest(".gradio-container").style.overflow = "clip";
  const host = element.querySelector(".specviz");
  followTheme(host);
  createPlayground(host, { methods: props.methods });
}
