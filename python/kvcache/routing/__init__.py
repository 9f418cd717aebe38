"""Which instances serve a request: policies, and the router that asks them.

Import from the modules: `router.Router`, `cache_aware.CacheAware`, `base` for writing a policy of your own.
From memory only: no file here does I/O, and none knows where the registry's rows come from.
"""
