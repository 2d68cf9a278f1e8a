"""The server as replicas of Ray Serve, until Ctrl-C or SIGTERM. It needs pip install 'gencli[serve,ray]'.

Options of a run come from variables, as in GENCLI_MODEL=tiny GENCLI_TOP_P=0.9; the key is GENCLI_API_KEY.
Requests with one X-Session-Id go to one replica. RAY_ADDRESS names a cluster; without it Ray starts here.
"""

import argparse
import os
import signal
from contextlib import ExitStack, suppress

from gencli.batch.ray_workers import connected


class Replica:
    """One copy of the model, with the routes of `gencli serve`."""

    def __init__(self, variables: dict[str, str], hosts: list[str]) -> None:
        from gencli.runtime.model_loading import StoringReporter
        from gencli.server.served_models import make_plan
        from gencli.server.serving import load_models

        self.models = load_models(make_plan({"allow_host": hosts}, variables), StoringReporter(), ExitStack())

    def __serve_build_asgi_app__(self):  # Ray Serve calls it for the app
        from gencli.server.asgi_app import make_app

        return make_app(self.models)

    def check_health(self) -> None:  # if it raises, Ray Serve replaces the replica
        assert self.models.state != "dead"


parser = argparse.ArgumentParser(description=__doc__)
for name, default in {"replicas": 2, "cpus": 1.0, "gpus": 0.0, "host": "127.0.0.1", "port": 8000}.items():
    parser.add_argument(f"--{name}", type=type(default), default=default, help=f"default: {default}")
parser.add_argument("--allow-host", action="append", default=[])
args = parser.parse_args()
variables = {name: value for name, value in os.environ.items() if name.startswith("GENCLI_")}
signal.signal(signal.SIGTERM, signal.default_int_handler)
with connected():
    from ray import serve  # not before: `connected` sets Ray's variables

    deployment = serve.deployment(serve.ingress()(Replica)).options(
        num_replicas=args.replicas,
        ray_actor_options={"num_cpus": args.cpus, "num_gpus": args.gpus},
        request_router_config={
            "request_router_class": "ray.serve.experimental.consistent_hash_router.ConsistentHashRouter"
        },
        max_ongoing_requests=10_000,  # more than a replica accepts: the 429 is its own
        health_check_period_s=2,
    )
    serve.start(http_options={"host": args.host, "port": args.port})
    with suppress(KeyboardInterrupt):
        serve.run(deployment.bind(variables, args.allow_host), name="gencli", blocking=True)
    serve.delete("gencli")
