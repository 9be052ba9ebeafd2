"""Entry point of a Hugging Face Space, which looks for `demo`; see `specviz.app.server`."""

from specviz.app.server import build, serve

# Before torch is imported: `build` sets OpenMP's waiting policy and starts ZeroGPU.
demo, service, classroom = build()

if __name__ == "__main__":
    serve(demo, service, classroom)
