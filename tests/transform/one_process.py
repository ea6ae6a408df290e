"""One of the processes that train together: `python one_process.py NUMBER COUNT PORT [STEPS]` prints its
losses, each as soon as it is known, then all of them.
"""

import os
import sys

number, count, port = map(int, sys.argv[1:4])
steps = int(sys.argv[4]) if len(sys.argv) > 4 else 4
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={4 // count}"

HEARTBEAT = 10  # s without a word from a process, then it is dead to JAX

import jax  # noqa: E402

jax.config.update("jax_cpu_collectives_implementation", "gloo")
if count > 1:
    jax.distributed.initialize(
        f"localhost:{port}", num_processes=count, process_id=number, heartbeat_timeout_seconds=HEARTBEAT
    )

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import AxisType, NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

import jstitch  # noqa: E402

mesh = jax.make_mesh((4,), ("data",), axis_types=(AxisType.Auto,))


def norm(x, g):
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * g


def step(p, x):
    def loss(p):
        return ((norm(jax.nn.gelu(norm(x, p["g"]) @ p["w"]), p["g"]) - x) ** 2).mean()

    value, g = jax.value_and_grad(loss)(p)
    return jax.tree.map(lambda a, b: a - 0.1 * b, p, g), value


def put(a, *spec):
    return jax.make_array_from_callback(a.shape, NamedSharding(mesh, P(*spec)), lambda index: a[index])


numbers = np.random.default_rng(0)
x = put(numbers.standard_normal((64, 32), np.float32), "data")
p = {"g": put(np.ones(32, np.float32)), "w": put(numbers.standard_normal((32, 32), np.float32) / 6)}
train, losses = jstitch.jit(step, options=jstitch.CompileOptions(tune="off", strict=True)), []
for _ in range(steps):
    p, value = train(p, x)
    losses.append(float(value))
    print("loss", losses[-1], flush=True)
print("kernels", jstitch.stitch_count(), "losses", jnp.array(losses).tolist())
