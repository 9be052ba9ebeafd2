"""What a Space runs: it looks for `demo`. Everything is in `specviz.app.server`."""

from specviz.app.server import build, serve

demo, service, classroom = (
    build()
)  # sets OpenMP's waiting policy and starts ZeroGPU, both before torch is imported

if __name__ == "__main__":
    serve(demo, service, classroom)
