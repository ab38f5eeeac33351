"""What a conversation wants done, in order: the one way out of it. Sans-I/O."""

from collections import deque

from .actions import Action, Mark, Notify
from .events import ItemAdded, ItemDone, ServerEvent
from .history import Item
from .response import Response


class Outbox:
    """The parts of a conversation put in, whoever drives it takes out."""

    def __init__(self) -> None:
        self._actions: deque[Action] = deque()

    def put(self, action: Action) -> None:
        self._actions.append(action)

    def notify(self, event: ServerEvent) -> None:
        """Tell the client."""
        self.put(Notify(event))

    def notify_item(self, item: Item, previous_item_id: str | None) -> None:
        """Tell of an item that is whole from the beginning."""
        self.notify(ItemAdded(item, previous_item_id))
        self.notify(ItemDone(item, previous_item_id))

    def mark(self, response: Response, name: str, now: float) -> None:
        """Note the first time that a response reaches a stage."""
        if response.mark(name, now):
            self.put(Mark(name, response.id, now))

    def next_action(self) -> Action | None:
        return self._actions.popleft() if self._actions else None
