"""Metrics of other packages as standfast metrics: `standfast.metrics.get("quantus:MaxSensitivity", nr_samples=20)`."""

from standfast.integrations.peers.base import PeerMetric, PeerResult
from standfast.integrations.peers.names import peer_class, peer_names

__all__ = ["PeerMetric", "PeerResult", "peer_class", "peer_names"]
