"""Which instances exist, in which state, with which role and load.

Import from the modules: `registry.Registry` for the registry itself, `model` for what it holds. Only
`health` does I/O; `state` decides every transition, and nothing here knows where events come from.
"""
