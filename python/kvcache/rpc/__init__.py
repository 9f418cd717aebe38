"""What engines call on the master of their service replicas, over brpc's standard protocol.

`server.RpcServer` listens, `service.MasterService` answers from a registry; `framing` and `calls` know the
protocol and do no I/O. Needs protobuf, of the extra `kvcache[etcd]`.
"""
