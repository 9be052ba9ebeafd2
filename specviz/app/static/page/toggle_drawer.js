/* Opens the panel DRAWER over the page by its BUTTON, and makes it a popover of that button, which the browser then closes by itself. */
() => {
  const [drawer, button] = [DRAWER, BUTTON].map((name) => document.getElementById(name));
  if (drawer.popover) return;
  drawer.popover = "auto";
  drawer.showPopover();
  setTimeout(() => button.setAttribute("popovertarget", DRAWER)); // not for this click too
}
