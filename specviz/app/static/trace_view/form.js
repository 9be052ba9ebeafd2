/**
 * The form around a view of one run. The page owns its controls: events on the document carry their values, and the server
 * sets them. Knows the form's settings and a run's; draws nothing.
 *
 *   "specviz-form"      all settings, in window.specvizForm[""]; see page/tell_form.js
 *   "specviz-lenience"  {group, method, lenience, rests, chosen}, from the lenience slider, while it moves and when it is filled
 *   "specviz-save"      what to save: "picture", "page" or "trace"
 *   "specviz-open"      a file to show, packed; see page/open_trace.js
 */

import { finite, string } from "../shared/dom.js";

const GROUP = "";

/** Settings that one form has for all runs beside each other, by their names in a run's entry. */
export const SHARED_SETTINGS = ["prompt", "temperature", "top_k", "top_p", "min_p", "seed", "max_new_tokens"];

/** Whether a form asks for another run than this in one of the settings `names`, or in the repetition penalty. What it has not told is as it was. */
export function differs(names, run, form) {
  const penalty = string(form.repetition_penalty).trim();
  return names.some((name) => name in form && form[name] !== run[name])
    || (penalty !== "" && Number(penalty) !== finite(run.repetition_penalty, 1));
}

/** `fill({method, lenience})` is called when the form is to show these. */
export function createForm(fill) {
  const values = () => window.specvizForm?.[GROUP] ?? null;
  const listen = (name, heard) => document.addEventListener(name, ({ detail }) => heard(detail));
  let asked = null;
  listen("specviz-lenience", (detail) => detail.group === GROUP && (asked = detail));

  /** The method and the lenience that the form shows; null before it has told them. */
  function asks() {
    const told = string(values()?.lenience);
    return asked ?? (told ? JSON.parse(told) : null);
  }

  /** Whether the form asks for what is not shown, neither by the run nor by a fork of it with the method and the lenience `shown`. */
  function asksOther(run, shown) {
    const form = values();
    if (!form || !run?.pair) return false;
    const now = asks();
    if (now && (now.method !== shown.method || now.lenience !== shown.lenience)) return true;
    return differs(["pair", "draft_length", ...SHARED_SETTINGS], { ...run, draft_length: run.draft_length ?? "auto" }, form)
      || (form.method === "own_rule" && form.rule !== run.rule);
  }

  return {
    differs: asksOther,
    fill,
    /** What a person chose, as "specviz-lenience" tells it; null where nobody did. */
    chosen: () => (asked?.chosen ? asked : null),
    onAsk: (heard) => listen("specviz-lenience", (detail) => detail.group === GROUP && heard(detail)),
    onChange: (heard) => listen("specviz-form", (group) => group === GROUP && heard()),
    onSave: (heard) => listen("specviz-save", heard),
    onOpen: (heard) => listen("specviz-open", heard),
  };
}
