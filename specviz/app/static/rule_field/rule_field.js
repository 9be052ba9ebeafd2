/** The rule field of a tab. Its value is the typed text, valid or not. Mounts `shared/rule_field.js`. */

import { ruleField } from "../shared/rule_field.js";
import { keepRules } from "../shared/rules.js";
import { followTheme } from "../shared/theme.js";

/** Mount the component in gradio’s element. */
export function mount(element, { props, watch }) {
  keepRules(props.known || []);
  const host = element.querySelector(".specviz");
  const field = ruleField(props.value || "", () => {});
  field.input.addEventListener("input", () => (props.value = field.input.value));
  watch("value", () => field.set(props.value || ""));
  followTheme(host);
  host.append(field.node);
}
