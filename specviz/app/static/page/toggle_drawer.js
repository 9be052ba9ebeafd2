/* Shows or hides the further settings, which stay in the page. */
() => {
  const button = document.getElementById(BUTTON);
  const open = document.getElementById(DRAWER).classList.toggle("is-open");
  button.setAttribute("aria-expanded", String(open));
}
