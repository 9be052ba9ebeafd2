"""What a server says of its page: components by their ids, events, and which follows which. Knows no visitor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specviz.errors import SpecvizError

if TYPE_CHECKING:
    import httpx

Event = dict[str, Any]
"""A dependency, as gradio calls it: what happens when something else has happened."""


class Site:
    """A page's configuration, read once."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.prefix: str = config.get("api_prefix", "")
        self.heartbeat: bool = bool(config.get("connect_heartbeat"))
        self._events: list[Event] = config["dependencies"]
        self._components = {each["id"]: each["props"] for each in config["components"]}

    @classmethod
    async def read(cls, client: httpx.AsyncClient) -> Site:
        """Ask the server for it.

        Raises:
            SpecvizError: there is no such server.
        """
        import httpx

        try:
            response = await client.get("/config")
            response.raise_for_status()
            return cls(response.json())
        except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
            raise SpecvizError(
                f"No SpecViz answers there ({type(error).__name__}): start one with `python app.py` and give its address."
            ) from error

    def name(self, component: int) -> str:
        """The id that the page gave a component, "" where it gave none."""
        return self._components[component].get("elem_id") or ""

    def value(self, component: int) -> Any:
        """What a component holds when the page is opened."""
        return self._components[component].get("value")

    def event(self, name: str, kind: str) -> Event:
        """What happens when `kind`, such as "click", happens to the component `name`.

        Raises:
            SpecvizError: nothing does.
        """
        for event in self._events:
            if any(
                target and self.name(target) == name and what == kind for target, what in event["targets"]
            ):
                return event
        raise SpecvizError(f"This page has no {name!r} with the event {kind!r}: it is not this version's.")

    def endpoint(self, name: str) -> Event:
        """The event that programs can ask for by this name.

        Raises:
            SpecvizError: there is none.
        """
        for event in self._events:
            if event.get("api_name") == name and event.get("api_visibility") != "private":
                return event
        raise SpecvizError(f"This server offers no endpoint {name!r}.")

    def after(self, event: Event, failed: bool) -> list[Event]:
        """What follows an event. A browser leaves out what just comes after ("then") where the event failed."""
        return [
            each
            for each in self._events
            if each.get("trigger_after") == event["id"]
            and each["backend_fn"]
            and (each.get("trigger_only_on_failure") if failed else not each.get("trigger_only_on_failure"))
        ]
