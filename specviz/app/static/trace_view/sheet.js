/**
 * A panel that is a bottom sheet on a phone: opens on request, closes by its button, Escape, a swipe down and Back.
 * On wider screens it is an ordinary panel beside the text. Knows nothing of its content.
 */

const NARROW = "(max-width: 768px)";
const SWIPE = 60; // px down that close it

export function createSheet(panel, onClose) {
  const narrow = matchMedia(NARROW);
  const isOpen = () => panel.hasAttribute("popover") && panel.matches(":popover-open");
  let from = null; // where a touch began

  /** A popover lies above the page, whatever contains it. */
  function fit() {
    if (isOpen()) panel.hidePopover();
    if (narrow.matches) panel.setAttribute("popover", "manual");
    else panel.removeAttribute("popover");
  }

  function open() {
    if (!narrow.matches || isOpen()) return;
    panel.showPopover();
    history.pushState({ specvizSheet: true }, "");
  }

  function hide() {
    panel.hidePopover();
    panel.style.transform = "";
    onClose();
  }

  function close() {
    if (!isOpen()) return;
    if (history.state?.specvizSheet) history.back(); // which hides it
    else hide();
  }

  narrow.addEventListener("change", fit);
  addEventListener("popstate", () => isOpen() && hide());
  addEventListener("keydown", (event) => event.key === "Escape" && close());
  panel.querySelector(".sv-close").addEventListener("click", close);
  panel.addEventListener("touchstart", ({ touches }) => (from = panel.scrollTop <= 0 ? touches[0].clientY : null), { passive: true });
  panel.addEventListener("touchmove", ({ touches }) => {
    if (from !== null && isOpen()) panel.style.transform = "translateY(" + Math.max(0, touches[0].clientY - from) + "px)";
  }, { passive: true });
  panel.addEventListener("touchend", ({ changedTouches }) => {
    const far = from !== null && changedTouches[0].clientY - from > SWIPE;
    panel.style.transform = "";
    if (far) close();
  });
  fit();
  return { open, close, isOpen };
}
