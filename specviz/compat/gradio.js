// Tab leaves a dropdown with its list closed, and goes to the next control (6.31): gradio closes the list when the focus leaves, its own
// handler of the key opens it again a moment later, and browsers stop at a list that can be scrolled.
addEventListener("keydown", (event) => {
  if (!["Tab", "Shift"].includes(event.key) || event.target.getAttribute?.("role") !== "combobox") return;
  event.stopImmediatePropagation();
  document.getElementById(event.target.getAttribute("aria-controls"))?.setAttribute("tabindex", "-1");
}, true);
