"""WebRTC: the only part that imports aiortc. A `Peer` answers a caller, an `OutgoingPeer` calls."""

from .link import CloseReason, PeerHandler
from .peer import OutgoingPeer, Peer

__all__ = ["CloseReason", "OutgoingPeer", "Peer", "PeerHandler"]
