"""Metrics of other packages as holdfast metrics: `holdfast.metrics.get("quantus:MaxSensitivity", nr_samples=20)`."""

from holdfast.integrations.peers.base import PeerMetric, PeerResult
from holdfast.integrations.peers.names import peer_class, peer_names

__all__ = ["PeerMetric", "PeerResult", "peer_class", "peer_names"]
