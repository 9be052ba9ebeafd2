/**
 * The lenience slider. Equal distances change the acceptance rate by about the same amount; the expected rates are shown
 * beside it. The value is JSON text, {method, lenience}; fields that an update omits stay as they were, and a lenience of
 * null is the method's default. Pair and temperature come from the group's form, see `page/tell_form.js`. While it moves, it
 * sends the document "specviz-lenience" events: {group, method, lenience, rests, chosen}; `chosen` says whether a person moved it.
 * Knows nothing of runs.
 */

import { el, shape } from "../shared/dom.js";
import { followTheme } from "../shared/theme.js";
import { scaleOf, shortLenience } from "./scale.js";

const STEPS = { ArrowRight: 0.01, ArrowUp: 0.01, ArrowLeft: -0.01, ArrowDown: -0.01, PageUp: 0.1, PageDown: -0.1, Home: -1, End: 1 };
const PAUSE = 120;
const percent = (share) => Math.round(100 * share) + "\u00a0%";
const WORDS = "answers right";

export function mount(element, { props, trigger, watch }) {
  const root = element.querySelector(".sl");
  const part = (name) => root.querySelector(`[data-part="${name}"]`);
  const [number, range, none] = [".sl-number", ".sl-range", ".sl-none"].map((at) => root.querySelector(at));
  const { methods, sweep, title: label, group } = props;
  const around = () => ({ ...props.around, ...window.specvizForm?.[group] });
  const tell = (rests, chosen) =>
    document.dispatchEvent(new CustomEvent("specviz-lenience", { detail: { group, ...state, rests, chosen } }));
  part("label").textContent = label;
  range.setAttribute("aria-label", label);
  number.setAttribute("aria-label", label + ", as a number");

  let state = {};
  let scale = null;
  let sending = 0;

  function send() {
    clearTimeout(sending);
    sending = 0;
    const text = JSON.stringify(state);
    if (props.value !== text) props.value = text;
  }

  /** Takes what a value says, as far as it makes sense. */
  function update(text) {
    let told;
    try {
      told = JSON.parse(text || "{}");
    } catch {
      return;
    }
    const { chosen = false, ...values } = told ?? {};
    const next = { ...state, ...values };
    if (!Object.hasOwn(methods, next.method)) return;
    const method = methods[next.method];
    const [low, high] = method.range;
    const wanted = Number.isFinite(next.lenience) ? next.lenience : method.default_lenience;
    next.lenience = method.none ? method.default_lenience : Math.min(Math.max(wanted, low), high);
    state = next;
    draw();
    number.value = String(state.lenience);
    number.removeAttribute("aria-invalid");
    send();
    tell(true, chosen);
  }

  function draw() {
    const method = methods[state.method];
    if (!method.none) scale = scaleOf(sweep, { ...around(), method: state.method, range: method.range });
    drawTrack(method);
    drawValue();
  }

  /** What only changes with method, pair and temperature. */
  function drawTrack(method) {
    none.hidden = !method.none;
    none.textContent = method.none;
    root.toggleAttribute("data-none", Boolean(method.none));
    number.disabled = range.disabled = Boolean(method.none);
    if (method.none) return;
    [number.min, number.max] = method.range;
    [part("strict").title, part("lenient").title] = method.ends;
    part("strict").textContent = method.ends[0].endsWith("lossless") ? "lossless" : "strict";
    const knots = scale.isMeasured ? scale.knots : [];
    const line = knots.map(([, at, kept]) => `L${100 * at} ${100 * (1 - kept)}`).join("");
    for (const path of root.querySelectorAll("path")) path.setAttribute("d", line && `M0 100${line}L100 100Z`);
    const ticks = knots.slice(1, -1).map(([, at, kept]) =>
      shape("line", { x1: 100 * at, x2: 100 * at, y1: 100 * (1 - kept), y2: 100 }));
    root.querySelector(".sl-knots").replaceChildren(...ticks);
  }

  /** What changes with every movement. */
  function drawValue() {
    if (methods[state.method].none) return;
    const { lenience } = state;
    const at = scale.position(lenience);
    root.style.setProperty("--at", at);
    range.value = at;
    const kept = scale.isMeasured ? percent(scale.acceptance(lenience)) : "";
    const keeps = part("keeps");
    keeps.hidden = !kept;
    keeps.replaceChildren(el("b", "", "≈ " + kept), " accepted in tests");
    const spoken = String(lenience).replace("-", "−");
    range.setAttribute("aria-valuetext", kept ? `${spoken}, about ${kept.replace("\u00a0", " ")} accepted on test questions` : spoken);
    part("note").textContent = note(lenience);
    root.title = about();
  }

  function note(lenience) {
    if (!scale.isMeasured && sweep && !Object.hasOwn(sweep.scales, state.method)) return "not measured for this method";
    if (!scale.isMeasured) return scale.isOtherPair ? "not measured on this pair" : "not measured at this temperature";
    if (scale.isFlat) return "the same at every α";
    return `${WORDS} ≈\u00a0${percent(scale.quality(lenience))}`;
  }

  function about() {
    if (!scale.isMeasured) return "";
    const alone = scale.verifier === null ? "" : ` The verifier alone: ${WORDS} ≈ ${percent(scale.verifier)}.`;
    return `Expected share of accepted draft tokens, from ${sweep.items} short questions on this pair; your prompt will differ. ${note(state.lenience)}.${alone}`;
  }

  /** A visitor moved it. */
  function choose(lenience, soon = false) {
    state = { ...state, lenience };
    drawValue();
    tell(!soon, true);
    clearTimeout(sending);
    if (soon) sending = setTimeout(send, PAUSE);
    else send();
    trigger("input");
  }

  function slide(position, soon) {
    const lenience = shortLenience(scale, Math.min(Math.max(position, 0), 1));
    number.value = String(lenience);
    number.removeAttribute("aria-invalid");
    choose(lenience, soon);
  }

  range.addEventListener("input", () => slide(range.valueAsNumber, true));
  range.addEventListener("change", () => {
    send();
    tell(true, true);
  });
  range.addEventListener("keydown", (event) => {
    const step = STEPS[event.key];
    if (!step || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    slide(scale.position(state.lenience) + step);
  });
  const typed = () => {
    const [low, high] = methods[state.method].range;
    const value = number.valueAsNumber;
    return value >= low && value <= high ? value : null;
  };
  number.addEventListener("input", () => {
    const value = typed();
    number.toggleAttribute("aria-invalid", value === null);
    if (value === null) number.setAttribute("aria-invalid", "true");
    else choose(value);
  });
  number.addEventListener("change", () => {
    if (typed() !== null) return;
    const [low, high] = methods[state.method].range;
    const value = number.valueAsNumber;
    if (Number.isFinite(value)) choose(Math.min(Math.max(value, low), high));
    number.value = String(state.lenience);
    number.removeAttribute("aria-invalid");
  });

  followTheme(root);
  update(props.value);
  watch("value", () => update(props.value));
  document.addEventListener("specviz-form", function heard(event) {
    if (!root.isConnected) document.removeEventListener("specviz-form", heard);
    else if (event.detail === group && state.method) draw();
  });
}
