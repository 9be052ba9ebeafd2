/**
 * The text of a run as nodes, one a token: colour and underline say who had the last word.
 */

/** The token's node: its own text and nothing else, so that the nodes together read as the trace's text. */
function tokenNode(item) {
  const { token, index } = item;
  const node = el("span", "sv-token " + (token.accepted ? "accepted" : "resampled"));
  node.dataset.index = String(index);
  node.dataset.testid = "token";
  node.tabIndex = -1;
  node.setAttribute("role", "option");
  node.setAttribute("aria-selected", "false");
  node.setAttribute("aria-label", spoken(token) + ", " + spokenVerdict(token));
  if (token.special) {
    node.classList.add("special");
    node.dataset.label = visible(token.label) || "#" + token.id;
  } else if (token.text === "") {
    node.classList.add("partial");
  }
  token.text.split("\n").forEach((piece, at) => {
    // The mark is drawn by the style sheet, before the break that stays in the text.
    if (at > 0) node.append(el("i", "sv-newline"), "\n");
    node.append(piece);
  });
  return node;
}

function spokenVerdict(token) {
  if (token.accepted) return isExamined(token) ? "accepted" : "drafted";
  return token.draft ? "resampled, rejected draft " + spoken(token.draft) : "written by the verifier";
}

/** A badge behind a token; several stand side by side. */
function badgeToken(node, badge, words) {
  node.dataset.badge = [node.dataset.badge, badge].filter(Boolean).join(" ");
  node.title = [node.title, words].filter(Boolean).join("; ");
  node.setAttribute("aria-label", node.getAttribute("aria-label") + "; " + words);
}

/** The rejected draft, struck through, before what replaced it. */
function draftNode(item) {
  const text = string(item.token.draft.text);
  const node = el("del", "sv-draft", text.trim() === "" ? nameOf(item.token.draft) : visible(text.trim()));
  node.dataset.for = String(item.index);
  node.dataset.testid = "draft";
  node.setAttribute("aria-hidden", "true");
  return node;
}

/** The nodes of one round, wrapped so that a round can be marked as one. */
function roundNode(items) {
  const node = el("span", "sv-round");
  node.setAttribute("role", "presentation");
  for (const item of items) {
    if (item.token.draft) node.append(el("wbr"), draftNode(item)); // a line may break before the pair, not in it
    item.node = tokenNode(item);
    item.group = node;
    node.append(item.node);
  }
  return node;
}
