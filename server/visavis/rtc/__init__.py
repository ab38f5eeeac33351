"""WebRTC: the only part that imports aiortc. `Media` makes a `Peer`, which answers, and an `OutgoingPeer`."""

from .backend import CloseReason
from .link import PeerHandler
from .media import Media
from .peer import OutgoingPeer, Peer
from .stats import PeerStats

__all__ = ["CloseReason", "Media", "OutgoingPeer", "Peer", "PeerHandler", "PeerStats"]
