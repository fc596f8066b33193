"""mujoco-mjx: many pendulums stepped at once."""

import jax
import mujoco
from mujoco import mjx

XML = """
<mujoco>
  <worldbody>
    <body pos="0 0 1">
      <joint type="hinge" axis="0 1 0"/>
      <geom type="capsule" size="0.05" fromto="0 0 0 0 0 -0.5" mass="1"/>
    </body>
  </worldbody>
</mujoco>
"""
model = mjx.put_model(mujoco.MjModel.from_xml_string(XML))
data = mjx.make_data(model)
batch = jax.vmap(lambda angle: data.replace(qpos=data.qpos.at[0].set(angle)))(
    jax.numpy.linspace(0, 1, 1024)
)
step = jax.jit(jax.vmap(mjx.step, in_axes=(None, 0)))
for _ in range(3):
    batch = step(model, batch)
print(batch.qpos.shape)
