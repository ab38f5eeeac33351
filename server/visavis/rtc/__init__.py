"""WebRTC: the only part that imports aiortc. A `Peer` answers a caller, an `OutgoingPeer` calls."""

from .peer import CloseReason, OutgoingPeer, Peer, PeerHandler

__all__ = ["CloseReason", "OutgoingPeer", "Peer", "PeerHandler"]
