"""How instances are found: keys and values of etcd, and the streams that follow from them.

Import from the modules: `feed.RegistryFeed` brings etcd's changes into the registry, `plan.plan` turns the
registry into wanted streams. Nothing is imported here, so that planning needs no etcd client.
"""
