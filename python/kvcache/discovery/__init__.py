"""Instances come and go: what etcd knows of them, mirrored in this process.

`client` speaks to etcd, `mirror` follows one range of its keys. Needs the extra `kvcache[etcd]`.
"""
