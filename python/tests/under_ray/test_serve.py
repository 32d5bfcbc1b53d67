"""Values of `phalanx.ray.share` and arrays in requests to deployments of Serve, in which nothing is changed."""

from __future__ import annotations

import numpy as np
import pytest

import phalanx
import phalanx.ray


@pytest.fixture
def serve(ray_cluster):
    """Serve without its HTTP proxies."""
    from ray import serve

    serve.start(proxy_location="Disabled")
    yield serve
    serve.shutdown()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of pydantic's, in Ray
def test_the_body_of_a_request_of_serve_travels_by_phalanx(serve, eventually):
    """It goes to a deployment on one host, which passes it on to another one on the other host."""

    def seen(body):
        array = body["images"]
        return type(array).__name__, float(array.sum()), array._bundle.ref.id if "_bundle" in vars(array) else None

    @serve.deployment(ray_actor_options={"num_cpus": 0.1, "resources": {"n1": 1}})
    class Model:
        def __call__(self, body):
            return seen(body)

    @serve.deployment(ray_actor_options={"num_cpus": 0.1, "resources": {"n0": 1}})
    class FrontEnd:
        def __init__(self, model):
            self._model = model

        async def __call__(self, body):
            return [seen(body), await self._model.remote(body)]

    handle = serve.run(FrontEnd.bind(Model.bind()), route_prefix=None)
    body = phalanx.ray.share({"images": np.ones((100, 1000), np.float32), "number": 7})
    object_id = body["images"]._bundle.ref.id
    assert handle.remote(body).result(timeout_s=60) == [("Array", 100_000.0, object_id)] * 2
    # Each host has got it once: the nodes of the driver and of the two deployments.
    ref = phalanx.ObjectRef(object_id)
    eventually(lambda: phalanx.stat(ref).complete_copies == 3)
    # An array that is not shared is pickled with its elements.
    plain = {"images": phalanx.ray.array(np.ones(1000))}
    assert handle.remote(plain).result(timeout_s=60) == [("Array", 1000.0, None)] * 2
