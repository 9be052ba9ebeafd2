/* Sets one draft length for all panes. */
(length, panes) => JSON.stringify(JSON.parse(panes).map((pane) => ({ ...pane, draft_length: length })))
