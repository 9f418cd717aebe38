"""Every metric of the service, one file a subject.

Names are `kvcache_<stream|query|route|registry|etcd|process>_<what>_<unit>`; counters end in `_total`.
Known cells are rendered as zeros, and there are no `_created` series. This room knows no HTTP.
"""

from kvcache.metrics.collector import build_registry
from kvcache.metrics.queries import Outcome, QueryMetrics
from kvcache.metrics.streams import STREAM_METRICS, StreamMetric

__all__ = ["STREAM_METRICS", "Outcome", "QueryMetrics", "StreamMetric", "build_registry"]
