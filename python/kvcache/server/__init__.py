"""The HTTP service, and what talks to it.

Import from the modules: `app.create_app` to embed the application, `run.serve` to serve it,
`client.Client` to ask it. Nothing is imported here, so that a client needs no HTTP server.
"""
