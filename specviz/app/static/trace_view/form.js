/**
 * The form around a view of one run. Its controls are the page's: they tell their values by events on the document, and the server
 * sets them. Knows settings and the settings of a run; draws nothing.
 *
 *   "specviz-form"      all settings, in window.specvizForm[""]; see page/tell_form.js
 *   "specviz-lenience"  {group, method, lenience, rests}, from the lenience slider, while it moves
 *   "specviz-save"      what is to be saved: "picture", "page" or "trace"
 */

import { finite } from "../shared/dom.js";

const GROUP = "";

/** `fill({method, lenience})` is called when the form is to show these. */
export function createForm(fill) {
  const values = () => window.specvizForm?.[GROUP] ?? null;
  const listen = (name, heard) => document.addEventListener(name, ({ detail }) => heard(detail));
  let asked = null;
  listen("specviz-lenience", (detail) => detail.group === GROUP && (asked = detail));

  /** Whether the form asks for what a fork cannot show: other settings than method and lenience, or a rule. */
  function differs(run) {
    const form = values();
    if (!form || !run?.pair) return false;
    const own = { ...run, draft_length: run.draft_length ?? "auto" };
    const same = (name) => !(name in form) || form[name] === own[name];
    const penalty = String(form.repetition_penalty ?? "").trim();
    return !["pair", "prompt", "draft_length", "temperature", "top_k", "top_p", "min_p", "seed", "max_new_tokens"].every(same)
      || (penalty !== "" && Number(penalty) !== finite(run.repetition_penalty, 1))
      || (form.method === "own_rule" && (form.rule !== run.rule || run.method !== form.method));
  }

  return {
    differs,
    fill,
    /** The method and the lenience that the form shows; null before it has told them. */
    asked: () => asked,
    onAsk: (heard) => listen("specviz-lenience", (detail) => detail.group === GROUP && heard(detail)),
    onChange: (heard) => listen("specviz-form", (group) => group === GROUP && heard()),
    onSave: (heard) => listen("specviz-save", heard),
  };
}
