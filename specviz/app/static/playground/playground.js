/**
 * The playground: six words, two distributions to set by hand, and what a method makes of them, at every move.
 * Computes with methods.js in the browser; knows no model, no trace and no server. The tour shows parts of it.
 *
 * createPlayground(host, {methods, start, controls, shows, offered, keepLenience}) -> {state, view()}
 *   methods   name -> {title, formula, sentence, score_label, threshold_label, range, default_lenience, ends}
 *   start     what differs from START
 *   controls  which of "presets", "method", "lenience", "temperature", "distributions" can be moved
 *   shows     which of "figures", "rule", "table", "throws", "changed" are shown
 *   offered   the names of the methods to choose from; all, if left out
 *   keepLenience  whether another method takes over the lenience; else it comes with its own
 */

const WORDS = ["Canberra", "Sydney", "Melbourne", "Perth", "a", "the"];
const PRESETS = {
  "confident and wrong": { q1: [0.16, 0.66, 0.1, 0.04, 0.02, 0.02], p1: [0.8, 0.1, 0.04, 0.02, 0.02, 0.02] },
  "confident and right": { q1: [0.7, 0.16, 0.06, 0.03, 0.02, 0.03], p1: [0.86, 0.06, 0.03, 0.02, 0.01, 0.02] },
  "both unsure": { q1: [0.22, 0.3, 0.18, 0.12, 0.1, 0.08], p1: [0.28, 0.2, 0.16, 0.12, 0.1, 0.14] },
  "they agree": { q1: [0.5, 0.25, 0.12, 0.06, 0.04, 0.03], p1: [0.52, 0.24, 0.12, 0.06, 0.03, 0.03] },
  "verifier sure": { q1: [0.3, 0.35, 0.15, 0.1, 0.04, 0.06], p1: [0.95, 0.02, 0.01, 0.01, 0.005, 0.005] },
};
const STEP = 0.01;
const START = { ...PRESETS["confident and wrong"], method: "cascade_tokenV3", lenience: 0.5, temperature: 1, seed: 1 };
const ALL_CONTROLS = ["presets", "method", "lenience", "temperature", "distributions"];
const ALL_SHOWN = ["figures", "rule", "table", "throws"];

const ruled = (state) =>
  ruling(state.method, distributions(state.q1.map(Math.log), state.p1.map(Math.log), state.temperature), state.lenience);

function createPlayground(host, { methods, start = {}, controls = ALL_CONTROLS, shows = ALL_SHOWN, offered = Object.keys(methods),
  keepLenience = false }) {
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
    lenience: () => rangeControl("Lenience α", "lenience", (lenience) => change({ lenience })),
    temperature: () => rangeControl("Temperature", "temperature", (temperature) => change({ temperature })),
    distributions: () => distributionsControl((key, values) => change({ [key]: values })),
  };
  const displays = { figures, rule: () => ruleBox(methods), table: outcomeTable, changed: changedFigure,
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
