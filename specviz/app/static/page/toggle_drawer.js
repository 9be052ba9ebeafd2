/* Opens the panel DRAWER over the page by its BUTTON. From then on it is a popover of that button: the browser closes it again. */
() => {
  const [drawer, button] = [DRAWER, BUTTON].map((name) => document.getElementById(name));
  if (drawer.popover) return;
  drawer.popover = "auto";
  drawer.showPopover();
  setTimeout(() => button.setAttribute("popovertarget", DRAWER)); // not for this click too
}
